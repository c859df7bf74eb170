"""`etscope lab list`: jobs, the newest first."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.lab.options import key_values, lab_options
from etscope.cli.options.common import output_options

if TYPE_CHECKING:
    from etscope.lab.jobs.records import Job
    from etscope.model.table import Table

_STATES = (
    "queued", "claimed", "running", "done", "failed", "user_error", "timeout", "cancelled",
    "device_lost", "invalid",
)  # fmt: skip
_KINDS = ("benchmark", "accuracy", "ab")
_DEFAULT = ("id", "created", "state", "title", "device", "p50", "marks")
_AT_ONCE = 500  # jobs of one question


@click.command(short_help="List jobs, the newest first.")
@click.option(
    "--state", "-s", "states", type=click.Choice(_STATES), multiple=True,
    help="Jobs in this state. Repeatable: in any of them.",
)  # fmt: skip
@click.option("--device", metavar="NAME", help="Jobs that are or were on this device.")
@click.option("--kind", type=click.Choice(_KINDS), help="Jobs of this kind.")
@click.option("--text", metavar="TEXT", help="In the name, the labels or the model's name.")
@click.option(
    "--label", "labels", metavar="KEY=VALUE", multiple=True, callback=key_values,
    help="Jobs with this label. Repeatable: with all of them.",
)  # fmt: skip
@click.option(
    "--since", type=click.DateTime(), metavar="TIME", help="Submitted at this time (UTC) or later."
)
@click.option(
    "--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, metavar="N",
    help="N jobs at most.",
)  # fmt: skip
@lab_options
@output_options
def command(
    states: tuple[str, ...],
    device: str | None,
    kind: str | None,
    text: str | None,
    labels: dict[str, str],
    since: datetime | None,
    limit: int,
    server: str | None,
    token: str | None,
    home: Path | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> None:
    """List the jobs of the lab, the newest first.

    Times are UTC; p50 is the median of the steady runs. Exit code 0, also for an empty list; 5: no
    lab there.
    """
    from etscope.cli.lab.options import open_lab
    from etscope.cli.output.output import write_tables

    with open_lab(server, token, home) as lab:
        from datetime import timezone

        from etscope.lab.jobs.records import Filter, State

        wanted = Filter(
            tuple(State(name) for name in states),
            device,
            kind,
            None,
            text,
            labels or None,
            None if since is None else since.replace(tzinfo=timezone.utc),
        )
        jobs, total = _jobs(lab, wanted, limit)
    write_tables([_table(jobs, total)], None, _DEFAULT, format, output, color)


def _jobs(lab: Any, wanted: Any, limit: int) -> tuple[list[Job], int]:
    jobs: list[Job] = []
    cursor = None
    while True:
        page = lab.jobs(wanted, limit=min(limit - len(jobs), _AT_ONCE), cursor=cursor)
        jobs.extend(page.jobs)
        cursor = page.next
        if cursor is None or len(jobs) >= limit:
            return jobs, page.total


def _table(jobs: list[Job], total: int) -> Table:
    from etscope.model.table import Column, Kind, Table

    columns = (
        Column("id"),
        Column("created", priority=4),
        Column("state"),
        Column("title", title="job"),
        Column("kind", priority=6),
        Column("method", priority=6),
        Column("backend", priority=6),
        Column("device"),
        Column("attempt", Kind.COUNT, priority=6),
        Column("p50", Kind.DURATION, "ms"),
        Column("p90", Kind.DURATION, "ms", priority=6),
        Column("marks", Kind.COUNT, priority=5),
        Column("submitter", priority=6),
        Column("labels", Kind.LIST, priority=6),
        Column("error", priority=6),
    )
    rows = [_row(job) for job in jobs]
    values = {column.name: [row[i] for row in rows] for i, column in enumerate(columns)}
    left = total - len(jobs)
    notes = (f"{left:,} more: --limit",) if left > 0 else ()
    return Table(columns, values, "Jobs", notes)


def _row(job: Job) -> tuple[Any, ...]:
    latency = job.summary.get("latency") or {}
    return (
        job.id,
        job.created_at.strftime("%Y-%m-%d %H:%M:%S"),
        str(job.state),
        job.spec.title,
        job.spec.kind,
        job.summary.get("method") or job.spec.method,
        job.summary.get("backend"),
        job.device,
        job.attempt,
        latency.get("p50_ms"),
        latency.get("p90_ms"),
        len(job.marks),
        job.submitter,
        [f"{key}={value}" for key, value in sorted(job.spec.labels.items())],
        job.error,
    )
