"""Options that the lab's commands share, and a job's result as they print it."""

from __future__ import annotations

import functools
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from etscope.cli.options.common import Function, as_one_parameter, path_option
from etscope.cli.output.tables import OutputOptions, ViewOptions, select_columns
from etscope.errors import EtscopeError

if TYPE_CHECKING:
    from etscope.model.report import Report
    from etscope_lab.client import Client
    from etscope_lab.jobs.records import Job
    from etscope_lab.jobs.spec import JobSpec
    from etscope_lab.lab import Lab

SERVER_VARIABLE = "ETSCOPE_LAB_SERVER"
TOKEN_VARIABLE = "ETSCOPE_LAB_TOKEN"
_OPERATORS = 5
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}

_WHERE = "etscope.lab"  # key of click's context


def start_log(kind: Literal["text", "json"]) -> None:
    """Write the log to stderr, a line each: time (UTC), level, logger, job ("-" without one) and
    message; "json": as an object. Of other packages, only warnings."""
    fields = "%(asctime)s %(levelname)s %(name)s %(job)s %(message)s"
    formatter: logging.Formatter
    if kind == "json":
        from pythonjsonlogger.json import JsonFormatter

        names = {"asctime": "time", "levelname": "level", "name": "logger"}
        formatter = JsonFormatter(fields, rename_fields=names, defaults={"job": None})
    else:
        formatter = logging.Formatter(fields, defaults={"job": "-"})
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("etscope_lab").setLevel(logging.INFO)


@dataclass(frozen=True, slots=True)
class LabOptions:
    """Options of `etscope lab`: which lab its commands work with."""

    server: str | None
    token: str | None
    home: Path | None

    @property
    def url(self) -> str | None:
        """The URL of `--server` or $ETSCOPE_LAB_SERVER; `--home` takes precedence over the
        variable.
        """
        if self.server is None and self.home is None:
            return os.environ.get(SERVER_VARIABLE)
        return self.server

    @contextmanager
    def open(
        self,
        *,
        direct: bool = False,
        progress: Callable[[str, int, int], None] = lambda what, done, size: None,
    ) -> Iterator[Lab | Client]:
        """Open the lab of a server, named or serving the lab's folder; else the folder itself.

        direct: open the folder unless `--server` is given. progress: see `Client`.
        """
        url, token = self.server if direct else self.url, self.token
        if url is None:
            from etscope_lab.config import Home

            home = Home.open(self.home)
            url = None if direct else home.server_url
            if url is None:
                from etscope_lab.lab import Lab

                with Lab.open(home) as lab:
                    yield lab
                return
            if not token and not (token := os.environ.get(TOKEN_VARIABLE)):
                # Users who can read and write the folder need no token for the server of it.
                from etscope_lab.server.settings import key_of, local_secret

                token = local_secret(key_of(home.folder))
        from etscope_lab.client import Client

        with Client(url, token, progress=progress) as client:
            yield client


def lab_options(function: Function) -> Function:
    """Add the options of the group to its function, as the parameter `where`."""
    options = (
        click.option(
            "--server",
            metavar="URL",
            help=f"A lab's server. Default: ${SERVER_VARIABLE}, else the lab of this machine.",
        ),
        click.option(
            "--token",
            metavar="SECRET",
            help=f"Access token for the server. Default: ${TOKEN_VARIABLE}.",
        ),
        path_option(
            "--home",
            metavar="DIR",
            help="The lab's folder. Default: $ETSCOPE_LAB, or ~/.etscope/lab.",
        ),
    )

    def keep(**values: Any) -> LabOptions:
        found = LabOptions(**values)
        click.get_current_context().meta[_WHERE] = found
        return found

    return as_one_parameter(function, "where", keep, options)


def in_lab(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the options of the group to a command of it, as the parameter `where`."""

    @functools.wraps(function)
    def called(**values: Any) -> Any:
        return function(where=click.get_current_context().meta[_WHERE], **values)

    return called


def parse_span(text: str) -> timedelta | None:
    """Parse "12h", "90d" or "2w"; None for anything else."""
    found = re.fullmatch(r"(\d{1,5})([hdw])", text.strip())
    return None if found is None else timedelta(**{_UNITS[found[2]]: int(found[1])})


def exit_code(job: Job) -> int:
    """Return the exit code of a command that waited for the job."""
    from etscope_lab.jobs.job_tables import findings_of

    if job.state == "done":
        return 1 if findings_of(job) else 0
    # 3 is bad input, 4 "nothing measured", 5 the environment
    return {"user_error": 3, "invalid": 4, "cancelled": 4}.get(job.state.value, 5)


def write_job(
    lab: Lab | Client, job: Job, spec: JobSpec | None = None, format: str = "table"
) -> None:
    """Write a job: "json" as the API returns it, "table" its measurements and slowest operators.

    spec: as submitted here, with the paths of files that give operators their modules and lines.
    """
    if format == "json":
        from pydantic import TypeAdapter

        from etscope_lab.jobs.records import Job

        click.echo(TypeAdapter(Job).dump_json(job, indent=2))
        return
    from etscope_lab.jobs.job_tables import SCHEMA, environment_line, findings_of, job_report

    link = job_page(lab, job)
    report = job_report(job, link)
    if "run.etdp" in job.artifacts:
        try:
            report = _with_operators(report, lab, job, spec or job.spec)
        except EtscopeError as error:  # the job's result is shown all the same
            click.echo(f"warning: no table of operators: {error.message}", err=True)
    OutputOptions(format="table").write_reports([report], SCHEMA)
    if line := environment_line(job):
        click.echo(f"\nmeasured on {line}")
    for finding in findings_of(job):
        click.echo(f"finding: {finding}", err=True)
    if link is None:
        click.echo(f"the job's page is /jobs/{job.id} of etscope lab serve", err=True)


def job_page(lab: Lab | Client, job: Job) -> str | None:
    """Return the URL of the job's page; None for a lab without a server."""
    from etscope_lab.lab import Lab

    url = lab.home.server_url if isinstance(lab, Lab) else lab.url
    return None if url is None else f"{url.rstrip('/')}/jobs/{job.id}"


def _with_operators(report: Report, lab: Lab | Client, job: Job, spec: JobSpec) -> Report:
    """Add the slowest operators of the job's dump after the section "summary"; for a language
    model, the slowest of each phase."""
    from etscope.capture.files import RunFiles, run_of_files
    from etscope.formats.identify import identify
    from etscope.model.report import Section

    view = ViewOptions(limit=_OPERATORS, method=job.spec.method)
    with tempfile.TemporaryDirectory() as name:
        names = [file for file in ("run.etdp", "run.json") if file in job.artifacts]
        dump = lab.fetch(job.id, Path(name), names)[0]
        model = spec.model.path
        record = None if spec.etrecord is None else spec.etrecord.path
        if record is None and model is not None and identify(model) == "etrecord":
            model, record = None, model
        named = RunFiles.given(record=record, program=None if record else model)
        trace = run_of_files([dump], named).open()
        tables = view.tables(trace)
        shown = select_columns(tables, None, view.default_columns(tables))
        if job.spec.generation is None:
            shown = shown[:1]
        operators = [
            Section("operators" if number == 0 else f"operators_{number}", table)
            for number, table in enumerate(shown)
        ]
    sections = list(report.sections)
    names = [section.name for section in sections]
    place = names.index("summary") + 1 if "summary" in names else len(names)
    sections[place:place] = operators
    return replace(report, sections=tuple(sections))
