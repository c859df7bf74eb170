"""What tests of the lab share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from etscope_lab.database import Database, schema
from etscope_lab.lab import Lab
from etscope_lab.worker import subprocesses
from lab_support import postgresql
from tests.support.warm import SOURCES, warm_python
from tests.support.warm.fixtures import _warm_runs, real_python

__all__ = ["_warm_runs", "real_python"]


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


@pytest.fixture
def lab(made_sqlite: Path, tmp_path: Path) -> Iterator[Lab]:
    """An empty one, of this machine."""
    folder = tmp_path / "lab"
    folder.mkdir()
    shutil.copy(made_sqlite, folder / "lab.db")
    with Lab.open(folder) as opened:
        yield opened


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a real file system of a size."""
    with ExitStack() as stack:

        def mounted(size: str) -> Path:
            folder = tmp_path / "small"
            folder.mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
            if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
                pytest.skip("a small file system cannot be mounted here")
            stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
            return folder

        yield mounted


class _WarmSys:
    """What a module takes from `sys` to start a Python."""

    @property
    def executable(self) -> str:
        return warm_python()


@pytest.fixture(scope="module", autouse=True)
def _warm_children() -> Iterator[None]:
    """Jobs and pages are made in processes of their own, which do not import everything anew."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", os.pathsep.join(SOURCES))
        if find_spec("executorch") is not None:
            patched.setattr(subprocesses, "sys", _WarmSys())
        yield


@pytest.fixture
def real_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is the matter of the test."""
    monkeypatch.setattr(subprocesses, "sys", sys)


def _empty(url: str) -> None:
    import psycopg

    names = ", ".join(name for name in schema.metadata.tables if name != schema.version.name)
    with psycopg.connect(url) as connection:
        connection.execute(f"truncate {names} restart identity".encode())
