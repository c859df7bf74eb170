"""Leases of engines in place of those of each job and device, shares of projects, the time at which
a job's files were removed, and indexes of files and of the ends of jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "7", "6"


def upgrade() -> None:
    op.create_table(
        "lab_engines",
        sa.Column("engine", sa.String, primary_key=True),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "lab_shares",
        sa.Column("project", sa.String, primary_key=True),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    # No engine has a lease now: jobs at work are queued again, and devices are free.
    op.drop_column("lab_leases", "until")
    op.drop_column("lab_jobs", "lease_until")
    op.add_column("lab_jobs", sa.Column("files_removed_at", sa.DateTime(timezone=True)))
    op.create_index("lab_jobs_by_end", "lab_jobs", ["finished_at", "seq"])
    for table in ("lab_inputs", "lab_artifacts"):
        op.create_index(f"ix_{table}_sha256", table, ["sha256"])
    op.execute("update etscope_lab set version = 7")
