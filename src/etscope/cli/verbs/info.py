"""`etscope info`: what a file is, and what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import output_options
from etscope.cli.options.files import FILE
from etscope.errors import EtscopeError

if TYPE_CHECKING:
    from etscope.model.report import Report

_ROWS = 30


@click.command(short_help="Tell what an ETDump, ETRecord, .pte or .bpte file holds.")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Show N rows of each table at most. Default: {_ROWS} for people, all for programs.",
)
@click.option(
    "--memory",
    is_flag=True,
    help="Show the memory plan of a .pte or .bpte: what lives where, when.",
)
@output_options
def command(
    files: tuple[str, ...],
    memory: bool,
    limit: int | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> None:
    """Tell what each FILE is and what it holds: an ETDump, an ETRecord, a .pte or a .bpte.

    A file's kind is known by its content. --format json writes one document with all sections;
    csv, tsv, jsonl and parquet a flat table, a value a row.
    """
    from etscope.analysis.info.file_info import SCHEMA
    from etscope.cli.output.output import write_reports
    from etscope.model.report import Report

    found = [_report(file, memory) for file in files]
    reports = [item for item in found if isinstance(item, Report)]
    errors = [item for item in found if not isinstance(item, Report)]
    if reports:
        write_reports(reports, SCHEMA, format, output, color, limit=limit, people_limit=_ROWS)
    for error in errors[:-1]:
        click.echo(f"error: {error}", err=True)
    if errors:
        raise errors[-1]


def _report(file: str, memory: bool) -> Report | EtscopeError:
    """What the file holds, or what is wrong with it: the others are told of all the same."""
    from etscope.analysis.info.file_info import file_info

    try:
        return _memory(file) if memory else file_info(file)
    except EtscopeError as error:
        return error


def _memory(file: str) -> Report:
    from etscope.analysis.memory import memory_report
    from etscope.errors import UsageError
    from etscope.formats.identify import BPTE, PTE, identify
    from etscope.formats.program.bpte import read_program_file

    kind = identify(file)
    if kind not in (PTE, BPTE):
        raise UsageError(
            f"{file} is no program: the plan of its memory is in the .pte",
            hint="--memory works on .pte and .bpte files",
        )
    return memory_report(read_program_file(file)[0], {"file": file, "kind": kind})
