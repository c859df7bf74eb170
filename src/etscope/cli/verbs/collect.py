"""`etscope collect`: any number of dumps into a dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from etscope.cli.options.files import FILE

if TYPE_CHECKING:
    from etscope.fleet import Collected, Source
    from etscope.model.report import Report

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
            from etscope.cli.lab.collect import lab_sources

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
    from etscope.cli.output.samples import counting

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
