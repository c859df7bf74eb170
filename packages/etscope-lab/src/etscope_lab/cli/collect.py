"""`etscope lab collect`: collect any number of dumps into a dataset."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    CLOCKS,
    FILE,
    POSITIVE,
    choice_option,
    output_options,
    pairs_option,
)
from etscope.cli.output.tables import OutputOptions
from etscope.cli.verb import verb
from etscope.errors import EtscopeError, MissingDataError, MissingFileError, UsageError
from etscope_lab.fleet import Dataset, Source

if TYPE_CHECKING:
    from etscope.model.report import Report
    from etscope_lab.fleet import Collected
    from etscope_lab.jobs.records import Artifact, Job, LabApi
    from etscope_lab.lab import Lab

_FOLDER = click.Path(file_okay=False)
_FORMATS = ("table", "json", "jsonl", "csv", "tsv", "md")
_DUMP, _RUN, _CONDITIONS = "run.etdp", "run.json", "conditions.json"
_PAGE = 200


_DETAILS = """\
DUMPS are files, folders (all ETDumps below), globs in quotes, @LIST (a file of names) and URLs
of fsspec (s3://…). Name a lab's folder with --lab. A run.json beside a dump, as etscope
run --save writes it, describes the run. A dump that the dataset already has, by its content, is
skipped, so that a collect can be repeated as dumps arrive.

Exit code 3 when a dump was bad; the others are collected unless --strict is given. 4 when
nothing was collected and the dataset had none of the dumps.
"""


@verb(
    {
        "Files": ("--output", "--files-from", "--lab", "--label"),
        "Work": ("--workers", "--strict"),
        "Output": ("--format",),
    },
    details=_DETAILS,
)
@click.argument("dumps", nargs=-1, metavar="DUMPS…", type=FILE)
@click.option(
    "--output",
    "-o",
    "dataset",
    required=True,
    metavar="DATASET",
    type=_FOLDER,
    help="Folder of the dataset; created if it is missing.",
)
@click.option(
    "--files-from",
    metavar="FILE",
    type=FILE,
    help="Collect the dumps listed in FILE, one a line; - is standard input.",
)
@click.option(
    "--lab",
    metavar="HOME",
    help="Collect the dumps of a lab's finished jobs: its folder, or the URL of its server.",
)
@click.option(
    "--etrecord",
    "-r",
    type=FILE,
    metavar="ETRECORD",
    hidden=True,
    help="The ETRecord of all dumps.",
)
@click.option(
    "--etrecord-dir",
    type=_FOLDER,
    metavar="DIR",
    help="Find the ETRecord of each dump's program below DIR.",
)
@pairs_option(
    "--label",
    "labels",
    help="Label all these dumps; device=NAME and model=NAME name them. Repeatable.",
)
@choice_option("--source-unit", CLOCKS, "Unit of the runtime's clock.", hidden=True)
@click.option("--strict", is_flag=True, help="Write nothing if a dump is bad.")
@click.option(
    "--workers", "-j", type=POSITIVE, metavar="N", help="Use N processes. Default: only this one."
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Use the workers of this Dask cluster; they need access to the same files.",
)
@click.option(
    "--progress",
    "in_lines",
    is_flag=True,
    help="Write a line for each batch to standard error, for logs without a progress bar.",
)
@lambda function: output_options(function, formats=_FORMATS, to_file=False)
def command(
    dumps: tuple[str, ...],
    dataset: str,
    files_from: str | None,
    lab: str | None,
    in_lines: bool,
    labels: dict[str, str],
    output: OutputOptions,
    **options: Any,
) -> int:
    """Collect many dumps into a dataset for etscope lab sql.

    \b
    etscope lab collect dumps/ -o fleet
    etscope lab collect --lab URL -o fleet
    etscope lab collect --files-from list.txt -o fleet --workers 4
    """
    from etscope.cli.output.progress import counting
    from etscope_lab.fleet import collect

    sources: list[str | Source] = list(dumps)
    if files_from == "-":
        lines = sys.stdin.read().splitlines()
        sources += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    elif files_from is not None:
        sources.append(f"@{files_from}")
    if not sources and lab is None:
        raise UsageError(
            "no dumps are named", hint="name files, folders, globs, @LIST or --lab HOME"
        )
    text = f"collecting into {dataset}"
    with ExitStack() as stack:
        if lab is not None:
            sources += stack.enter_context(lab_sources(lab, dataset))
        bar = stack.enter_context(counting(text))

        def progress(done: int, total: int | None) -> None:
            bar(done, total)
            if in_lines:
                click.echo(f"{text}: {done} of {total} dumps", err=True)

        done = collect(sources, dataset, labels=labels, progress=progress, **options)
    output.write_reports([_report(done)], "etscope.collect/1")
    for bad in done.bad:
        click.echo(f"bad: {bad.url}: {bad.error}", err=True)
    if done.bad and options["strict"]:
        click.echo("nothing was written because of --strict", err=True)
    if done.bad:
        return 3
    return 0 if done.taken or done.again else 4


def _report(done: Collected) -> Report:
    from etscope.model.report import Report, facts, rows
    from etscope.model.table import Column, Kind

    sections = [
        facts(
            "collected",
            str(done.dataset.folder),
            (
                (Column("found", Kind.COUNT, title="dumps found"), done.found),
                (Column("taken", Kind.COUNT), done.taken),
                (Column("again", Kind.COUNT, title="there already"), done.again),
                (Column("bad", Kind.COUNT), len(done.bad)),
                (Column("without_record", Kind.COUNT), done.without_record),
                (Column("events", Kind.COUNT), done.events),
                (Column("bytes", Kind.BYTES, title="size of the dumps"), done.bytes),
                (Column("seconds", Kind.DURATION, "s", title="time"), done.seconds),
            ),
        )
    ]
    if done.bad:
        columns = (Column("dump", Kind.PATH), Column("error"), Column("slug", priority=1))
        content = [(bad.url, bad.error, bad.slug) for bad in done.bad]
        sections.append(rows("bad", "Bad dumps", columns, content))
    return Report({"dataset": str(done.dataset.folder)}, tuple(sections))


@contextlib.contextmanager
def lab_sources(lab: str, dataset: str) -> Iterator[list[Source]]:
    """The dumps of all done jobs of a lab: a lab's folder, or the URL of a server.

    A folder's dumps are read from its store, with the ETRecord that was submitted. A server's are
    fetched into a temporary folder, except dumps that the dataset has already; a server
    gives no ETRecords. Raises `MissingDataError` when no job has a dump.
    """
    with ExitStack() as stack:
        if lab.startswith(("http://", "https://")):
            from etscope_lab.client import Client

            client = stack.enter_context(Client(lab))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etscope-lab-")))
            known: set[str] = set()
            with contextlib.suppress(EtscopeError):  # the dataset does not exist yet
                known = Dataset.open(dataset).dump_ids()
            found = list(_server_sources(client, folder, known))
        else:
            from etscope_lab.lab import Lab

            if not Path(lab).is_dir():  # `Lab.open` would create it
                raise MissingFileError(f"{lab} is not a lab's folder")
            found = list(_folder_sources(stack.enter_context(Lab.open(lab))))
        if not found:
            raise MissingDataError(
                f"no job of {lab} has an ETDump", hint="jobs with traced_iterations leave one"
            )
        yield found


def _folder_sources(lab: Lab) -> Iterator[Source]:
    from etscope.formats.identify import ETRECORD, identify

    def path_in_store(sha256: str) -> str:  # see the layout in `etscope_lab.store`
        return f"{os.fspath(lab.store.url).rstrip('/')}/sha256/{sha256[:2]}/{sha256}"

    standings = _standings(lab)
    for job in _jobs_with_dumps(lab):
        record = None
        for submitted in (job.spec.etrecord, job.spec.model):  # the model may be an ETRecord
            sha256 = None if submitted is None else submitted.sha256
            if record is None and sha256 is not None and lab.store.has(sha256):
                with contextlib.suppress(EtscopeError):
                    if identify(path_in_store(sha256)) == ETRECORD:
                        record = path_in_store(sha256)
        for number, dump in _dumps_of(job):
            facts = _facts(lab, job, number, standings)
            yield _source(job, number, path_in_store(dump.sha256), facts, record)


def _server_sources(lab: LabApi, folder: Path, known: set[str]) -> Iterator[Source]:
    standings = _standings(lab)
    for job in _jobs_with_dumps(lab):
        for number, dump in _dumps_of(job):
            target = folder / f"{dump.sha256}.etdp"
            if dump.sha256 not in known and not target.exists():
                with target.open("wb") as out:
                    for piece in lab.read(job.id, dump.name):
                        out.write(piece)
            yield _source(job, number, str(target), _facts(lab, job, number, standings))


def _jobs_with_dumps(lab: LabApi) -> Iterator[Job]:
    from etscope_lab.jobs.records import Filter, State

    cursor: str | None = None
    while True:
        page = lab.jobs(Filter(states=(State.DONE,)), limit=_PAGE, cursor=cursor)
        yield from (job for job in page.jobs if _DUMP in job.artifacts)
        if page.next is None:
            return
        cursor = page.next


def _dumps_of(job: Job) -> Iterator[tuple[int, Artifact]]:
    """The dumps of a job: one, or one for each prompt of a generate job, with its number."""
    from etscope_lab.jobs.generations import prompt_file

    number = 0
    while (found := job.artifacts.get(prompt_file(number, _DUMP))) is not None:
        yield number, found
        number += 1


def _read_json(lab: LabApi, job: Job, name: str) -> Any:
    """A JSON file of a job; None if there is none, or it is damaged."""
    if name in job.artifacts:
        with contextlib.suppress(EtscopeError, ValueError):
            return json.loads(b"".join(lab.read(job.id, name)))
    return None


def _standings(lab: LabApi) -> dict[str, str]:
    """The verdict of the lab's history on each job that has one."""
    every = lab.history()
    return {point.job_id: point.standing.value for one in every for point in one.points}


def _facts(lab: LabApi, job: Job, number: int, standings: Mapping[str, str]) -> dict[str, Any]:
    """The content of a run.json for a dump of a job. number: of its prompt."""
    from etscope_lab.jobs.generations import prompt_file

    readings = _read_json(lab, job, _CONDITIONS) or []
    readings = [reading for reading in readings if isinstance(reading, dict)]
    conditions = {"before": readings[0], "after": readings[-1]} if readings else {}
    environment = dict(job.environment)
    run = _read_json(lab, job, prompt_file(number, _RUN))
    kept = run if isinstance(run, dict) else {}
    return {
        **{key: kept.get(key) for key in ("latencies", "memory", "conditions", "generation")},
        "job": job.id,
        "device": job.device,
        "model": job.spec.name or PurePath(job.spec.title).stem,
        "recorded_at": None if job.finished_at is None else job.finished_at.isoformat(),
        "labels": dict(job.spec.labels),
        "marks": list(job.marks),
        "calls": [{"warmup": job.spec.warmup}] if job.spec.generation is None else [],
        "environment": {**environment, "conditions": conditions},
        "standing": standings.get(job.id),
        "energy": job.summary.get("energy"),
        **{n: environment.get(n) for n in ("program_sha256", "runner", "executorch", "threads")},
    }


def _source(
    job: Job, number: int, url: str, facts: Mapping[str, Any], etrecord: str | None = None
) -> Source:
    """A dump of a job. number: of its prompt. facts: as in its run.json."""
    from etscope_lab.jobs.generations import prompt_file

    dump = job.artifacts[prompt_file(number, _DUMP)]
    return Source(url, dump.size, None, facts, etrecord, dump.sha256)
