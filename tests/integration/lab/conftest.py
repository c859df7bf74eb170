"""What tests of the lab share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from etscope.lab.database import Database, schema
from tests.support import postgresql


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[postgresql.PostgreSql]:
    """A PostgreSQL for the whole run; who stops it starts it again."""
    why = postgresql.missing()
    if why:
        pytest.skip(why)
    with postgresql.serving() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a new database without tables, in turn of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'lab.db'}"
    server: postgresql.PostgreSql = request.getfixturevalue("postgresql_server")
    return server.new()


@pytest.fixture(scope="session")
def made_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "lab.db"
    Database(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def made_postgresql(postgresql_server: postgresql.PostgreSql) -> str:
    url = postgresql_server.new()
    Database(url).close()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty one. To make the tables each time would take most of the tests' time."""
    if request.param == "sqlite":
        path = shutil.copy(request.getfixturevalue("made_sqlite"), tmp_path / "lab.db")
        url = f"sqlite:///{path}"
    else:
        url = request.getfixturevalue("made_postgresql")
        _empty(url)
    with Database(url) as opened:
        yield opened


def _empty(url: str) -> None:
    import psycopg

    names = ", ".join(name for name in schema.metadata.tables if name != schema.version.name)
    with psycopg.connect(url) as connection:
        connection.execute(f"truncate {names} restart identity".encode())
