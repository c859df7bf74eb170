"""`etscope info`: show what a file is and what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import FILE, POSITIVE, etrecord_option, force_option, output_options
from etscope.cli.output.tables import OutputOptions
from etscope.errors import EtscopeError

if TYPE_CHECKING:
    from etscope.formats.etrecord.reader import RecordFile
    from etscope.model.report import Report

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
    help="Show the memory plan of a .pte or .bpte: where and when each tensor is placed. Of a run "
    "saved with --memory: who took its memory.",
)
@etrecord_option
@force_option
@output_options
def command(
    files: tuple[str, ...],
    memory: bool,
    limit: int | None,
    etrecord: str | None,
    force: bool,
    output: OutputOptions,
) -> None:
    """Show what each FILE is and what it holds: an ETDump, an ETRecord, a .pte, a .bpte
    or a .ptd.

    The kind of a file is found from its content. --format json writes one document with all
    sections; csv, tsv, jsonl and parquet a flat table with one value in each row. With --memory, an
    --etrecord tells the module and line of each tensor (that of another program is an error), and a
    FILE may be the folder of a run that etscope run --memory --save wrote. Given with its program,
    or with a record that holds it, the measured bytes are beside the planned ones. etscope size
    shows what the bytes of a file are.
    """
    from etscope.analysis.info import SCHEMA, file_info
    from etscope.errors import UsageError

    if etrecord is not None and not memory:
        raise UsageError("--etrecord goes with --memory", hint="or give the record as a FILE")
    record = None
    if etrecord is not None:
        from etscope.formats.etrecord.reader import read_etrecord

        record = read_etrecord(etrecord)
    reports, errors = [], []
    for file in files:
        try:
            reports.append(
                _memory_report(file, files, record, force=force) if memory else file_info(file)
            )
        except EtscopeError as error:  # noqa: PERF203 - the other files are shown all the same
            errors.append(error)
    if reports:
        output.write_reports(reports, SCHEMA, limit=limit, text_limit=_ROWS)
    for other in errors[:-1]:
        click.echo(f"error: {other}", err=True)
    if errors:
        raise errors[-1]


def _memory_report(
    file: str, files: Sequence[str], record: RecordFile | None, *, force: bool
) -> Report:
    """The report on the memory plan of a program, or on what a run measured; files: all that were
    given, among which the program of the run may be."""
    from etscope.analysis.measured_memory import measured_report
    from etscope.analysis.memory import memory_report
    from etscope.errors import UsageError
    from etscope.formats.identify import BPTE, PTE, identify
    from etscope.formats.program.bpte import read_program_file
    from etscope.formats.run_json import run_at

    saved = run_at(file)
    if saved is not None:
        others = [other for other in files if run_at(other) is None]
        programs = [read_program_file(other)[0] for other in others]
        about = {"file": file, "kind": "run"}
        report = measured_report(saved, about, programs, record, force=force)
        # The report on the program that was given has it too.
        kept = (one for one in report.sections if not programs or one.name != "memory_reuse")
        return replace(report, sections=tuple(kept))
    kind = identify(file)
    if kind not in (PTE, BPTE):
        raise UsageError(
            f"{file} is neither a program, which has a memory plan, nor a saved run",
            hint="--memory works on .pte and .bpte files, and on folders of etscope run --save",
        )
    program = read_program_file(file)[0]
    return memory_report(program, {"file": file, "kind": kind}, record, force=force)
