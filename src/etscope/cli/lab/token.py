"""`etscope lab token`: access tokens of a lab."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.lab.options import lab_options, span_of
from etscope.cli.options.common import output_options

if TYPE_CHECKING:
    from etscope.lab.client import Client, TokenInfo
    from etscope.lab.database import Database, Token

_SCOPES = ("read", "submit", "admin")


def _moment(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> datetime | None:
    """A time to come: "90d", "12h", "2w", or a date (UTC)."""
    if value is None:
        return None
    if (span := span_of(value)) is not None:
        return datetime.now(timezone.utc) + span
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither 12h, 90d, 2w nor a date") from None
    moment = moment.replace(tzinfo=moment.tzinfo or timezone.utc)
    if moment <= datetime.now(timezone.utc):
        raise click.BadParameter(f"{value} is over")
    return moment


@click.group(short_help="Make, list and revoke access tokens.")
def command() -> None:
    """Make, list and revoke the tokens that a lab's server asks for.

    A lab without tokens is served on the loopback only, to everybody there. With the first token,
    everybody needs one. Of this machine's lab, tokens are the business of whoever may write its
    folder; of a --server's, of a token with the scope admin.
    """


@command.command(short_help="Make a token and print its secret.")
@click.argument("name")
@click.option(
    "--scope", type=click.Choice(_SCOPES), default="read", show_default=True,
    help="read: look. submit: also submit and cancel jobs. admin: also make tokens.",
)  # fmt: skip
@click.option(
    "--expires", metavar="TIME", callback=_moment, help="12h, 90d, 2w, or a date. Default: never."
)
@lab_options
def add(
    name: str,
    scope: str,
    expires: datetime | None,
    server: str | None,
    token: str | None,
    home: Path | None,
) -> None:
    """Make a token with this NAME and print its secret on a line of its own.

    The lab keeps only a hash of it: it is not shown again. Exit code 2: there is such a token.
    """
    with _tokens_of(server, token, home) as lab:
        secret = lab.add_token(name, [scope], expires)
    click.echo(secret)
    click.echo("keep it: it is not shown again", err=True)


@command.command("list", short_help="List the tokens.")
@lab_options
@output_options
def list_tokens(
    server: str | None,
    token: str | None,
    home: Path | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> None:
    """List the lab's tokens, without their secrets."""
    from etscope.cli.output.output import write_tables
    from etscope.model.table import Column, Kind, Table

    with _tokens_of(server, token, home) as lab:
        found: list[Token | TokenInfo] = [*lab.tokens()]
    now = datetime.now(timezone.utc)
    table = Table(
        (Column("name"), Column("scopes", Kind.LIST), Column("created"), Column("expires"),
         Column("valid", Kind.BOOL)),
        {
            "name": [one.name for one in found],
            "scopes": [sorted(one.scopes, key=_SCOPES.index) for one in found],
            "created": [_day(one.created_at) for one in found],
            "expires": [_day(one.expires_at) for one in found],
            "valid": [one.expires_at is None or one.expires_at > now for one in found],
        },
        "Tokens",
    )  # fmt: skip
    write_tables([table], None, None, format, output, color)


@command.command(short_help="Make tokens worth nothing.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@lab_options
def revoke(
    names: tuple[str, ...], server: str | None, token: str | None, home: Path | None
) -> None:
    """Make tokens worth nothing, and the browser sessions that were given for them.

    Exit code 4: there is no such token.
    """
    with _tokens_of(server, token, home) as lab:
        for name in names:
            lab.revoke(name)


@contextmanager
def _tokens_of(
    server: str | None, token: str | None, home: Path | None
) -> Iterator[Database | Client]:
    """Where the tokens are. Of this machine's lab always in its database: whoever may write that
    needs no token to make one."""
    from etscope.cli.lab.options import SERVER_VARIABLE, need_lab_packages

    need_lab_packages()
    url = server or (os.environ.get(SERVER_VARIABLE) if home is None else None)
    if url is not None:
        from etscope.lab.client import Client

        with Client(url, token) as client:
            yield client
        return
    from etscope.lab.config import Home
    from etscope.lab.database import Database

    database = Database(Home.open(home).database_url)
    try:
        yield database
    finally:
        database.close()


def _day(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M}"
