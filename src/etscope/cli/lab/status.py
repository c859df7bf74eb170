"""`etscope lab status`: a job, its result and its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.lab.options import lab_options
from etscope.cli.options.common import output_options

if TYPE_CHECKING:
    from etscope.lab.client import Client
    from etscope.lab.jobs.records import Job, JobEvent
    from etscope.lab.lab import Lab
    from etscope.model.report import Section


@click.command(short_help="Show a job: its state, steps and result.")
@click.argument("job_id", metavar="JOB")
@click.option("--wait", is_flag=True, help="Until it has ended.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait so long at most."
)
@lab_options
@output_options
def command(
    job_id: str,
    wait: bool,
    timeout: float | None,
    server: str | None,
    token: str | None,
    home: Path | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> int:
    """Show a job, by its id or the beginning of it.

    With --wait the exit code tells how it ended, as etscope lab submit's does: 0 done; 1 done, with
    a finding; 3 user_error; 4 invalid or cancelled; 5 failed, timeout or device_lost, and when
    --timeout is over. Without, it is 0. Either way 4 when there is no such job.
    """
    from etscope.cli.lab.options import open_lab
    from etscope.cli.lab.result import exit_code, link_of
    from etscope.cli.output.output import write_reports

    waits = wait or timeout is not None
    with open_lab(server, token, home) as lab:
        from etscope.lab.jobs.job_tables import SCHEMA, job_report

        job = lab.job(job_id)
        if waits and not job.state.is_final:
            job = _ended(lab, job, timeout)
        report = job_report(job, link_of(lab, job))
        steps = _steps(lab.events(job.id))
        report = replace(report, sections=(*report.sections, *_files(job), steps))
    write_reports([report], SCHEMA, format, output, color)
    return exit_code(job) if waits else 0


def _ended(lab: Lab | Client, job: Job, timeout: float | None) -> Job:
    from etscope.cli.output.progress import progress
    from etscope.errors import LabError

    try:
        with progress(f"waiting for job {job.id}"):
            return lab.wait(job.id, timeout)
    except TimeoutError as error:
        raise LabError(str(error), hint="it goes on; etscope lab cancel stops it") from None


def _steps(events: Sequence[JobEvent]) -> Section:
    from etscope.model.report import rows
    from etscope.model.table import Column, Kind

    columns = (
        Column("at", title="at (UTC)"),
        Column("state"),
        Column("attempt", Kind.COUNT),
        Column("device"),
        Column("message"),
    )
    content = (
        (f"{one.at:%Y-%m-%d %H:%M:%S}", str(one.state), one.attempt, one.device, one.message)
        for one in events
    )
    return rows("steps", "steps", columns, content)


def _files(job: Job) -> list[Section]:
    from etscope.model.report import rows
    from etscope.model.table import Column, Kind

    if not job.artifacts:
        return []
    columns = (Column("name"), Column("size", Kind.BYTES), Column("sha256", priority=1))
    content = ((one.name, one.size, one.sha256) for _, one in sorted(job.artifacts.items()))
    return [rows("files", "files", columns, content)]
