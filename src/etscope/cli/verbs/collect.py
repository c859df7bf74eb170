"""`etscope collect`: any number of dumps into a dataset."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.files import FILE
from etscope.errors import EtscopeError, MissingDataError, MissingFileError
from etscope.fleet import Dataset, Source

if TYPE_CHECKING:
    from etscope.fleet import Collected
    from etscope.lab.jobs.records import Artifact, Job, LabApi
    from etscope.lab.lab import Lab
    from etscope.model.report import Report


# The dumps of a lab's finished jobs, for `etscope collect --lab`.


_DUMP, _CONDITIONS = "run.etdp", "conditions.json"
_PAGE = 200


@contextmanager
def lab_sources(lab: str, dataset: str) -> Iterator[list[Source]]:
    """The dumps of all done jobs of a lab: a home's folder, or the URL of a server.

    A home's are read where its store has them, with the record that was submitted. A server's are
    fetched into a temporary folder, those that are not in the dataset yet; it gives no records.
    Raises `MissingDataError` when no job has a dump.
    """
    from etscope.cli.lab.options import need_lab_packages

    need_lab_packages()
    with contextlib.ExitStack() as stack:
        if lab.startswith(("http://", "https://")):
            from etscope.lab.client import Client

            client = stack.enter_context(Client(lab))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etscope-lab-")))
            found = list(_fetched(client, folder, _known(dataset)))
        else:
            from etscope.lab.lab import Lab

            if not Path(lab).is_dir():  # which `Lab.open` would make
                raise MissingFileError(f"there is no lab at {lab}")
            found = list(_stored(stack.enter_context(Lab.open(lab))))
        if not found:
            raise MissingDataError(
                f"no job of {lab} has an ETDump", hint="jobs with traced_iterations leave one"
            )
        yield found


def _stored(lab: Lab) -> Iterator[Source]:
    for job in _jobs(lab):
        dump = job.artifacts[_DUMP]
        yield _source(lab, job, _place(lab, dump.sha256), dump, _record(lab, job))


def _fetched(lab: LabApi, folder: Path, known: set[str]) -> Iterator[Source]:
    """As sources; of those in the dataset already no byte is moved."""
    for job in _jobs(lab):
        dump = job.artifacts[_DUMP]
        target = folder / f"{dump.sha256}.etdp"
        if dump.sha256 not in known and not target.exists():
            with target.open("wb") as out:
                for piece in lab.read(job.id, _DUMP):
                    out.write(piece)
        yield _source(lab, job, str(target), dump, None)


def _jobs(lab: LabApi) -> Iterator[Job]:
    """The done jobs that have a dump, oldest page last."""
    from etscope.lab.jobs.records import Filter, State

    cursor: str | None = None
    while True:
        page = lab.jobs(Filter(states=(State.DONE,)), limit=_PAGE, cursor=cursor)
        yield from (job for job in page.jobs if _DUMP in job.artifacts)
        if page.next is None:
            return
        cursor = page.next


def _source(lab: LabApi, job: Job, url: str, dump: Artifact, etrecord: str | None) -> Source:
    environment = dict(job.environment)
    about: dict[str, Any] = {
        "job": job.id,
        "device": job.device,
        "model": job.spec.name or PurePath(job.spec.title).stem,
        "recorded_at": None if job.finished_at is None else job.finished_at.isoformat(),
        "labels": dict(job.spec.labels),
        "marks": list(job.marks),
        "calls": [{"warmup": job.spec.warmup}],
        "environment": {**environment, "conditions": _conditions(lab, job)},
    }
    for name in ("program_sha256", "runner", "executorch", "threads"):
        about[name] = environment.get(name)
    return Source(url, dump.size, None, about, etrecord, dump.sha256)


def _conditions(lab: LabApi, job: Job) -> Mapping[str, Any]:
    """What the device showed first and last; nothing when the job has not kept it."""
    if _CONDITIONS not in job.artifacts:
        return {}
    try:
        readings = json.loads(b"".join(lab.read(job.id, _CONDITIONS)))
    except (EtscopeError, ValueError):
        return {}
    seen = [reading for reading in readings if isinstance(reading, dict)]
    return {"before": seen[0], "after": seen[-1]} if seen else {}


def _record(lab: Lab, job: Job) -> str | None:
    """The ETRecord that was submitted, as the job's record or as its model."""
    from etscope.formats.identify import ETRECORD, identify

    files = [ref for ref in (job.spec.etrecord, job.spec.model) if ref is not None]
    for ref in files:
        if ref.sha256 is None or not lab.store.has(ref.sha256):
            continue
        place = _place(lab, ref.sha256)
        with contextlib.suppress(EtscopeError):
            if identify(place) == ETRECORD:
                return place
    return None


def _place(lab: Lab, sha256: str) -> str:
    """Where the store has a file: see the layout in `etscope.lab.store`."""
    return f"{os.fspath(lab.store.url).rstrip('/')}/sha256/{sha256[:2]}/{sha256}"


def _known(dataset: str) -> set[str]:
    try:
        return Dataset.open(dataset).dump_ids()
    except EtscopeError:
        return set()


_BAD, _NOTHING = 3, 4
_UNITS = ("ns", "us", "ms", "s")


@click.command(short_help="Take many dumps into a dataset for etscope sql.")
@click.argument("dumps", nargs=-1, metavar="DUMPS…", type=FILE)
@click.option(
    "--output",
    "-o",
    "dataset",
    required=True,
    metavar="DATASET",
    type=click.Path(file_okay=False),
    help="The dataset; made if it is not there.",
)
@click.option(
    "--files-from",
    metavar="FILE",
    type=FILE,
    help="Take the dumps that FILE names, one a line; - is standard input.",
)
@click.option(
    "--lab",
    metavar="HOME",
    help="Take the dumps of the finished jobs of a lab: its folder, or the URL of its server.",
)
@click.option("--etrecord", "-r", type=FILE, metavar="ETRECORD", help="The ETRecord of all dumps.")
@click.option(
    "--etrecord-dir",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Take for each dump the ETRecord below DIR that is of its program.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="A label of all these dumps; device=NAME and model=NAME name them. Repeatable.",
)
@click.option(
    "--source-unit",
    type=click.Choice(_UNITS),
    default="ns",
    show_default=True,
    help="Unit of the runtime's clock.",
)
@click.option("--strict", is_flag=True, help="Write nothing if a dump is bad.")
@click.option(
    "--workers",
    "-j",
    type=click.IntRange(min=1),
    metavar="N",
    help="Use N processes. Default: this one.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Use the workers of this Dask cluster; they need the same files.",
)
@click.option(
    "--progress",
    "tells",
    is_flag=True,
    help="Write a line for each batch to standard error, where no bar can be shown.",
)
@click.option(
    "--format",
    "-f",
    type=click.Choice(["table", "json", "jsonl", "csv", "tsv", "md"]),
    help="Form of the report. Default: table.",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour the report.",
)
def command(
    dumps: tuple[str, ...],
    dataset: str,
    files_from: str | None,
    lab: str | None,
    etrecord: str | None,
    etrecord_dir: str | None,
    labels: tuple[str, ...],
    source_unit: str,
    strict: bool,
    workers: int | None,
    scheduler: str | None,
    tells: bool,
    format: str | None,
    color: str,
) -> int:
    """Take ETDumps into a dataset of Parquet files, of which etscope sql asks questions.

    DUMPS are files, folders (all ETDumps below), globs in quotes, @LIST (a file of names) and URLs
    of fsspec (s3://…). A run.json beside a dump, as etscope run --save writes it, tells what ran
    where. A dump that the dataset has already, by its content, is not taken again, so that a
    collect may be repeated as dumps come in.

    Exit code 3 when a dump was bad; the others are taken all the same, unless --strict. 4 when
    nothing was taken and nothing was there before.
    """
    from etscope.cli.output.output import write_reports
    from etscope.errors import UsageError
    from etscope.fleet import collect
    from etscope.fleet.run_metadata import labels_of

    names = [*dumps, *_listed(files_from)]
    if not names and lab is None:
        raise UsageError("no dumps are named", hint="files, folders, globs, @LIST or --lab HOME")
    with ExitStack() as stack:
        found: list[str | Source] = list(names)
        if lab is not None:
            found += stack.enter_context(lab_sources(lab, dataset))
        progress = stack.enter_context(_progress(f"collecting into {dataset}", tells))
        done = collect(
            found,
            dataset,
            etrecord=etrecord,
            etrecord_dir=etrecord_dir,
            labels=labels_of(labels),
            source_unit=source_unit,
            strict=strict,
            workers=workers,
            scheduler=scheduler,
            progress=progress,
        )
    write_reports([_report(done)], "etscope.collect/1", format, None, color)
    for bad in done.bad:
        click.echo(f"bad: {bad.url}: {bad.error}", err=True)
    if done.bad and strict:
        click.echo("nothing was written, since --strict", err=True)
    if done.bad:
        return _BAD
    return 0 if done.taken or done.again else _NOTHING


def _listed(files_from: str | None) -> list[str]:
    if files_from is None:
        return []
    if files_from == "-":
        lines = sys.stdin.read().splitlines()
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return [f"@{files_from}"]


@contextmanager
def _progress(text: str, tells: bool) -> Iterator[Callable[[int, int | None], None]]:
    from etscope.cli.output.progress import counting

    def both(done: int, total: int | None) -> None:
        bar(done, total)
        if tells:
            click.echo(f"{text}: {done} of {total} dumps", err=True)

    with counting(text) as bar:
        yield both


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
        sections.append(
            rows(
                "bad",
                "Bad dumps",
                (Column("dump", Kind.PATH), Column("error"), Column("slug", priority=1)),
                [(bad.url, bad.error, bad.slug) for bad in done.bad],
            )
        )
    return Report({"dataset": str(done.dataset.folder)}, tuple(sections))
