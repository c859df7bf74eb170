"""Tokens: who may do what. Only their hashes are kept.

A secret has 256 random bits, so nobody finds it by trying, and its plain SHA-256 is as safe as a
slow hash, which is for passwords that people think up. It is looked up by its hash: the time that
takes tells nothing of the secret.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from etscope.errors import MissingDataError, UsageError
from etscope.lab.database import _tables as tables
from etscope.lab.database._jobs import now

SCOPES = {
    "read": frozenset({"read"}),
    "submit": frozenset({"read", "submit"}),
    "admin": frozenset({"read", "submit", "admin"}),
}
_PREFIX = "etl_"  # so that scanners for leaked secrets can know them
_BYTES = 32
_USED = timedelta(minutes=1)  # how exactly the last use is kept

tokens = tables.tokens


@dataclass(frozen=True, slots=True)
class Token:
    """scopes: all that it may, a larger one with the smaller ones."""

    name: str
    scopes: frozenset[str]
    created_at: datetime
    expires_at: datetime | None = None
    used_at: datetime | None = None


def new_secret() -> str:
    return _PREFIX + secrets.token_urlsafe(_BYTES)


def add(
    connection: Connection,
    name: str,
    secret: str,
    scopes: Sequence[str],
    expires_at: datetime | None,
) -> None:
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise UsageError(
            f"no such scope: {', '.join(unknown)}" if unknown else "a token has a scope at least",
            hint=f"scopes are {', '.join(SCOPES)}",
        )
    if not 1 <= len(name) <= 100:
        raise UsageError("a token's name has from 1 to 100 characters")
    values = {
        "name": name,
        "hash": _hash(secret),
        "scopes": sorted(frozenset().union(*(SCOPES[scope] for scope in scopes))),
        "created_at": now(),
        "expires_at": expires_at,
    }
    try:
        with connection.begin_nested():
            connection.execute(insert(tokens).values(values))
    except IntegrityError:
        kept = connection.scalar(select(tokens.c.hash).where(tokens.c.name == name))
        if kept != values["hash"]:
            raise UsageError(
                f"there is a token {name!r} already", hint="revoke it first, or take another name"
            ) from None


def check(connection: Connection, secret: str) -> tuple[Token, bool] | None:
    """The token of a secret, unless it ran out; and whether its use should be noted."""
    row = connection.execute(select(tokens).where(tokens.c.hash == _hash(secret))).one_or_none()
    at = now()
    if row is None or (row.expires_at is not None and row.expires_at <= at):
        return None
    return _token(row), row.used_at is None or at - row.used_at > _USED


def note_use(connection: Connection, name: str) -> None:
    connection.execute(update(tokens).where(tokens.c.name == name).values(used_at=now()))


def every(connection: Connection) -> list[Token]:
    return [_token(row) for row in connection.execute(select(tokens).order_by(tokens.c.name))]


def revoke(connection: Connection, name: str) -> None:
    if connection.execute(delete(tokens).where(tokens.c.name == name)).rowcount == 0:
        raise MissingDataError(f"there is no token {name!r}")


def _token(row: object) -> Token:
    from typing import Any, cast

    found = cast("Any", row)
    return Token(
        found.name, frozenset(found.scopes), found.created_at, found.expires_at, found.used_at
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
