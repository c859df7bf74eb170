"""Transactions of SQLite and PostgreSQL, repeated when the database was away for a moment.

Repeating is safe for all that `Connections.write` is used for: a repeated step of a job finds by
the job's id or the attempt's token whether it was committed the first time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Table, create_engine, event, func, select, text
from sqlalchemy.dialects import postgresql, sqlite
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
_COLLISIONS = 5  # tries when another process has just written the same key
_WRITES = "etscope_writes"

# Advice by words of SQLite's messages.
_ADVICE = {
    "disk is full": "make room, and go on: queued jobs are kept",
    "readonly": "this user must be able to write to the file and its folder",
    "unable to open": "this user must be able to write to the file and its folder",
    "not a database": "name another one in lab.yaml, or bring back a copy",
    "malformed": "it is damaged: bring back a copy, or name another one in lab.yaml",
}

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


class Connections:
    """A database to read and to write. patience: seconds to retry while it cannot be reached."""

    def __init__(self, url: str, patience: float) -> None:
        parsed = _parse(url)
        self.url = parsed.render_as_string(hide_password=True)
        self.patience = patience
        self._engine = _engine(parsed)
        self._writer = self._engine.execution_options(**{_WRITES: True})
        self._reader = self._engine
        if self._engine.dialect.name == "postgresql":
            # All statements of a reader see the same moment, as in SQLite.
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._joined = threading.local()

    def read(
        self,
        work: Callable[Concatenate[Connection, _Arguments], _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Result:
        """Run one transaction that only reads: `work` of a connection and the arguments."""
        if joined := getattr(self._joined, "to", None):
            return work(joined[0], *arguments, **named)
        return self._tried(self._reader, lambda one, _: work(one, *arguments, **named))

    def write(
        self,
        work: Callable[Concatenate[Connection, bool, _Arguments], _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Result:
        """Run one transaction. The second argument of `work` is True when an earlier try of it may
        have been committed: the connection broke before the answer came."""
        if joined := getattr(self._joined, "to", None):
            return work(*joined, *arguments, **named)
        return self._tried(self._writer, lambda one, unsure: work(one, unsure, *arguments, **named))

    def together(self, actions: Sequence[Callable[[], _Result]]) -> list[_Result]:
        """Call the actions, and make what they read and write one transaction. When it is tried
        again, all of them are called again."""

        def work(connection: Connection, unsure: bool) -> list[_Result]:
            self._joined.to = connection, unsure
            try:
                return [action() for action in actions]
            finally:
                self._joined.to = None

        return self._tried(self._writer, work)

    def close(self) -> None:
        self._engine.dispose()

    def _tried(self, engine: Engine, work: Callable[[Connection, bool], _Result]) -> _Result:
        end = time.monotonic() + self.patience
        wait, collisions, unsure = _FIRST_WAIT, 0, False
        while True:
            try:
                with engine.begin() as connection:
                    return work(connection, unsure)
            except SQLAlchemyError as caught:
                error = caught
            if isinstance(error, IntegrityError) and collisions < _COLLISIONS:
                collisions += 1
                continue
            if not _may_pass(error) or time.monotonic() + wait > end:
                raise self._failed(error) from error
            unsure = True
            time.sleep(wait * random.uniform(0.5, 1))
            wait = min(2 * wait, _LONGEST_WAIT)

    def _failed(self, error: SQLAlchemyError) -> LabError:
        reason = str(error.orig if isinstance(error, DBAPIError) else error).strip()
        first = reason.splitlines()[0] if reason else type(error).__name__
        advice = next((f"; {text}" for word, text in _ADVICE.items() if word in first), "")
        return LabError(
            f"the lab's database failed: {first}", hint=f"the database is {self.url}{advice}"
        )


def now(connection: Connection) -> datetime:
    """The time, by the one clock that all users of this database share."""
    if connection.dialect.name == "postgresql":
        found: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return found.astimezone(timezone.utc)
    return datetime.now(timezone.utc)


def lock(connection: Connection, what: str, *, shared: bool = False) -> None:
    """Wait until no other transaction has this lock, or a shared one, and hold it to the end of
    this one. In SQLite there is one that writes at a time."""
    if connection.dialect.name == "postgresql":
        function = f"pg_advisory_xact_lock{'_shared' if shared else ''}"
        query = text(f"SELECT {function}(hashtext(:what))")
        connection.execute(query, {"what": f"etscope_lab {what}"})


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows in the place of those with the same key, where columns without a value stay."""
    is_postgresql = connection.dialect.name == "postgresql"
    query = (postgresql if is_postgresql else sqlite).insert(table)
    keys = [column.name for column in table.primary_key]
    changed = {name: query.excluded[name] for name in rows[0] if name not in keys}
    connection.execute(query.on_conflict_do_update(index_elements=keys, set_=changed), rows)


def _parse(url: str) -> URL:
    kinds = "sqlite:////path/lab.db or postgresql://user@host/database"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # of a port that is not a number
        raise UsageError("not a URL of a database", hint=kinds) from error
    kind = parsed.drivername
    if kind in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise UsageError(f"the lab cannot use a database of the kind {kind}", hint=kinds)
    if kind.startswith("sqlite") and parsed.database in (None, "", ":memory:"):
        raise UsageError(
            "a database in memory is visible to one thread only",
            hint="sqlite:////path/of/a/file.db",
        )
    return parsed


def _engine(url: URL) -> Engine:
    common: dict[str, Any] = {
        "hide_parameters": True,  # they may be secrets, and are not shown in messages
        "pool_size": _POOL,
        "max_overflow": _POOL,
        "pool_timeout": _BUSY,
    }
    try:
        if url.get_backend_name() == "postgresql":
            connect = {
                "connect_timeout": 5,
                "application_name": "etscope-lab",
                # Notice a server that went away without closing the connection.
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 20_000,
            }
            return create_engine(
                url, pool_pre_ping=True, pool_recycle=3600, connect_args=connect, **common
            )
        connect = {"timeout": _BUSY, "check_same_thread": False}
        engine = create_engine(url, connect_args=connect, **common)
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


def _may_pass(error: SQLAlchemyError) -> bool:
    """True when a retry may help: the connection broke, the server starts, a lock was taken."""
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = getattr(error.orig, "sqlstate", None)
    if type(error.orig).__module__.startswith("sqlite3"):
        return any(word in str(error.orig) for word in ("locked", "busy"))
    # 08: connection, 57P: shut down or starting, 40: deadlock; None: no server answered.
    return state is None or state[:2] in ("08", "40") or state[:3] == "57P"
