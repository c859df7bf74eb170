"""A job on stdout: its state, its numbers, its slowest operators."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.errors import EtscopeError

if TYPE_CHECKING:
    from etscope.lab.client import Client
    from etscope.lab.jobs.records import Job
    from etscope.lab.jobs.spec import JobSpec
    from etscope.lab.lab import Lab
    from etscope.model.report import Report, Section

_OPERATORS = 5
# By the state that a job ended in: 4 is "nothing measured".
_EXIT_CODES = {"done": 0, "user_error": 3, "invalid": 4, "cancelled": 4}
_FINDING, _FAILED = 1, 5


def exit_code(job: Job) -> int:
    """Of a command that waited for the job."""
    from etscope.lab.jobs.job_tables import findings_of

    if job.state == "done" and findings_of(job):
        return _FINDING
    return _EXIT_CODES.get(job.state.value, _FAILED)


def write_job(
    lab: Lab | Client, job: Job, spec: JobSpec | None = None, format: str = "table"
) -> None:
    """Write a job to standard output: to programs ("json") as the API answers it, to people
    ("table") what it measured, with its slowest operators.

    spec: as it was submitted here, with the paths of its files, from which operators have their
    modules and lines.
    """
    if format == "json":
        from pydantic import TypeAdapter

        from etscope.lab.jobs.records import Job

        click.echo(TypeAdapter(Job).dump_json(job, indent=2))
        return
    from etscope.cli.output.output import write_reports
    from etscope.lab.jobs.job_tables import SCHEMA, environment_line, findings_of, job_report

    link = link_of(lab, job)
    report = job_report(job, link)
    if "run.etdp" in job.artifacts:
        report = _with_operators(report, lab, job, spec or job.spec)
    write_reports([report], SCHEMA, "table", None, "auto")
    line = environment_line(job)
    if line:
        click.echo(f"\nmeasured on {line}")
    for finding in findings_of(job):
        click.echo(f"finding: {finding}", err=True)
    if link is None:
        click.echo(f"its page is /jobs/{job.id} of etscope lab serve", err=True)


def link_of(lab: Lab | Client, job: Job) -> str | None:
    """The job's page at a server; None of a lab without one."""
    from etscope.lab.lab import Lab

    url = lab.home.server_url if isinstance(lab, Lab) else lab.url
    return None if url is None else f"{url.rstrip('/')}/jobs/{job.id}"


def _with_operators(report: Report, lab: Lab | Client, job: Job, spec: JobSpec) -> Report:
    """The report with the slowest operators after the latency. A dump that cannot be shown is told
    of, and is no error of the job."""
    try:
        found = _operators(lab, job, spec)
    except EtscopeError as error:
        click.echo(f"warning: no table of operators: {error.message}", err=True)
        return report
    position = next(
        (n + 1 for n, section in enumerate(report.sections) if section.name == "summary"),
        len(report.sections),
    )
    sections = (*report.sections[:position], found, *report.sections[position:])
    return replace(report, sections=sections)


def _operators(lab: Lab | Client, job: Job, spec: JobSpec) -> Section:
    from etscope.cli.options.files import open_trace
    from etscope.cli.output.output import select_columns
    from etscope.cli.output.profiles import default_columns, profile_tables
    from etscope.formats.identify import identify
    from etscope.model.report import Section

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        [dump] = lab.fetch(job.id, folder, ["run.etdp"])
        model = spec.model.path
        record = None if spec.etrecord is None else spec.etrecord.path
        if record is None and model is not None and identify(model) == "etrecord":
            model, record = None, model
        trace = open_trace(str(dump), record, program=None if record else model)
        tables = profile_tables(trace, method=job.spec.method, limit=_OPERATORS)
        [table, *_] = select_columns(tables, None, default_columns(None))
        return Section("operators", table)
