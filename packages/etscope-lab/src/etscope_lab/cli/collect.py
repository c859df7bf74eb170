"""`etscope lab collect`: collect any number of dumps into a dataset."""

from __future__ import annotations

import sys
from contextlib import ExitStack
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
from etscope.errors import UsageError
from etscope_lab.fleet import Source

if TYPE_CHECKING:
    from etscope.model.report import Report
    from etscope_lab.fleet import Collected

_FOLDER = click.Path(file_okay=False)
_FORMATS = ("table", "json", "jsonl", "csv", "tsv", "md")


_DETAILS = """\
DUMPS are files, folders (all ETDumps below), globs in quotes, @LIST (a file of names) and URLs
of fsspec (s3://…). Name a lab's folder with --lab. A run.json beside a dump, as etscope
run --save writes it, describes the run. Files of records of PyTorch's benchmark database (schema
v3) are recognised, too. A dump that the dataset already has, by its content, is skipped, so that
a collect can be repeated as dumps arrive.

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
    help="Collect the results of a lab's finished jobs: its folder, or the URL of its server.",
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
    from etscope_lab.fleet.lab_results import lab_results

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
            sources += stack.enter_context(lab_results(lab, dataset))
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
