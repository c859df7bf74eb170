"""Write the SQL of a lab's database, with jobs of several kinds and states, as the code at hand
makes it: `python -m lab_support.old_database > tests/corpus/version-1.sql`, at the last
commit before the version of the database changed (a5a396b for version 1).
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from etscope_lab.database import Database
from etscope_lab.jobs.records import Device, DeviceConfig, State
from etscope_lab.jobs.spec import FileRef
from lab_support.jobs import LEASE, claimed, run_through, spec_of_number

_ENVIRONMENT: dict[str, Any] = {
    "device": {"arch": "x86_64"},
    "etscope": "0.1.0",
    "executorch": "1.5.1",
    "runner": "native",
    "threads": 1,
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lab.db")
        with Database(f"sqlite:///{path}") as database:
            _fill(database)
        with sqlite3.connect(path) as connection:
            sys.stdout.writelines(f"{line}\n" for line in connection.iterdump())


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
    database.set_device(Device(DeviceConfig("host", "host"), {"arch": "x86_64"}))
    database.acquire_device("host", "engine", LEASE)
    database.add_token("ci", ["read", "submit"])


if __name__ == "__main__":
    main()
