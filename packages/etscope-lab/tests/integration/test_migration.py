"""A lab's database of an earlier version is brought to the present one, or left as it is."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, select
from sqlalchemy.engine import make_url

from etscope.errors import LabError, VersionError
from etscope_lab.database import Database, schema
from etscope_lab.jobs.records import Filter, State
from lab_support.jobs import run_through, spec_of_number

# Written by the code of that version: lab_support/old_database.py.
CORPUS = Path(__file__).parents[1] / "corpus"
OLD = {number: CORPUS / f"version-{number}.sql" for number in range(1, schema.VERSION)}


@pytest.fixture(scope="session", params=sorted(OLD))
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture(scope="session")
def old_sqlite(version: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("old") / "lab.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD[version].read_text())
        connection.execute("update lab_leases set until = '2026-01-01 00:00:00.000000'")
        connection.commit()
    return path


@pytest.fixture
def old(version: int, old_sqlite: Path, database_url: str, tmp_path: Path) -> str:
    """The URL of a database of an earlier version, in turn of each kind."""
    if database_url.startswith("sqlite"):
        shutil.copy(old_sqlite, tmp_path / "lab.db")
        return database_url
    with psycopg.connect(database_url) as connection:
        connection.execute((CORPUS / f"version-{version}.postgresql.sql").read_bytes())
        connection.execute("update lab_leases set until = '2026-01-01 00:00:00Z'")
    return database_url


def _is_described(name: str | None, kind: str, parents: object) -> bool:
    """False for the index of texts, which each kind of database has in its own form."""
    return name is None or not name.startswith(("lab_seeks", "lab_jobs_by_text"))


def test_the_tables_are_those_of_a_new_database(old: str) -> None:
    Database(old).close()
    url = make_url(old.replace("postgresql:", "postgresql+psycopg:"))
    engine = create_engine(url)
    with engine.connect() as connection:
        known = {"version_table": schema.revision.name, "include_name": _is_described}
        context = MigrationContext.configure(connection, opts=known)
        assert context.get_current_revision() == str(schema.VERSION)
        assert compare_metadata(context, schema.metadata) == []
        assert connection.execute(select(schema.version)).scalar() == schema.VERSION
    engine.dispose()


def test_unlike_jobs_are_in_different_series_after_a_migration(old: str) -> None:
    with Database(old) as database:
        found = sorted(database.history(), key=lambda one: [*map(str, one.key.values())])
        assert [
            (one.runner, one.threads, one.inputs, one.points[-1].software, len(one.points))
            for one in found
        ] == [
            ("native", 1, "seed 0", "ExecuTorch 1.6.0, etscope 0.1.0", 8),
            ("native", 1, f"sha256:{'ab' * 32}", "ExecuTorch 1.5.1, etscope 0.1.0", 1),
            ("native", 2, "seed 3", "", 1),
            ("native", 4, "seed 0", "ExecuTorch 1.5.1, etscope 0.1.0", 1),
            ("python", 1, "seed 0", "ExecuTorch 1.5.1, etscope 0.1.0", 1),
        ]
        points = found[0].points[:7]
        assert [point.p50_ms for point in points] == [10 + n / 100 for n in range(7)]
        assert [point.labels["commit"] for point in points] == [f"c{n}" for n in range(7)]
        assert [one.points[0].marked for one in found] == [False] * 4 + [True]
        # All else is there, and jobs go on.
        everything = database.jobs(limit=100)
        assert everything.total == 16
        assert len(database.jobs(Filter(states=(State.DONE,)), limit=100).jobs) == 13
        assert database.tokens()[0].name == "ci" and database.devices()[0].config.name == "host"
        [waiting] = database.queued()
        assert waiting.spec.priority == 3
        new = run_through(database, spec_of_number(99, model_name="net.pte"), 1.0)
        assert new.id not in {job.id for job in everything.jobs}
        assert len(database.history()) == 6
        assert {series.metric for series in database.history()} == {"execution"}
    with Database(old) as again:  # nothing is left to do
        assert len(again.history()) == 6


def test_the_old_database_is_kept_beside_the_new_one(
    version: int, old_sqlite: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(old_sqlite, tmp_path / "lab.db"))
    path.chmod(0o600)
    Database(f"sqlite:///{path}").close()
    copy = tmp_path / f"lab.db.version-{version}"
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as kept:
        assert kept.execute("select version from etscope_lab").fetchall() == [(version,)]
        assert kept.execute("select count(*) from lab_results").fetchone() == (12,)
    assert not list(tmp_path.glob("*.part"))


def test_a_database_that_an_earlier_etscope_works_on_is_left_alone(
    version: int, old_sqlite: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(old_sqlite, tmp_path / "lab.db"))
    later = datetime.now(timezone.utc).replace(tzinfo=None) + timedelta(minutes=5)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("update lab_leases set until = ?", [later.isoformat(" ")])
        connection.commit()
    with pytest.raises(LabError, match=r"an etscope of that version works on it \(engine\)"):
        Database(f"sqlite:///{path}")
    check_old(path, version)
    assert not (tmp_path / f"lab.db.version-{version}").exists()


def test_a_migration_that_fails_changes_nothing(
    version: int, old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:  # at the last step
        raise VersionError("a job of another world")

    with monkeypatch.context() as patched:
        patched.setattr("etscope_lab.database.migrations._logger.warning", fail)
        with pytest.raises(VersionError):
            Database(old)
    if old.startswith("sqlite"):
        check_old(tmp_path / "lab.db", version)
    with Database(old) as database:
        assert len(database.history()) == 5


def test_without_a_copy_nothing_is_changed(
    version: int, old_sqlite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(old_sqlite, tmp_path / "lab.db"))
    (tmp_path / f"lab.db.version-{version}").mkdir()
    with pytest.raises(LabError, match=r"no copy of it can be written .* so it was not changed"):
        Database(f"sqlite:///{path}")
    check_old(path, version)


def check_old(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select version from etscope_lab").fetchall() == [(version,)]
        assert connection.execute("select count(*) from lab_results").fetchone() == (12,)
