"""Who may use the lab: tokens, of which only hashes are kept.

A secret is 256 random bits. Nobody guesses such a thing, however fast a guess is checked; so
SHA-256 is enough for what is kept, and the slow hashes that passwords need would make every request
slow and protect nothing. A secret begins with a key, which is no secret, by which its row is found:
the hashes are then compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.engine import Connection, Row

from etscope.errors import MissingDataError, UsageError
from etscope.lab.database import schema
from etscope.lab.database.connection import now

SCOPES = ("read", "submit", "admin")
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._@-]{0,99}")
_SECRET = re.compile(r"etl_([0-9a-f]{12})_[0-9A-Za-z_-]{43}")
_USED = timedelta(minutes=1)  # how exactly it is known when a token was used

_tokens = schema.tokens.c


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. scopes: of `SCOPES`; each takes in those before it. last_used_at:
    to the minute."""

    name: str
    scopes: frozenset[str]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None

    def may(self, scope: str) -> bool:
        wanted = SCOPES.index(scope)
        return any(SCOPES.index(one) >= wanted for one in self.scopes)


def new_secret() -> str:
    return f"etl_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"


def add(
    connection: Connection,
    secret: str,
    name: str,
    scopes: Iterable[str],
    expires_at: datetime | None,
) -> None:
    at = now(connection)
    _check(name, scopes, expires_at, at)
    other = connection.execute(select(schema.tokens).where(_tokens.name == name)).one_or_none()
    if other is not None:
        if other.sha256 == _hash(secret):  # it was committed before the connection broke
            return
        raise UsageError(
            f"there is a token named {name!r}", hint=f"etscope lab token revoke {name} ends it"
        )
    row = {
        "name": name,
        "key": _key_of(secret),
        "sha256": _hash(secret),
        "scopes": sorted(set(scopes), key=SCOPES.index),
        "created_at": at,
        "expires_at": expires_at,
    }
    connection.execute(schema.tokens.insert().values(**row))


def find(connection: Connection, secret: str) -> tuple[Token | None, bool]:
    """The token of a secret, None for one that is wrong or no longer good; and whether it is time
    to note that it was used."""
    key = _key_of(secret)
    if key is None:
        return None, False
    row = connection.execute(select(schema.tokens).where(_tokens.key == key)).one_or_none()
    kept = "" if row is None else row.sha256
    if not hmac.compare_digest(_hash(secret), kept) or row is None:
        return None, False
    at = now(connection)
    if row.expires_at is not None and row.expires_at <= at:
        return None, False
    return _token(row), row.last_used_at is None or row.last_used_at + _USED <= at


def note_use(connection: Connection, name: str) -> None:
    query = update(schema.tokens).where(_tokens.name == name)
    connection.execute(query.values(last_used_at=now(connection)))


def every(connection: Connection) -> list[Token]:
    """By name; those that are no longer good, too."""
    return [_token(row) for row in connection.execute(select(schema.tokens).order_by(_tokens.name))]


def revoke(connection: Connection, name: str, unsure: bool) -> None:
    done = connection.execute(delete(schema.tokens).where(_tokens.name == schema.clean(name)))
    if not done.rowcount and not unsure:
        raise MissingDataError(
            f"there is no token named {name!r}", hint="etscope lab token list shows them"
        )


def _check(name: str, scopes: Iterable[str], expires_at: datetime | None, at: datetime) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} is no name of a token",
            hint="up to 100 of A-Z a-z 0-9 . _ @ -, a letter or digit first",
        )
    wrong = [scope for scope in scopes if scope not in SCOPES]
    if wrong or not set(scopes):
        raise UsageError(
            f"a token has scopes, not {wrong[0]!r}" if wrong else "a token without a scope",
            hint=f"scopes are {', '.join(SCOPES)}",
        )
    if expires_at is not None:
        if expires_at.tzinfo is None:
            raise UsageError(f"the end of the token, {expires_at}, has no time zone")
        if expires_at <= at:
            raise UsageError(f"the end of the token, {expires_at}, is over")


def _key_of(secret: str) -> str | None:
    match = _SECRET.fullmatch(secret)
    return None if match is None else match[1]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _token(row: Row[Any]) -> Token:
    return Token(row.name, frozenset(row.scopes), row.created_at, row.expires_at, row.last_used_at)
