"""`etscope lab list, status, log, fetch, cancel`: look at jobs and stop them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import POSITIVE, output_options, pairs_option
from etscope.cli.output.progress import progress, transfers
from etscope.cli.output.tables import OutputOptions
from etscope.errors import LabError, MissingDataError
from etscope.views import TABLE_VIEWS
from etscope_lab.cli.options import LabOptions, exit_code, in_lab, job_page

if TYPE_CHECKING:
    from etscope.model.table import Table
    from etscope_lab.client import Client
    from etscope_lab.jobs.records import Job
    from etscope_lab.lab import Lab

_STATES = (
    "queued", "claimed", "running", "done", "failed", "user_error", "timeout", "cancelled",
    "device_lost", "invalid",
)  # fmt: skip
_KINDS = ("benchmark", "generate", "accuracy", "ab")
_DEFAULT = ("id", "created", "state", "title", "device", "p50", "marks")
_PAGE = 500  # jobs of one request
_POLL_SECONDS = 0.5


@click.command()
@click.option(
    "--state", "states", type=click.Choice(_STATES), multiple=True,
    help="Jobs in this state. Repeatable: in any of them.",
)  # fmt: skip
@click.option("--device", metavar="NAME", help="Jobs that are or were on this device.")
@click.option("--kind", type=click.Choice(_KINDS), help="Jobs of this kind.")
@click.option(
    "--text", metavar="TEXT", help="Jobs with this text in their name, labels or model name."
)
@pairs_option("--label", "labels", help="Jobs with this label. Repeatable: with all of them.")
@click.option(
    "--since",
    type=click.DateTime(),
    metavar="TIME",
    help="Jobs submitted at this UTC time or later.",
)
@click.option(
    "--limit", "-n", type=POSITIVE, default=20, metavar="N",
    help="List at most N jobs.",
)  # fmt: skip
@in_lab
@partial(output_options, to_file=False, formats=(*TABLE_VIEWS, "v3"))
def list_jobs(
    states: tuple[str, ...],
    device: str | None,
    kind: str | None,
    text: str | None,
    labels: dict[str, str],
    since: datetime | None,
    limit: int,
    where: LabOptions,
    output: OutputOptions,
) -> None:
    """List the jobs of the lab, the newest first.

    --label sweep=NAME alone shows the board of a sweep: a row for each of its cells. --format v3
    writes records of PyTorch's benchmark database, with a FAILURE_REPORT for each failed job.

    Times are UTC; p50 is the median of the steady runs, of a generate job from token to token. Exit
    code 0, also for an empty list; 5: the lab cannot be reached.
    """
    with where.open() as lab:
        from etscope_lab.jobs.records import Filter, State

        if labels.keys() == {"sweep"} and not (states or device or kind or text or since):
            from etscope_lab.sweep import board, jobs_of

            name = labels["sweep"]
            _write(jobs := jobs_of(lab, name), lambda: board(name, jobs), output)
            return
        after = None if since is None else since.replace(tzinfo=timezone.utc)
        wanted = Filter(tuple(map(State, states)), device, kind, None, text, labels or None, after)
        page = lab.jobs(wanted, limit=min(limit, _PAGE))
        jobs = list(page.jobs)
        while page.next is not None and len(jobs) < limit:
            page = lab.jobs(wanted, limit=min(limit - len(jobs), _PAGE), cursor=page.next)
            jobs += page.jobs
    _write(jobs, lambda: _jobs_table(jobs, page.total), output, _DEFAULT)


def _write(
    jobs: Sequence[Job],
    table: Callable[[], Table],
    output: OutputOptions,
    columns: Sequence[str] | None = None,
) -> None:
    """Write jobs as a table, or as records of the benchmark database."""
    if output.format != "v3":
        output.write_tables([table()], None, columns)
        return
    import json

    from etscope_lab.jobs.job_tables import database_records

    click.echo(json.dumps([*database_records(jobs)], indent=2))


def _jobs_table(jobs: list[Job], total: int) -> Table:
    from etscope.model.table import Column, Kind, Table
    from etscope_lab.jobs.job_tables import findings_of

    latencies = [job.summary.get("latency") or {} for job in jobs]
    columns: dict[Column, Sequence[Any]] = {
        Column("id"): [job.id for job in jobs],
        Column("created", priority=4): [f"{job.created_at:%Y-%m-%d %H:%M:%S}" for job in jobs],
        Column("state"): [str(job.state) for job in jobs],
        Column("title", title="job"): [job.spec.title for job in jobs],
        Column("kind", priority=6): [job.spec.kind for job in jobs],
        Column("method", priority=6): [
            job.summary.get("method") or job.spec.method for job in jobs
        ],
        Column("backend", priority=6): [job.summary.get("backend") for job in jobs],
        Column("device"): [job.device for job in jobs],
        Column("attempt", Kind.COUNT, priority=6): [job.attempt for job in jobs],
        Column("p50", Kind.DURATION, "ms"): [latency.get("p50_ms") for latency in latencies],
        Column("p90", Kind.DURATION, "ms", priority=6): [one.get("p90_ms") for one in latencies],
        Column("marks", Kind.COUNT, priority=5): [len(job.marks) for job in jobs],
        Column("findings", Kind.COUNT, priority=6): [len(findings_of(job)) for job in jobs],
        Column("submitter", priority=6): [job.submitter for job in jobs],
        Column("labels", Kind.LIST, priority=6): [
            [f"{key}={value}" for key, value in sorted(job.spec.labels.items())] for job in jobs
        ],
        Column("error", priority=6): [job.error for job in jobs],
    }
    left = total - len(jobs)
    notes = (f"{left:,} more: --limit",) if left > 0 else ()
    return Table.of(columns, title="Jobs", notes=notes)


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("--wait", is_flag=True, help="Wait until the job has ended.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait at most this long."
)
@in_lab
@partial(output_options, to_file=False)
def status(
    job_id: str, wait: bool, timeout: float | None, where: LabOptions, output: OutputOptions
) -> int:
    """Show a job, by its id or the beginning of it.

    With --wait the exit code says how the job ended, as for etscope lab submit: 0 done; 1 done,
    with a finding; 3 user_error; 4 invalid or cancelled; 5 failed, timeout or device_lost, and when
    --timeout has passed. Without --wait it is 0. In both cases 4 if the job does not exist.
    """
    waits = wait or timeout is not None
    with where.open() as lab:
        from etscope.model.report import rows
        from etscope.model.table import Column, Kind
        from etscope_lab.jobs.job_tables import SCHEMA, job_report

        job = lab.job(job_id)
        if waits and not job.state.is_final:
            try:
                with progress(f"waiting for job {job.id}"):
                    job = lab.wait(job.id, timeout)
            except TimeoutError as error:
                hint = "it continues; etscope lab cancel stops it"
                raise LabError(str(error), hint=hint) from None
        report = job_report(job, job_page(lab, job))
        files = rows(
            "files",
            "files",
            (Column("name"), Column("size", Kind.BYTES), Column("sha256", priority=1)),
            [(one.name, one.size, one.sha256) for _, one in sorted(job.artifacts.items())],
        )
        steps = rows(
            "steps",
            "steps",
            (
                Column("at", title="at (UTC)"),
                Column("state"),
                Column("attempt", Kind.COUNT),
                Column("device"),
                Column("message"),
            ),
            [
                (f"{e.at:%Y-%m-%d %H:%M:%S}", str(e.state), e.attempt, e.device, e.message)
                for e in lab.events(job.id)
            ],
        )
    added = (files, steps) if job.artifacts else (steps,)
    output.write_reports([replace(report, sections=(*report.sections, *added))], SCHEMA)
    return exit_code(job) if waits else 0


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("--follow", is_flag=True, help="Continue until the job has ended.")
@in_lab
def log(job_id: str, follow: bool, where: LabOptions) -> None:
    """Print the output of a job's processes, so far if it is running.

    Exit code 4: no such job.
    """
    from etscope.views.tables.cells import visible

    with where.open() as lab:
        job_id = lab.job(job_id).id
        for text in _follow(lab, job_id) if follow else (lab.log(job_id),):
            # Control characters other than line ends are escaped: they could control a terminal.
            click.echo("\n".join(visible(line) for line in text.split("\n")), nl=False)


def _follow(lab: Lab | Client, job_id: str) -> Iterator[str]:
    done = 0
    while True:
        ended = lab.job(job_id).state.is_final  # asked before the log, which is then complete
        text = lab.log(job_id)
        yield text[done:]
        done = max(done, len(text))
        if ended:
            return
        time.sleep(_POLL_SECONDS)


@click.command()
@click.argument("job_id", metavar="JOB")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=None,
    metavar="FOLDER", help="Copy into this folder. Default: one with the job's id as its name.",
)  # fmt: skip
@in_lab
def fetch(job_id: str, names: tuple[str, ...], output: Path | None, where: LabOptions) -> None:
    """Copy files of a job, all or those with a NAME, and print the path of each. `etscope lab
    status` lists the names.

    Each file is checked against its SHA-256 and appears when it is complete. Exit code 4: there is
    no such job or file, or the job has none.
    """
    with transfers() as report_progress, where.open(progress=report_progress) as lab:
        job = lab.job(job_id)
        if not job.artifacts:
            raise MissingDataError(f"job {job.id} is {job.state} and has no files")
        for path in lab.fetch(job.id, output or Path(job.id), names):
            click.echo(path)


@click.command()
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB...")
@in_lab
def cancel(job_ids: tuple[str, ...], where: LabOptions) -> None:
    """Stop jobs: a queued job is cancelled at once, a running one is asked to stop.

    Prints id and state of each. Exit code 2: a job has ended already; 4: no such job. The jobs
    before it on the command line are stopped.
    """
    with where.open() as lab:
        for job_id in job_ids:
            job = lab.cancel(lab.job(job_id).id)
            word = "cancelling" if job.cancel_requested and not job.state.is_final else job.state
            click.echo(f"{job.id} {word}")
