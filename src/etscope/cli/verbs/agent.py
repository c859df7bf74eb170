"""`etscope agent`: serve agents, and write their skill."""

from __future__ import annotations

from pathlib import Path

import click

from etscope.cli.options.common import PORT
from etscope.support.optional import require

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group()
def command() -> None:
    """Let a coding agent use etscope.

    \b
    etscope agent mcp
    etscope agent mcp --folder ~/models --allow-run
    etscope agent skill .claude/skills/etscope
    """


@command.command("mcp")
@click.option(
    "--folder",
    "folders",
    type=_FOLDER,
    multiple=True,
    metavar="DIR",
    help="Serve the runs and files below this folder only. Repeatable; the first one has the kept "
    "runs. Default: the current directory.",
)
@click.option(
    "--allow-run",
    is_flag=True,
    help="Let the agent export and run models: it executes their Python.",
)
@click.option(
    "--port", type=PORT, help="Serve HTTP on this port of this machine. Default: stdin and stdout."
)
def mcp(folders: tuple[Path, ...], allow_run: bool, port: int | None) -> None:
    """Serve the Model Context Protocol: an agent asks what a run did, why it is slow, and where its
    numbers go wrong.

    \b
    etscope agent mcp
    etscope agent mcp --port 8765

    The server reads. It does not run models unless --allow-run is given. An agent's configuration
    names the command: {"command": "etscope", "args": ["agent", "mcp"]}.
    """
    require("mcp", wanted_by="etscope agent mcp")
    from etscope.agent.server import server

    made = server(tuple(folder.resolve() for folder in folders or (Path(),)), may_run=allow_run)
    if port is None:
        made.run("stdio")
    else:
        click.echo(f"serving http://127.0.0.1:{port}/mcp until Ctrl-C", err=True)
        made.run("streamable-http", port=port)


@command.command("skill")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), required=False)
def skill(folder: Path | None) -> None:
    """Write SKILL.md, which tells an agent how to use etscope, into FOLDER. Default: standard
    output.

    \b
    etscope agent skill .claude/skills/etscope
    """
    from etscope.agent.skill import skill_text

    if folder is None:
        click.echo(skill_text(), nl=False)
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "SKILL.md"
    path.write_text(skill_text(), encoding="utf-8")
    click.echo(f"wrote {path}", err=True)
