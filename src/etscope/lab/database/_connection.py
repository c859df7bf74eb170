"""A connection to the database: made once, transactions that are repeated when it went away."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, insert, make_url, select
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from etscope.errors import LabError, UsageError, VersionError
from etscope.lab.database import _tables as tables

T = TypeVar("T")

_PATIENCE = 15.0  # seconds that a database may be away
_BUSY = 30_000  # ms that SQLite waits for another writer
_WRITES = "etscope_writes"


class Connections:
    """Reads and writes as functions of a `Connection`. Usable from several threads.

    A transaction that fails since the database went away (a restart of PostgreSQL) or was busy is
    done again for up to `patience` seconds, then a `LabError`. What is passed to `write` must
    therefore be such that doing it twice is as good as once: the first time may have been
    committed without our knowing.
    """

    def __init__(self, url: str, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._engine = _engine(url)
        self.where = self._engine.url.render_as_string(hide_password=True)
        try:
            self._repeated(self._prepare)
        except BaseException:
            self._engine.dispose()
            raise

    def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` finds, all in one transaction."""

        def once() -> T:
            with self._engine.begin() as connection:
                return work(connection)

        return self._repeated(once)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in one transaction: all of it or nothing."""

        def once() -> T:
            writing = self._engine.execution_options(**{_WRITES: True})
            with writing.begin() as connection:
                return work(connection)

        return self._repeated(once)

    def close(self) -> None:
        self._engine.dispose()

    def _repeated(self, once: Callable[[], T]) -> T:
        end = time.monotonic() + self._patience
        pause = 0.05
        while True:
            try:
                return once()
            except SQLAlchemyError as error:
                if not _may_pass(error):
                    if isinstance(error, (OperationalError, DBAPIError)) and not _is_conflict(
                        error
                    ):
                        raise LabError(
                            f"the lab's database {self.where} failed: {_reason(error)}"
                        ) from error
                    raise
                if time.monotonic() + pause > end:
                    raise LabError(
                        f"the lab's database {self.where} cannot be reached: {_reason(error)}",
                        hint="what was queued is not lost; go on when it is there again",
                    ) from error
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, 1.0)

    def _prepare(self) -> None:
        """Make the tables of a new database; look whether we know the version of an old one."""
        with self._engine.execution_options(**{_WRITES: True}).begin() as connection:
            if self._engine.dialect.name == "postgresql":  # of two that start at once, one waits
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(1163088719)")
            tables.versions.create(connection, checkfirst=True)
            version = connection.scalar(select(tables.versions.c.version))
            if version is None:
                tables.metadata.create_all(connection)
                connection.execute(insert(tables.versions).values(version=tables.VERSION))
            elif version != tables.VERSION:
                raise VersionError(
                    f"{self.where} is a lab's database of version {version}, and this etscope "
                    f"knows version {tables.VERSION}",
                    hint="use the etscope that made it, or another home or database",
                )


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed)
        if parsed.get_backend_name() == "postgresql":
            if parsed.drivername == "postgresql":
                parsed = parsed.set(drivername="postgresql+psycopg")
            return create_engine(parsed, pool_pre_ping=True, pool_size=10, max_overflow=20)
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise UsageError(f"not a database URL: {error}") from error
    raise UsageError(
        f"a lab's database is SQLite or PostgreSQL, not {parsed.get_backend_name()}",
        hint="sqlite:////folder/lab.sqlite or postgresql://user@host/name",
    )


def _sqlite(url: Any) -> Engine:
    if url.database in (None, "", ":memory:"):
        raise UsageError("a lab's SQLite database is a file", hint="sqlite:////folder/lab.sqlite")
    try:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{url.database}: cannot make its folder ({error.strerror})") from error
    engine = create_engine(url, connect_args={"timeout": _BUSY / 1000})

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        # Transactions are begun by us, below: sqlite3 would begin them at the first change, too
        # late for what was read before it to hold.
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout = {_BUSY}",
            "journal_mode = WAL",
            "synchronous = NORMAL",
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _may_pass(error: SQLAlchemyError) -> bool:
    """Whether it is worth while to try again: a lost connection, a database that starts or is
    busy, a conflict that PostgreSQL resolved against us."""
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    text = str(error.orig)
    if "database is locked" in text or "database is busy" in text:
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # psycopg has no code when there was no connection to get it by
        return type(error.orig).__module__.startswith("psycopg") and isinstance(
            error, OperationalError
        )
    return state[:2] == "08" or state in {"57P01", "57P02", "57P03", "40001", "40P01", "53300"}


def _is_conflict(error: DBAPIError) -> bool:
    from sqlalchemy.exc import IntegrityError

    return isinstance(error, IntegrityError)


def _reason(error: SQLAlchemyError) -> str:
    origin = getattr(error, "orig", None)
    return " ".join(str(origin or error).split())
