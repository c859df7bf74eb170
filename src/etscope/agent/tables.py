"""SQL over the tables of one run."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etscope.agent.commands import CommandError, Commands

__all__ = ["TABLES", "select"]

# Each table with the command that makes it.
TABLES: dict[str, tuple[str, ...]] = {
    "instructions": ("inspect", "--sort", "run", "-n", "0"),
    "nodes": ("graph", "-n", "0"),
    "findings": ("explain",),
    "numerics": ("numerics",),
}
_ROWS = 5_000
_SECONDS = 10
_HEAP = 256 << 20  # bytes of SQLite in this process: SQL can build gigabytes of text
_STEPS = 10_000  # of SQLite's machine, between two looks at the clock


def select(commands: Commands, run: Path, sql: str) -> dict[str, Any]:
    """Return the columns and rows of a SELECT over the tables of a run: those that it names.

    Raises `CommandError` for a statement that is not a SELECT, that fails, takes over ten seconds
    or 256 MiB, or has over 5,000 rows, and as `Commands.text`.
    """
    wanted = [name for name in TABLES if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]
    if not wanted:
        raise CommandError(f"the query names no table. Tables: {', '.join(TABLES)}.")
    database = sqlite3.connect(":memory:")
    database.execute(f"PRAGMA hard_heap_limit = {_HEAP}")  # it can only become less afterwards
    columns = {}
    for name in wanted:
        verb, *arguments = TABLES[name]
        columns[name] = _fill(database, name, commands.json(verb, run, *arguments))
    try:
        return _rows(database, sql)
    except sqlite3.Error as error:
        known = "; ".join(f"{name}({', '.join(names)})" for name, names in columns.items())
        raise CommandError(f"{error}. Columns: {known}.") from error
    except MemoryError as error:
        raise CommandError(f"the query needs over {_HEAP >> 20} MiB. Ask for less.") from error
    finally:
        database.close()


def _rows(database: sqlite3.Connection, sql: str) -> dict[str, Any]:
    """Run a SELECT that can read the tables and nothing else."""
    until = time.monotonic() + _SECONDS
    database.set_authorizer(_allow)
    database.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    cursor = database.execute(sql)
    names = [one[0] for one in cursor.description or ()]
    rows = cursor.fetchmany(_ROWS + 1)
    if len(rows) > _ROWS:
        raise CommandError(f"the query has over {_ROWS:,} rows. Add LIMIT, or aggregate.")
    plain = ([one.hex() if isinstance(one, bytes) else one for one in row] for row in rows)
    return {"columns": names, "rows": list(plain)}


_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)


def _allow(action: int, _: str | None, name: str | None, *__: str | None) -> int:
    """SQLite's authorizer: reading, and functions of values."""
    if action in _READS or (action == sqlite3.SQLITE_FUNCTION and name != "load_extension"):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _fill(database: sqlite3.Connection, name: str, document: dict[str, Any]) -> list[str]:
    """Make a table of a command's document, and return its columns."""
    names = [one["name"] for one in document["columns"]]
    quoted = ", ".join(f'"{one}"' for one in names)
    database.execute(f"CREATE TABLE {name} ({quoted})")
    marks = ", ".join("?" * len(names))
    database.executemany(f"INSERT INTO {name} VALUES ({marks})", _plain(document["rows"], names))
    return names


def _plain(rows: list[dict[str, Any]], names: list[str]) -> Iterator[list[Any]]:
    for row in rows:
        values = (row[name] for name in names)
        yield [json.dumps(one) if isinstance(one, (list, dict)) else _number(one) for one in values]


def _number(value: Any) -> Any:
    """JSON has no infinities and no NaN: the tables write them as texts."""
    return {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": None}.get(value, value)
