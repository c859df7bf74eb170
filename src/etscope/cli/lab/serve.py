"""`etscope lab serve`: the lab's devices at work, its pages and its API."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.lab.options import home_option

if TYPE_CHECKING:
    from etscope.lab.config import Home
    from etscope.lab.server.settings import Settings


@click.command(short_help="Run jobs; serve the web pages and the API.")
@home_option
@click.option(
    "--host", metavar="ADDRESS", help="Address to listen at. Default: lab.yaml's, else 127.0.0.1."
)
@click.option(
    "--port", type=click.IntRange(min=0, max=65535), metavar="N",
    help="0: any that is free. Default: lab.yaml's, else 8585.",
)  # fmt: skip
@click.option(
    "--device", "devices", metavar="NAME", multiple=True,
    help="Work with this device only. Repeatable. Default: all of lab.yaml.",
)  # fmt: skip
@click.option("--no-engine", is_flag=True, help="Serve only; jobs are run elsewhere.")
@click.option(
    "--scheduler", metavar="ADDRESS", help="Of a Dask cluster whose workers offer the devices."
)
@click.option("--open", "open_it", is_flag=True, help="Open a browser on it.")
def command(
    home: Path | None,
    host: str | None,
    port: int | None,
    devices: tuple[str, ...],
    no_engine: bool,
    scheduler: str | None,
    open_it: bool,
) -> None:
    """Work on the lab's jobs, and serve its pages and its API at an address that is printed.

    On the loopback everybody of this machine may use it until there is a token (etscope lab token
    add); beyond it, or behind a proxy, it does not start without one. The API's documentation is at
    /api/docs.

    Ctrl-C or SIGTERM ends it: jobs at work get a moment to end, what is not done then is queued
    again. Exit codes: 0 ended so; 2: cannot listen there; 5: no tokens, or the database or store
    is out of reach.
    """
    from etscope.cli.lab.options import need_lab_packages
    from etscope.optional import require

    need_lab_packages()
    for module in ("fastapi", "uvicorn", "jinja2", "itsdangerous", "limits"):
        require(module, wanted_by="etscope lab serve")
    from etscope.errors import UsageError
    from etscope.lab.config import Home
    from etscope.lab.lab import Lab
    from etscope.lab.server.run import serve

    if no_engine and (devices or scheduler):
        raise UsageError("--no-engine runs no jobs: no --device and no --scheduler with it")
    here = Home.open(home)
    running = here.server_url
    if running is not None:
        raise UsageError(
            f"this lab is served already, at {running}",
            hint="end that one first, or take another folder: --home",
        )
    with Lab.open(here) as lab, ExitStack() as announced:

        def ready(address: str) -> None:
            announced.enter_context(here.announce(address))
            click.echo(address)
            click.echo("Ctrl-C ends it", err=True)
            if open_it:
                import webbrowser

                webbrowser.open(address)

        serve(
            lab,
            _settings(here, host),
            port=here.config.server.port if port is None else port,
            engine=None if no_engine else lambda: lab.start_engine(devices or None, scheduler),
            ready=ready,
        )


def _settings(home: Home, host: str | None) -> Settings:
    from etscope.lab.server.settings import Settings, key_of

    said = home.config.server
    return Settings(
        host=host or said.host,
        hosts=said.hosts,
        trusted_proxies=said.trusted_proxies,
        require_tokens=said.require_tokens,
        key=key_of(home.folder),
        uploads=home.folder / "uploads",
        max_upload_bytes=said.max_upload_bytes,
    )
