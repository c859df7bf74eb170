"""The lab's database when the place that it is in does not do what it should."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from etscope.errors import EtscopeError, FormatError, LabError, UsageError, VersionError
from etscope_lab.database import Database
from lab_support.jobs import spec_of_number
from tests.support.warm import SOURCES


def opened(path: Path) -> Database:
    return Database(f"sqlite:///{path}")


def filled(path: Path, jobs: int = 30) -> None:
    with opened(path) as database:
        for number in range(jobs):
            database.add(spec_of_number(number))


def test_a_database_of_a_later_etscope(database_url: str) -> None:
    Database(database_url).close()
    engine = create_engine(database_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("update etscope_lab set version = 99"))
    engine.dispose()
    with pytest.raises(VersionError, match="version 99") as caught:
        Database(database_url)
    assert caught.value.hint


def test_tables_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("create table lab_jobs (id text)")
    connection.close()
    with pytest.raises(LabError, match="lab_jobs") as caught:
        opened(path)
    assert caught.value.hint


@pytest.mark.parametrize("damage", ["no database", "torn", "overwritten"])
def test_a_damaged_file(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "lab.db"
    if damage == "no database":
        path.write_bytes(b"this is no database at all\n" * 100)
    else:
        filled(path)
        content = bytearray(path.read_bytes())
        size = len(content)
        if damage == "torn":
            del content[size // 3 :]
        else:
            content[4096 : size - 4096] = b"\xa5" * (size - 8192)
        path.write_bytes(content)
    with pytest.raises((LabError, FormatError)) as caught, opened(path) as database:
        database.jobs()
        database.add(spec_of_number(100))
    assert caught.value.hint and str(path) in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "lab.db",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://root@host/lab",
        "oracle://x",
        "postgresql+asyncpg://host/x",
        "no such://x",
        "postgresql://host:port/x",
    ],
)
def test_a_url_of_something_else(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Database(url)
    assert caught.value.hint


def test_a_folder_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "lab.db", tmp_path, Path("/proc/nowhere/lab.db")):
        with pytest.raises(LabError) as caught:
            opened(path)
        assert caught.value.hint


def test_a_password_is_in_no_message() -> None:
    url = "postgresql://user:SECRET@127.0.0.1:1/lab"
    with pytest.raises(LabError) as caught:
        Database(url, patience_seconds=0)
    assert "127.0.0.1" in str(caught.value) and "SECRET" not in str(caught.value)


# Root may write to what is read-only: the test is another user's process. That user may not be able
# to reach the packages, so it becomes that user when all is imported.
_READ_ONLY = """
import os, sys, tempfile
from etscope.errors import LabError
from etscope_lab.database import Database
from lab_support.jobs import spec_of_number
with tempfile.TemporaryDirectory() as folder:
    Database(f"sqlite:///{folder}/lab.db").close()
os.setgid(65534); os.setuid(65534)
try:
    with Database(sys.argv[1]) as database:
        database.add(spec_of_number(1000))
except LabError as error:
    print(error)
"""


def test_a_file_that_may_only_be_read(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("to become another user takes root")
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    path = tmp_path / "lab.db"
    filled(path, 1)
    path.chmod(0o444)
    done = subprocess.run(
        [sys.executable, "-c", _READ_ONLY, f"sqlite:///{path}"],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "lab.db" in done.stdout and "hint" in done.stdout, done.stderr


def test_a_full_disk(small_disk: Callable[[str], Path]) -> None:
    """What was said to be queued is, and the database goes on when there is room again."""
    path = small_disk("1m") / "lab.db"
    queued = []
    with opened(path) as database:
        ballast = path.with_name("ballast")
        ballast.write_bytes(bytes(500_000))
        with pytest.raises(LabError, match="full") as caught:
            queued.extend(database.add(spec_of_number(n))[0].id for n in range(5_000))
        assert caught.value.hint
        ballast.unlink()
        assert database.add(spec_of_number(10_000))[1]
    with opened(path) as database:
        assert database.jobs().total == len(queued) + 1
        assert all(database.job(job_id) for job_id in queued)


def test_every_error_is_one_of_ours(tmp_path: Path) -> None:
    """A file that vanishes, as after an administrator's mistake, is no traceback."""
    path = tmp_path / "lab.db"
    filled(path, 2)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("drop table lab_artifacts")
        connection.execute("update lab_jobs set spec = '{\"version\": 7}'")
    connection.close()
    with opened(path) as database:
        for act in (database.jobs, database.queued, lambda: database.add(spec_of_number(1))):
            with pytest.raises(EtscopeError):
                act()
