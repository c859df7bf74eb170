"""Projects of jobs and tokens, devices out of service, the audit log, and an index of texts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.exc import DBAPIError

revision, down_revision = "6", "5"

_Seq = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_COLUMNS = (("lab_jobs", "project"), ("lab_tokens", "project"), ("lab_devices", "disabled"))
_TEXTS_OF_SQLITE = (
    "CREATE VIRTUAL TABLE lab_seeks USING fts5"
    "(seeks, content='lab_jobs', content_rowid='seq', tokenize='trigram')",
    "CREATE TRIGGER lab_seeks_added AFTER INSERT ON lab_jobs BEGIN "
    "INSERT INTO lab_seeks (rowid, seeks) VALUES (new.seq, new.seeks); END",
    "CREATE TRIGGER lab_seeks_removed AFTER DELETE ON lab_jobs BEGIN "
    "INSERT INTO lab_seeks (lab_seeks, rowid, seeks) VALUES ('delete', old.seq, old.seeks); END",
    "INSERT INTO lab_seeks (lab_seeks) VALUES ('rebuild')",
)
_TEXTS_OF_POSTGRESQL = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    "CREATE INDEX lab_jobs_by_text ON lab_jobs USING gin (seeks gin_trgm_ops)",
)


def upgrade() -> None:
    for table, name in _COLUMNS:
        op.add_column(table, sa.Column(name, sa.String, nullable=False, server_default=""))
    op.drop_index("lab_jobs_queue", "lab_jobs")
    op.create_index(
        "lab_jobs_queue", "lab_jobs", ["state", "project", sa.text("priority DESC"), "seq"]
    )
    op.create_table(
        "lab_audit",
        sa.Column("seq", _Seq, primary_key=True, autoincrement=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("by", sa.String, nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    _index_texts(op.get_bind())
    op.execute("update etscope_lab set version = 6")


def _index_texts(connection: sa.Connection) -> None:
    is_sqlite = connection.dialect.name == "sqlite"
    try:
        with connection.begin_nested():
            for statement in _TEXTS_OF_SQLITE if is_sqlite else _TEXTS_OF_POSTGRESQL:
                connection.execute(sa.text(statement))
    except DBAPIError:
        if is_sqlite:
            raise  # without PostgreSQL's extension, searches read all jobs
