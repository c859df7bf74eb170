"""Options that the lab's commands share, and the lab that they mean."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from etscope.lab.client import Client
    from etscope.lab.config import Home
    from etscope.lab.lab import Lab

SERVER_VARIABLE = "ETSCOPE_LAB_SERVER"
TOKEN_VARIABLE = "ETSCOPE_LAB_TOKEN"
_WANTED_BY = "etscope lab"
_SPAN = re.compile(r"(\d{1,5})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_Function = TypeVar("_Function", bound=Callable[..., Any])

home_option = click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The lab's folder. Default: $ETSCOPE_LAB, or ~/.etscope/lab.",
)


def lab_options(function: _Function) -> _Function:
    """Add `--server --token --home`: which lab. Parameters `server`, `token`, `home`."""
    for decorator in (
        home_option,
        click.option(
            "--token", metavar="SECRET", help="For the server. Default: $ETSCOPE_LAB_TOKEN."
        ),
        click.option(
            "--server",
            metavar="URL",
            help=f"A lab's server. Default: ${SERVER_VARIABLE}, else the lab of this machine.",
        ),
    ):
        function = decorator(function)
    return function


def key_values(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """The callback of a repeatable option KEY=VALUE."""
    found = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise click.BadParameter(f"{text!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def span_of(text: str) -> timedelta | None:
    """What "12h", "90d" or "2w" says; None for anything else."""
    found = _SPAN.fullmatch(text.strip())
    return None if found is None else timedelta(**{_UNITS[found[2]]: int(found[1])})


def need_lab_packages() -> None:
    """Raise `MissingDependencyError`, with the line that installs them, when they are missing."""
    from etscope.optional import require

    for module in ("pydantic", "sqlalchemy", "fsspec", "yaml"):
        require(module, wanted_by=_WANTED_BY)


@contextmanager
def open_lab(
    server: str | None,
    token: str | None,
    home: Path | None,
    *,
    direct: bool = False,
    progress: Callable[[str, int, int], None] = lambda what, done, size: None,
) -> Iterator[Lab | Client]:
    """The lab that the options mean: a server's, by `--server`, $ETSCOPE_LAB_SERVER or because one
    runs for this home; else the home itself, in this process. direct: the home in any case, unless
    there is a `server`. progress: see `Client`."""
    need_lab_packages()
    url = server
    if url is None and home is None and not direct:
        url = os.environ.get(SERVER_VARIABLE)
    if url is None:
        from etscope.lab.config import Home

        here = Home.open(home)
        url = None if direct else here.server_url
        if url is None:
            from etscope.lab.lab import Lab

            with Lab.open(here) as lab:
                yield lab
            return
        token = token or os.environ.get(TOKEN_VARIABLE) or _local_secret(here)
    from etscope.lab.client import Client

    with Client(url, token, progress=progress) as client:
        yield client


def _local_secret(home: Home) -> str:
    """Whoever may read and write the folder needs no token for the server that runs on it."""
    from etscope.lab.server.settings import key_of, local_secret

    return local_secret(key_of(home.folder))
