"""Transactions of SQLite and PostgreSQL, done again when the database was away for a moment.

That is safe for everything that goes through `Connections.write`: who begins a job's step again
finds by the job's id or the attempt's token whether it was done the first time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import create_engine, event, func, select
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from etscope.errors import LabError, MissingDependencyError, UsageError

_BUSY = 30.0  # seconds that SQLite waits for another process's transaction
_POOL = 8  # connections that are kept; twice as many while there is much to do
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 1.0  # seconds between two tries
_COLLISIONS = 5  # tries when another one has just written the same key
_WRITES = "etscope_writes"

# What SQLite says, and what helps.
_ADVICE = {
    "disk is full": "make room, and go on: what was queued is there",
    "readonly": "this user must be able to write to the file and its folder",
    "unable to open": "this user must be able to write to the file and its folder",
    "not a database": "name another one in lab.yaml, or bring back a copy",
    "malformed": "it is damaged: bring back a copy, or name another one in lab.yaml",
}

_Result = TypeVar("_Result")


class Connections:
    """A database to read and to write. patience: seconds to go on trying while it is away."""

    def __init__(self, url: str, patience: float) -> None:
        parsed = _parse(url)
        self.url = parsed.render_as_string(hide_password=True)
        self._patience = patience
        self._engine = _engine(parsed)
        self._writer = self._engine.execution_options(**{_WRITES: True})
        self._reader = self._engine
        if self.is_postgresql:  # all statements of a reader see the same moment, as in SQLite
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")

    @property
    def is_postgresql(self) -> bool:
        return self._engine.dialect.name == "postgresql"

    def read(self, work: Callable[[Connection], _Result]) -> _Result:
        return self._tried(self._reader, lambda connection, _: work(connection), self._patience)

    def write(
        self, work: Callable[[Connection, bool], _Result], *, patience: float | None = None
    ) -> _Result:
        """One transaction. `work` is told whether an earlier try of it may have been committed: the
        connection broke before the answer came."""
        return self._tried(self._writer, work, self._patience if patience is None else patience)

    def close(self) -> None:
        self._engine.dispose()

    def _tried(
        self, engine: Engine, work: Callable[[Connection, bool], _Result], patience: float
    ) -> _Result:
        end = time.monotonic() + patience
        wait, collisions, unsure = _FIRST_WAIT, 0, False
        while True:
            done, error = _once(engine, work, unsure)
            if error is None:
                return done  # type: ignore[return-value]
            if isinstance(error, IntegrityError) and collisions < _COLLISIONS:
                collisions += 1
                continue
            if not _passes(error) or time.monotonic() + wait > end:
                raise self._failed(error) from error
            unsure = True
            time.sleep(wait * random.uniform(0.5, 1))
            wait = min(2 * wait, _LONGEST_WAIT)

    def _failed(self, error: SQLAlchemyError) -> LabError:
        reason = str(error.orig if isinstance(error, DBAPIError) else error).strip()
        first = reason.splitlines()[0] if reason else type(error).__name__
        hint = f"the database is {self.url}{_advice(first)}"
        return LabError(f"the lab's database failed: {first}", hint=hint)


def _once(
    engine: Engine, work: Callable[[Connection, bool], _Result], unsure: bool
) -> tuple[_Result | None, SQLAlchemyError | None]:
    try:
        with engine.begin() as connection:
            return work(connection, unsure), None
    except SQLAlchemyError as error:
        return None, error


def _advice(reason: str) -> str:
    for word, advice in _ADVICE.items():
        if word in reason:
            return f"; {advice}"
    return ""


def now(connection: Connection) -> datetime:
    """The time, by the one clock of all that use this database."""
    if connection.dialect.name == "postgresql":
        found: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return found.astimezone(timezone.utc)
    return datetime.now(timezone.utc)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # of a port that is no number
        raise UsageError("this is no URL of a database", hint=_kinds()) from error
    kind = parsed.drivername
    if kind in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise UsageError(f"no database of the lab: {kind}", hint=_kinds())
    if kind.startswith("sqlite") and parsed.database in (None, "", ":memory:"):
        raise UsageError(
            "a database in memory is of one thread only", hint="sqlite:////path/of/a/file.db"
        )
    return parsed


def _kinds() -> str:
    return "sqlite:////path/lab.db or postgresql://user@host/database"


def _engine(url: URL) -> Engine:
    try:
        if url.get_backend_name() == "postgresql":
            return create_engine(url, **_POSTGRESQL)
        engine = create_engine(url, **_SQLITE)
    except (ImportError, NoSuchModuleError) as error:
        raise MissingDependencyError(
            f"{url.drivername} cannot be used: {error}", hint="pip install 'etscope[lab]'"
        ) from error
    folder = Path(url.database or "").parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            f"the folder of the lab's database, {folder}, cannot be made: {error.strerror}",
            hint="name another database in lab.yaml",
        ) from error
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


# Parameters of statements may be secrets: they are in no message.
_COMMON: dict[str, Any] = {
    "hide_parameters": True,
    "pool_size": _POOL,
    "max_overflow": _POOL,
    "pool_timeout": _BUSY,
}
_POSTGRESQL: dict[str, Any] = {
    **_COMMON,
    "pool_pre_ping": True,
    "pool_recycle": 3600,
    "connect_args": {
        "connect_timeout": 5,
        "application_name": "etscope-lab",
        # A server that went without a word is noticed.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    },
}
_SQLITE: dict[str, Any] = {
    **_COMMON,
    "connect_args": {"timeout": _BUSY, "check_same_thread": False},
}


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says
    cursor = connection.cursor()
    try:
        # Readers do not wait for the writer. FULL, the default: a commit survives a power failure.
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA busy_timeout={int(_BUSY * 1000)}")
    finally:
        cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    """A transaction that writes gets the lock when it begins. It would fail, and not wait, if it
    read first and another process wrote in between."""
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _passes(error: SQLAlchemyError) -> bool:
    """Whether trying again may help: the connection broke, the server starts, a lock was taken."""
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = getattr(error.orig, "sqlstate", None)
    if type(error.orig).__module__.startswith("sqlite3"):
        return any(word in str(error.orig) for word in ("locked", "busy"))
    # 08: connection, 57P: shut down or starting, 40: deadlock; None: there was no server to ask.
    return state is None or state[:2] in ("08", "40") or state[:3] == "57P"
