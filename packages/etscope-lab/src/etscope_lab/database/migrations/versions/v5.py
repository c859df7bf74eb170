"""From the versions 1 to 4: calibrations of devices, alarms, and results by all that series have.

1 to 2: results know the runner, the threads, the inputs and the software of their jobs; 2 to 3: a
job may have several, each of a metric. 3 to 4: devices have calibrations. 4 to 5: series go on when
the software changes, and have alarms.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision, down_revision = "5", None

_Id = sa.String(32).with_variant(sa.String(32, collation="C"), "postgresql")
_Seq = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _column(name: str, kind: Any = sa.String) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def upgrade() -> None:
    op.drop_table("lab_results")
    op.create_table(
        "lab_results",
        sa.Column("job", _Seq, sa.ForeignKey("lab_jobs.seq", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        _column("job_id", _Id),
        _column("at_us", sa.BigInteger),
        *map(_column, ("model", "method", "device", "backend", "runner")),
        sa.Column("threads", sa.Integer),
        _column("inputs"),
        _column("metric", sa.String(32)),
        _column("software"),
        _column("model_sha256", sa.String(64)),
        *(_column(name, sa.Float) for name in ("p50_ms", "p90_ms", "load_ms", "first_ms")),
        _column("marked", sa.Boolean),
        _column("labels", sa.Text),
    )
    series = ("model", "method", "device", "backend", "runner", "threads", "inputs", "metric")
    op.create_index("lab_results_series", "lab_results", [*series, sa.text("job DESC")])
    op.create_index("lab_results_device", "lab_results", ["device"])
    op.create_index("lab_results_time", "lab_results", ["at_us"])
    if not sa.inspect(op.get_bind()).has_table("lab_calibrations"):
        op.create_table(
            "lab_calibrations",
            sa.Column("device", sa.String, primary_key=True),
            sa.Column("runner", sa.String, primary_key=True),
            _column("description", sa.Text),
            _column("threads", sa.Text),
            _column("at", sa.DateTime(timezone=True)),
            _column("content", sa.Text),
            _column("summary", sa.Text),
            _column("error"),
        )
    op.create_table(
        "lab_alarms",
        sa.Column("id", _Id, primary_key=True),
        _column("state", sa.String(16)),
        _column("series_key", sa.String(64)),
        _column("series", sa.Text),
        *(_column(name, _Id) for name in ("before", "job", "newest")),
        _column("relative", sa.Float),
        _column("expected_ms", sa.Float),
        sa.Column("ab_job", _Id),
        _column("verdict", sa.String(32)),
        _column("reason"),
        _column("found", sa.Text),
        _column("by"),
        _column("told", sa.Text),
        _column("opened_at", sa.DateTime(timezone=True)),
        _column("changed_at", sa.DateTime(timezone=True)),
    )
    op.create_index("lab_alarms_of_series", "lab_alarms", ["series_key", "newest"], unique=True)
    op.create_index("lab_alarms_by_state", "lab_alarms", ["state", "opened_at"])
    op.execute("update etscope_lab set version = 5")
