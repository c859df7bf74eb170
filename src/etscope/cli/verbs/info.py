"""`etscope info`: show what a file is and what it holds."""

from __future__ import annotations

import click

from etscope.cli.options.common import FILE, POSITIVE, output_options
from etscope.cli.output.tables import OutputOptions
from etscope.errors import EtscopeError

_ROWS = 30


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option(
    "--limit",
    "-n",
    type=POSITIVE,
    metavar="N",
    help=f"Show at most N rows of each table. Default: {_ROWS} in a text, else all.",
)
@click.option(
    "--memory",
    is_flag=True,
    help="Show the memory plan of a .pte or .bpte: where and when each tensor is placed.",
)
@output_options
def command(files: tuple[str, ...], memory: bool, limit: int | None, output: OutputOptions) -> None:
    """Show what each FILE is and what it holds: an ETDump, an ETRecord, a .pte or a .bpte.

    The kind of a file is found from its content. --format json writes one document with all
    sections; csv, tsv, jsonl and parquet a flat table with one value in each row.
    """
    from etscope.analysis.info.file_info import SCHEMA, file_info
    from etscope.analysis.memory import memory_report
    from etscope.errors import UsageError
    from etscope.formats.identify import BPTE, PTE, identify
    from etscope.formats.program.bpte import read_program_file

    reports, errors = [], []
    for file in files:
        try:
            if not memory:
                reports.append(file_info(file))
                continue
            kind = identify(file)
            if kind not in (PTE, BPTE):
                raise UsageError(
                    f"{file} is not a program: the memory plan is in the .pte",
                    hint="--memory works on .pte and .bpte files",
                )
            program = read_program_file(file)[0]
            reports.append(memory_report(program, {"file": file, "kind": kind}))
        except EtscopeError as error:  # the other files are shown all the same
            errors.append(error)
    if reports:
        output.write_reports(reports, SCHEMA, limit=limit, text_limit=_ROWS)
    for other in errors[:-1]:
        click.echo(f"error: {other}", err=True)
    if errors:
        raise errors[-1]
