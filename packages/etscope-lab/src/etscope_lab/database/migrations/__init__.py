"""The tables of a lab's database are made, or brought from an earlier version by Alembic.

A migration is one transaction: the database is of the old version or of the new one, whatever
happens. Before it, a database in a file is copied. Another etscope that works on the database would
go on to write as it did before, so it has to be stopped first.

The revisions in `versions/` are named by their number. They do not import the tables of `schema`,
which change later. Each sets the number in `schema.version`, by which other versions of etscope
know the database; those before 6 have no Alembic.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import column, func, inspect, select, table, text
from sqlalchemy.engine import Connection

from etscope.errors import LabError, VersionError
from etscope_lab.database import jobs, schema
from etscope_lab.database.connection import now

_FIRST = 5  # the first revision: it begins at any version before it
_LOCK = 0x657473636F7065  # of PostgreSQL's advisory locks: "etscope"

_logger = logging.getLogger("etscope_lab")


def prepare(connection: Connection, _: bool) -> None:
    """Make the tables, or migrate tables of an earlier version.

    Raises `VersionError` for a database of a later etscope, and `LabError` for one with tables of
    these names that are not the lab's, one that an earlier etscope works on, and one that cannot be
    copied.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    if not inspect(connection).has_table(schema.version.name):
        others = set(inspect(connection).get_table_names()) & set(schema.metadata.tables)
        if others:
            raise LabError(
                f"the database has tables {', '.join(sorted(others))}, and they are not the lab's",
                hint="name another database in lab.yaml",
            )
        schema.metadata.create_all(connection, checkfirst=False)
        schema.index_texts(connection)
        connection.execute(schema.version.insert().values(version=schema.VERSION))
        connection.execute(schema.revision.insert().values(version_num=str(schema.VERSION)))
        return
    found = connection.execute(select(schema.version.c.version)).scalar()
    if isinstance(found, int) and 0 < found < schema.VERSION:
        _migrate(connection, found)
    elif found != schema.VERSION:
        later = isinstance(found, int) and found > schema.VERSION
        raise VersionError(
            f"the lab's database is of version {found}, and this etscope knows version "
            f"{schema.VERSION}",
            hint="install the etscope that the lab's server has (pip install -U 'etscope[lab]'), "
            "or name another database in lab.yaml"
            if later
            else "name another database in lab.yaml",
        )


def _migrate(connection: Connection, found: int) -> None:
    from alembic import command
    from alembic.config import Config

    leases = table("lab_leases", column("engine"), column("until", schema.Instant))
    at_work = select(leases.c.engine).where(leases.c.until > now(connection)).limit(1)
    if engine := connection.execute(at_work).scalar():
        raise LabError(
            f"the lab's database is of version {found}, and an etscope of that version works on it "
            f"({engine})",
            hint="stop that `etscope lab serve`, then try again; after a kill, wait 30 s",
        )
    copy = _back_up(connection, found)
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    if found >= _FIRST and not inspect(connection).has_table(schema.revision.name):
        command.stamp(config, str(found))
    command.upgrade(config, "head")
    if not connection.execute(select(func.count()).select_from(schema.results)).scalar():
        jobs.fill_history(connection)  # a revision that changes the results drops them
    connection.execute(text("analyze"))  # else old statistics keep it from using a new index
    _logger.warning(
        "migrated the lab's database from version %s to version %s%s",
        found, schema.VERSION, f"; {copy} is a copy of the old one" if copy else "",
    )  # fmt: skip


def _back_up(connection: Connection, found: int) -> Path | None:
    """Copy a database file in its state before this transaction; None for other databases."""
    file = connection.engine.url.database
    if connection.dialect.name != "sqlite" or file is None:
        return None
    copy, part = Path(f"{file}.version-{found}"), Path(f"{file}.version-{found}.part")
    try:
        part.unlink(missing_ok=True)
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
        shutil.copymode(file, part)
        part.replace(copy)
    except (OSError, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise LabError(
            f"the lab's database is of version {found}, and no copy of it can be written to "
            f"{copy}, so it was not changed: {error}",
            hint="make room, or allow this user to write to the folder",
        ) from error
    return copy
