"""`etscope info`: what a file is, and what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli._open import FILE
from etscope.cli._options import output_options
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
@output_options
def command(
    files: tuple[str, ...],
    limit: int | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> None:
    """Tell what each FILE is and what it holds: an ETDump, an ETRecord, a .pte or a .bpte.

    A file's kind is known by its content. --format json writes one document with all sections;
    csv, tsv, jsonl and parquet a flat table, a value a row.
    """
    from etscope.analysis.file_info import SCHEMA
    from etscope.cli._output import write_reports
    from etscope.model.report import Report

    found = [_report(file) for file in files]
    reports = [item for item in found if isinstance(item, Report)]
    errors = [item for item in found if not isinstance(item, Report)]
    if reports:
        write_reports(reports, SCHEMA, format, output, color, limit=limit, people_limit=_ROWS)
    for error in errors[:-1]:
        click.echo(f"error: {error}", err=True)
    if errors:
        raise errors[-1]


def _report(file: str) -> Report | EtscopeError:
    """What the file holds, or what is wrong with it: the others are told of all the same."""
    from etscope.analysis.file_info import file_info

    try:
        return file_info(file)
    except EtscopeError as error:
        return error
