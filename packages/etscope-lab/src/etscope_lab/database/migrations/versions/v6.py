"""Projects of jobs and tokens, devices out of service, and the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "6", "5"

_Seq = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_COLUMNS = (("lab_jobs", "project"), ("lab_tokens", "project"), ("lab_devices", "disabled"))


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
    op.execute("update etscope_lab set version = 6")
