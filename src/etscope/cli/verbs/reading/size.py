"""`etscope size`: show what the bytes of files are."""

from __future__ import annotations

import click

from etscope.cli.options.common import (
    FILE,
    POSITIVE,
    etrecord_option,
    force_option,
    output_options,
    with_folders_opened,
)
from etscope.cli.options.kept import kept_runs
from etscope.cli.output.tables import OutputOptions
from etscope.cli.verb import verb

_ROWS = 30


@verb(
    {
        "Show": ("--by", "--limit"),
        "Output": ("--format", "--output"),
    }
)
@click.argument("files", nargs=-1, type=FILE, metavar="[FILE]...", callback=kept_runs(1))
@click.option(
    "--by",
    type=click.Choice(("kind", "module", "dtype", "owner")),
    help="Group the bytes. Default: kind; in a CSV, a row for each part.",
)
@click.option(
    "--limit",
    "-n",
    type=POSITIVE,
    metavar="N",
    help=f"Show at most N rows of each table. Default: {_ROWS} in a text, else all.",
)
@etrecord_option
@force_option
@output_options
def command(
    files: tuple[str, ...],
    by: str | None,
    limit: int | None,
    etrecord: str | None,
    force: bool,
    output: OutputOptions,
) -> None:
    """Show what takes the bytes of each FILE: a program, an ETRecord or an ETDump.

    \b
    etscope size model.pte
    etscope size model.pte model.etrecord --by module
    etscope size

    \f
    Each byte has one owner, and the sizes sum to the file. --etrecord tells the names, modules and
    lines of weights; that of another program is an error. A program and its .ptd, or a dump and its
    debug buffer, are given together. Tables of a program are split by content and by operator. The
    last table estimates what could be saved. Several files have a total. CSV, TSV, JSON lines and
    Parquet have one table: a row for each part of each file, or for each group of --by.
    """
    from etscope.analysis.size import SCHEMA, flat_sizes, size_files, size_reports
    from etscope.formats.etrecord.reader import read_etrecord

    record = None if etrecord is None else read_etrecord(etrecord)
    sized = size_files(with_folders_opened(files, buffers=True), record, force=force)
    if output.is_text or output.chosen_format == "json":
        reports = size_reports(sized, by or "kind")
        output.write_reports(reports, SCHEMA, limit=limit, text_limit=_ROWS)
    else:
        output.write_tables([flat_sizes(one, by, limit) for one in sized])
