"""Write the SQL of a lab's database, with jobs of several kinds and states, as the code at hand
makes it: `python -m lab_support.old_database tests/corpus/version-6`, at the last commit before the
version of the database changes. Adds .sql of SQLite and .postgresql.sql to that name.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from etscope_lab.database import Database
from etscope_lab.jobs.records import Device, DeviceConfig, State
from etscope_lab.jobs.spec import FileRef
from lab_support import postgresql
from lab_support.jobs import claimed, run_through, spec_of_number

_NOT_KEPT = ("--", "\\", "SET ", "SELECT pg_catalog.set_config")
_ENVIRONMENT: dict[str, Any] = {
    "device": {"arch": "x86_64"},
    "etscope": "0.1.0",
    "executorch": "1.5.1",
    "runner": "native",
    "threads": 1,
}


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder, postgresql.serving() as server:
        path, url = Path(folder, "lab.db"), server.new()
        for one in (f"sqlite:///{path}", url):
            with Database(one) as database:
                _fill(database)
        Path(f"{name}.sql").write_text(_sqlite_dump(path))
        # Without comments, settings of the session, and psql's own commands.
        lines = server.dump(url, "--no-owner", "--inserts").splitlines()
        kept = [line for line in lines if line and not line.startswith(_NOT_KEPT)]
        Path(f"{name}.postgresql.sql").write_text("\n".join(kept) + "\n")


def _sqlite_dump(path: Path) -> str:
    """The statements that make the database. Those of Python for a virtual table cannot be read
    again, so the index of texts is made anew."""
    with closing(sqlite3.connect(path)) as connection:
        query = "select sql from sqlite_master where {} order by type desc"
        virtual = connection.execute(query.format("sql like 'create virtual%'")).fetchall()
        triggers = connection.execute(query.format("type = 'trigger'")).fetchall()
        connection.execute("drop table lab_seeks")
        for (name,) in connection.execute("select name from sqlite_master where type = 'trigger'"):
            connection.execute(f"drop trigger {name}")
        lines = [*connection.iterdump(), *(f"{sql};" for (sql,) in (*virtual, *triggers))]
    return "\n".join([*lines, "INSERT INTO lab_seeks (lab_seeks) VALUES ('rebuild');", ""])


def _fill(database: Database) -> None:
    net = {"model_name": "net.pte"}
    for number in range(7):
        spec = spec_of_number(number, labels={"commit": f"c{number}"}, **net)
        run_through(database, spec, 10 + number / 100, environment=_ENVIRONMENT)
    four = {**_ENVIRONMENT, "threads": 4}
    run_through(database, spec_of_number(7, **net), 3.0, environment=four)
    python = {**_ENVIRONMENT, "runner": "python"}
    run_through(database, spec_of_number(8, **net), 11.0, environment=python, marks=("busy",))
    later = {**_ENVIRONMENT, "executorch": "1.6.0"}
    run_through(database, spec_of_number(9, **net), 9.0, environment=later)
    inputs = FileRef(sha256="ab" * 32, name="long.npz")
    spec = spec_of_number(10, inputs=inputs, **net)
    run_through(database, spec, 40.0, environment=_ENVIRONMENT)
    run_through(database, spec_of_number(11, runner="native", threads=2, seed=3, **net), 5.0)
    run_through(database, spec_of_number(12, kind="accuracy", **net), 1.0)
    run_through(database, spec_of_number(13, **net), 1.0, state=State.FAILED, error="it broke")
    claimed(database, database.add(spec_of_number(14, **net))[0])
    database.add(spec_of_number(15, priority=3, **net))
    database.set_devices(Device(DeviceConfig("host", "host"), {"arch": "x86_64"}))
    database.acquire_devices(["host"], "engine")
    database.add_token("ci", ["read", "submit"])


if __name__ == "__main__":
    main(sys.argv[1])
