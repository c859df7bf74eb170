"""A real PostgreSQL of its own on a Unix socket, for the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

_USER = "etscope"


@dataclass
class PostgreSql:
    """A server that runs. folder: of its data and its socket."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def url(self, database: str) -> str:
        """Of a database that is there, as SQLAlchemy takes it."""
        return f"postgresql://{_USER}@/{database}?host={self.folder}"

    def new(self) -> str:
        """The URL of a new, empty database."""
        name = f"lab{next(self._numbers)}"
        self.sql(f"create database {name}")
        return self.url(name)

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Carry out a statement with the server's own client; its answer."""
        command = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        where = ["-h", str(self.folder), "-U", _USER, "-d", database]
        return _run(*command, *where, "-c", statement).strip()

    def dump(self, url: str, *options: str) -> str:
        """What pg_dump writes of the database at a URL of `new`."""
        return _run("pg_dump", *options, f"postgresql://{url.partition('://')[2]}")

    def stop(self) -> None:
        """End it at once, as a crash would."""
        data = str(self.folder / "data")
        _run("pg_ctl", "-D", data, "-m", "immediate", "-w", "-t", "300", "stop")

    def start(self) -> None:
        # -F: no fsync; what is tested is that it comes back, not that the disk keeps its word.
        options = f"-k {self.folder} -h '' -F -c max_connections=100"
        data, log = str(self.folder / "data"), str(self.folder / "log")
        _run("pg_ctl", "-D", data, "-l", log, "-w", "-t", "300", "-o", options, "start")


def missing() -> str | None:
    """Why there is no server; None when there can be one."""
    return None if _programs() else "PostgreSQL's initdb is not installed"


@contextmanager
def serving() -> Iterator[PostgreSql]:
    """A server that lasts as long as the block. Its socket's path is short: it must be."""
    folder = Path(tempfile.mkdtemp(prefix="etscope-pg-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    server = PostgreSql(folder)
    try:
        options = ["-A", "trust", "-U", _USER, "--no-sync", "--locale=C", "--encoding=UTF8"]
        _run("initdb", "-D", str(folder / "data"), *options)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path | None:
    """The folder of the server's programs: Debian keeps them from the path."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


def _run(program: str, *arguments: str) -> str:
    folder = _programs()
    assert folder is not None, missing()
    command = [str(folder / program), *arguments]
    if os.geteuid() == 0:  # the server refuses to be root's
        command = ["runuser", "-u", "postgres", "--", *command]
    # A server keeps the pipes that it is started with: a file does not wait for its end.
    with tempfile.TemporaryFile() as said:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/", check=False
        )
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    assert ended.returncode == 0, f"{' '.join(command)}: {text}"
    return text
