"""Run the revisions in the transaction that `prepare` has begun; Alembic loads this file."""

from __future__ import annotations

from alembic import context

from etscope_lab.database import schema

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=schema.metadata,
    version_table=schema.revision.name,
)
context.run_migrations()
