"""`etscope lab init, serve, token, sweep, schema`: run a lab for others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import PORT, choice_option, output_options, show_address
from etscope.cli.output.tables import OutputOptions
from etscope.errors import UsageError
from etscope_lab.cli.options import (
    LabOptions,
    in_lab,
    parse_span,
    start_log,
)

if TYPE_CHECKING:
    from etscope_lab.client import Client
    from etscope_lab.database import Database

_SCOPES = ("read", "submit", "operate", "admin")


@click.command()
@click.argument("kind", type=click.Choice(["local", "team"]), default="local")
@in_lab
def init(kind: str, where: LabOptions) -> None:
    """Write a lab.yaml with explanations into the lab's folder, and print its path.

    local: every key in it may be left out; a lab needs no lab.yaml to run jobs on this machine.
    team: for a server with PostgreSQL and workers on other machines; the names are those of
    deploy/compose.yaml. Exit code 2: there is a lab.yaml already.
    """
    from etscope_lab.config import CONFIG, Home

    click.echo(Home.init(where.home, team=kind == "team").folder / CONFIG)


@click.command()
@in_lab
@click.option(
    "--host", metavar="ADDRESS", help="Address to listen on. Default: lab.yaml's, else 127.0.0.1."
)
@click.option(
    "--port", type=PORT, metavar="N",
    help="0: any free port. Default: lab.yaml's, else 8585.",
)  # fmt: skip
@click.option("--no-engine", is_flag=True, help="Serve only; jobs are run elsewhere.")
def serve(where: LabOptions, host: str | None, port: int | None, no_engine: bool) -> None:
    """Run the lab's jobs, and serve its pages and its API at an address that is printed.

    On a loopback address all users of this machine have access until there is a token (etscope lab
    token add); on other addresses, or behind a proxy, the server does not start without one. The
    API's documentation is at /api/docs.

    Ctrl-C or SIGTERM stops it: running jobs get a moment to end, then they are queued again. Exit
    codes: 0 stopped by a signal; 2: cannot listen there; 5: no tokens, or the database or store
    cannot be reached.
    """
    from etscope_lab.config import Home
    from etscope_lab.lab import Lab
    from etscope_lab.server.app import serve as run_server
    from etscope_lab.server.settings import settings_of

    here = Home.open(where.home)
    running = here.server_url
    if running is not None:
        raise UsageError(
            f"this lab is served already, at {running}",
            hint="stop that server first, or take another folder: --home",
        )
    settings = settings_of(here, host)
    start_log(here.config.log)
    with Lab.open(here) as lab, ExitStack() as announced:
        lab.database.note_settings("", here.hashes())

        def ready(address: str) -> None:
            announced.enter_context(here.announce(address))
            if here.config.sweeps and not no_engine:
                from etscope_lab.sweep import Schedules

                announced.enter_context(closing(schedules := Schedules(here)))
                schedules.start()
            show_address(address, open_it=False)

        run_server(
            lab,
            settings,
            port=here.config.server.port if port is None else port,
            engine=None if no_engine else lab.start_engine,
            ready=ready,
        )


@click.group()
def token() -> None:
    """Make, list and revoke the access tokens of a lab's server.

    A lab without tokens is served on loopback addresses only, to all users of the machine. After
    the first token, every user needs one. To change the tokens of this machine's lab you need
    access to its folder; with --server, a token with the scope admin.
    """


def _expiry(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> datetime | None:
    """Parse a time: "90d", "12h", "2w", or a date (UTC)."""
    if value is None:
        return None
    if (span := parse_span(value)) is not None:
        return datetime.now(timezone.utc) + span
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither 12h, 90d, 2w nor a date") from None
    return moment.replace(tzinfo=moment.tzinfo or timezone.utc)


@token.command(short_help="Make a token and print its secret.")
@click.argument("name")
@choice_option(
    "--scope",
    _SCOPES,
    "read: view only. submit: also submit jobs, and cancel these. operate: also cancel others' "
    "jobs, and take devices out of service. admin: also make tokens and read the audit log.",
)
@click.option(
    "--expires",
    metavar="TIME",
    callback=_expiry,
    help="Valid for 12h, 90d, 2w, or until a date. Default: never expires.",
)
@click.option(
    "--project", default="", metavar="NAME",
    help="Project of the jobs that are submitted with it; see projects: in lab.yaml.",
)  # fmt: skip
@in_lab
def add(name: str, scope: str, expires: datetime | None, project: str, where: LabOptions) -> None:
    """Make a token with this NAME and print its secret on a separate line.

    The lab keeps only a hash of it: it cannot be shown again. Exit code 2: the token exists.
    """
    with _token_store(where) as lab:
        secret = lab.add_token(name, [scope], expires, project=project)
    click.echo(secret)
    click.echo("keep the secret: it is not shown again", err=True)


@token.command("list", short_help="List the tokens.")
@in_lab
@partial(output_options, to_file=False)
def list_tokens(where: LabOptions, output: OutputOptions) -> None:
    """List the lab's tokens, without their secrets."""
    from etscope.model.table import Column, Kind, Table

    def day(moment: datetime | None) -> str | None:
        return None if moment is None else f"{moment:%Y-%m-%d %H:%M}"

    with _token_store(where) as lab:
        tokens = [*lab.tokens()]
    now = datetime.now(timezone.utc)
    columns: dict[Column, list[Any]] = {
        Column("name"): [one.name for one in tokens],
        Column("scopes", Kind.LIST): [sorted(one.scopes, key=_SCOPES.index) for one in tokens],
        Column("project"): [one.project for one in tokens],
        Column("created"): [day(one.created_at) for one in tokens],
        Column("expires"): [day(one.expires_at) for one in tokens],
        Column("valid", Kind.BOOL): [
            one.expires_at is None or one.expires_at > now for one in tokens
        ],
    }
    output.write_tables([Table.of(columns, title="Tokens")])


@token.command(short_help="Revoke tokens.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@in_lab
def revoke(names: tuple[str, ...], where: LabOptions) -> None:
    """Revoke tokens, and end the browser sessions that were started with them.

    Exit code 4: the token does not exist.
    """
    with _token_store(where) as lab:
        for name in names:
            lab.revoke(name)


@click.command()
@in_lab
@partial(output_options, to_file=False)
def audit(where: LabOptions, output: OutputOptions) -> None:
    """Show who cancelled jobs, changed tokens or devices, and which keys of lab.yaml changed: the
    last 1,000 entries, the newest first. An empty name is the owner of the lab's folder. With
    --server this needs the scope admin.
    """
    import json

    from etscope.model.table import Column, Table

    with where.open() as lab:
        found = lab.audit(1000)
    details = [{k: v for k, v in one.detail.items() if v and k != "hashes"} for one in found]
    columns: dict[Column, list[Any]] = {
        Column("number", priority=6): [one.number for one in found],
        Column("at", title="at (UTC)"): [f"{one.at:%Y-%m-%d %H:%M:%S}" for one in found],
        Column("by"): [one.by for one in found],
        Column("action"): [one.action for one in found],
        Column("target"): [one.target for one in found],
        Column("detail"): [json.dumps(one) if one else "" for one in details],
    }
    output.write_tables([Table.of(columns, title="Audit log")])


@contextmanager
def _token_store(where: LabOptions) -> Iterator[Database | Client]:
    """Open the tokens of a server, or the database of this machine's lab.

    The database is used even while a server runs: who can write it needs no token to make one.
    """
    if where.url is not None:
        from etscope_lab.client import Client

        with Client(where.url, where.token) as client:
            yield client
        return
    from etscope_lab.config import Home
    from etscope_lab.database import Database

    with closing(Database(Home.open(where.home).database_url)) as database:
        yield database


def _age(context: click.Context, parameter: click.Parameter, value: str) -> int:
    span = parse_span(value)
    if span is None:
        raise click.BadParameter(f"{value!r} is not an age: write 12h, 7d or 2w")
    return int(span.total_seconds())


@click.command()
@click.option(
    "--older-than", "seconds", default="1d", metavar="AGE", callback=_age,
    help="Keep files newer than this (12h, 7d, 2w), which a job may be about to use.",
)  # fmt: skip
@in_lab
def sweep(seconds: int, where: LabOptions) -> None:
    """Remove from the artefact store the files that no job reads or wrote: uploads that were never
    submitted, and files of killed processes; before that, the files of jobs that are older than
    keep_days of lab.yaml. Prints the number of files removed. The lab may be running meanwhile.
    """
    from etscope_lab.lab import Lab

    with Lab.open(where.home) as lab:
        click.echo(lab.sweep(seconds))


@click.command()
def schema() -> None:
    """Print the JSON Schema of a job's specification, which etscope lab submit reads.

    An editor that knows the schema completes and checks the file.
    """
    import json

    from etscope_lab.jobs.spec import JobSpec

    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    click.echo(json.dumps({**dialect, **JobSpec.model_json_schema()}, indent=2))
