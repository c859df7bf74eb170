"""`etscope info`: show what a file is and what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import (
    FILE,
    POSITIVE,
    etrecord_option,
    force_option,
    output_options,
    with_folders_opened,
)
from etscope.cli.options.kept_runs import kept_runs
from etscope.cli.output.tables import OutputOptions
from etscope.cli.verb import verb
from etscope.errors import EtscopeError

if TYPE_CHECKING:
    from etscope.formats.etrecord.reader import RecordFile
    from etscope.formats.program.ptd import ExternalData
    from etscope.formats.program.pte import Program
    from etscope.formats.run_json import SavedRun
    from etscope.model.report import Report

_ROWS = 30


_DETAILS = """\
The kind of a file is found from its content. --format json writes one document with all
sections; csv, tsv, jsonl and parquet a flat table with one value in each row. With a program,
its .ptd files tell who asks for each key. With --memory they tell the sizes of weights, an
--etrecord tells the module and line of each tensor (that of another program is an error), and a
FILE may be the folder of a run that etscope run --memory --save wrote. Given with its program,
or with a record that holds it, the measured bytes are beside the planned ones.

With --size a record tells the names, modules and lines of weights; a program and its .ptd, or a
dump and its debug buffer, are given together. Tables of a program are split by content and by
operator, and several files have a total. CSV, TSV, JSON lines and Parquet have one table then:
a row for each part of each file, or for each group of --by.
"""


@verb(
    {
        "Show": ("--size", "--by", "--memory", "--context", "--limit"),
        "Output": ("--format", "--output"),
    },
    details=_DETAILS,
)
@click.argument("files", nargs=-1, type=FILE, metavar="[FILE]...", callback=kept_runs(1))
@click.option(
    "--limit",
    "-n",
    type=POSITIVE,
    metavar="N",
    help=f"Show at most N rows of each table. Default: {_ROWS} in a text, else all.",
)
@click.option(
    "--size",
    is_flag=True,
    help="Show what takes the bytes of the FILEs. Each byte has one owner, and the sizes sum to "
    "the file; the last table estimates what could be saved.",
)
@click.option(
    "--by",
    type=click.Choice(("kind", "module", "dtype", "owner")),
    help="Group the bytes of --size. Default: kind; in a CSV, a row for each part.",
)
@click.option(
    "--memory",
    is_flag=True,
    help="Show who needs memory in a .pte or .bpte, by method: weights, KV cache, activations; and "
    "its memory plan: where and when each tensor is placed. Of a run saved with --memory: who took "
    "its memory.",
)
@click.option(
    "--context",
    type=POSITIVE,
    metavar="N",
    help="With --memory: show how the KV cache grows with the context length, up to N.",
)
@etrecord_option
@force_option
@output_options
def command(
    files: tuple[str, ...],
    size: bool,
    by: str | None,
    memory: bool,
    context: int | None,
    limit: int | None,
    etrecord: str | None,
    force: bool,
    output: OutputOptions,
) -> None:
    """Show what each FILE is and what it holds: a run, an ETDump, an ETRecord, a .pte, a .bpte or
    a .ptd.

    \b
    etscope info
    etscope info model.pte --size
    etscope info model.pte --memory
    etscope info llama.pte --memory --context 4096
    """
    from etscope.analysis.info import SCHEMA

    _check(size, by, memory, context, etrecord)
    record = None
    if etrecord is not None:
        from etscope.formats.etrecord.reader import read_etrecord

        record = read_etrecord(etrecord)
    if size:
        _write_sizes(files, by, limit, record, output, force=force)
        return
    if not memory:  # which is told of the run itself
        files = with_folders_opened(files, buffers=False)
    beside = _Beside.of(files, memory=memory)
    if memory and beside.programs and beside.data:
        from etscope.formats.program.ptd import match_external

        match_external(list(beside.programs.values()), list(beside.data.values()))
    reports, errors = [], []
    for file in files:
        if memory and file in beside.data and beside.programs:
            continue  # its bytes are those of the program
        try:
            reports.append(
                beside.memory_report(file, record, context=context, force=force)
                if memory
                else beside.report(file)
            )
        except EtscopeError as error:  # the other files are shown all the same
            errors.append(error)
    if reports:
        output.write_reports(reports, SCHEMA, limit=limit, text_limit=_ROWS)
    for other in errors[:-1]:
        click.echo(f"error: {other}", err=True)
    if errors:
        raise errors[-1]


def _check(
    size: bool, by: str | None, memory: bool, context: int | None, etrecord: str | None
) -> None:
    """Raise `UsageError` for options that do not go together."""
    from etscope.errors import UsageError

    if size and memory:
        raise UsageError("--size and --memory exclude each other")
    if by is not None and not size:
        raise UsageError("--by groups the bytes of --size", hint="add --size")
    if etrecord is not None and not (memory or size):
        raise UsageError(
            "--etrecord goes with --memory and --size", hint="or give the record as a FILE"
        )
    if context is not None and not memory:
        raise UsageError("--context goes with --memory", hint="add --memory")


def _write_sizes(
    files: Sequence[str],
    by: str | None,
    limit: int | None,
    record: RecordFile | None,
    output: OutputOptions,
    *,
    force: bool,
) -> None:
    from etscope.analysis.memory.size import SCHEMA, flat_sizes, size_files, size_reports

    sized = size_files(with_folders_opened(files, buffers=True), record, force=force)
    if output.is_text or output.chosen_format == "json":
        reports = size_reports(sized, by or "kind")
        output.write_reports(reports, SCHEMA, limit=limit, text_limit=_ROWS)
    else:
        output.write_tables([flat_sizes(one, by, limit) for one in sized])


@dataclass(frozen=True, slots=True)
class _Beside:
    """The files that tell of each other: programs, their .ptd files, and saved runs, by name."""

    programs: dict[str, Program]
    data: dict[str, ExternalData]
    runs: dict[str, SavedRun]

    @classmethod
    def of(cls, files: Sequence[str], *, memory: bool) -> _Beside:
        """Open them. What is wrong with a file is said by its own report. Without `memory`, only
        programs with a .ptd tell of another file."""
        from etscope.formats.identify import BPTE, PTD, PTE, identify

        found = cls({}, {}, {})
        kinds: dict[str, str] = {}
        for file in files:
            with suppress(EtscopeError):
                if memory:
                    from etscope.formats.run_json import run_at

                    saved = run_at(file)
                    if saved is not None:
                        found.runs[file] = saved
                        continue
                kinds[file] = identify(file)
        if not memory and PTD not in kinds.values():
            return found
        from etscope.formats.program.bpte import read_program_file
        from etscope.formats.program.ptd import read_ptd

        for file, kind in kinds.items():
            with suppress(EtscopeError):
                if kind in (PTE, BPTE):
                    found.programs[file] = read_program_file(file)[0]
                elif kind == PTD:
                    found.data[file] = read_ptd(file)
        return found

    def report(self, file: str) -> Report:
        """The report on a file: its kind, and what it holds."""
        from etscope.analysis.info import file_info

        return file_info(file, list(self.programs.values()), list(self.data.values()))

    def memory_report(
        self, file: str, record: RecordFile | None, *, context: int | None, force: bool
    ) -> Report:
        """The owners of the memory that a program needs, or that a run took."""
        from etscope.analysis.matching.export import Export
        from etscope.analysis.memory.measured import measured_report
        from etscope.analysis.memory.needs import program_memory, with_owners
        from etscope.analysis.memory.plan import memory_report
        from etscope.errors import UsageError
        from etscope.formats.identify import BPTE, PTE, identify
        from etscope.formats.program.bpte import read_program_file
        from etscope.formats.program.pte import program_fingerprint
        from etscope.formats.run_json import run_at

        saved = run_at(file)
        if saved is not None:
            programs = list(self.programs.values())
            report = measured_report(
                saved, {"file": file, "kind": "run"}, programs, record, force=force
            )
            # The report on the program that was given has it too.
            kept = (one for one in report.sections if not programs or one.name != "memory_reuse")
            return replace(report, sections=tuple(kept))
        kind = identify(file)
        if kind not in (PTE, BPTE):
            raise UsageError(
                f"{file} is neither a program, which has a memory plan, nor a saved run",
                hint="--memory works on .pte and .bpte files, and on folders of etscope run --save",
            )
        program = self.programs.get(file) or read_program_file(file)[0]
        fingerprint = program_fingerprint(program.source.buffer) if self.runs else None
        measured = (
            run.memory.measured
            for run in self.runs.values()
            if run.memory is not None and run.text("program_sha256") in (None, fingerprint)
        )
        export = Export(program, record, tuple(self.data.values()))
        report = memory_report(export, {"file": file, "kind": kind}, force=force)
        memory = program_memory(export, next(measured, None))
        return with_owners(report, memory, context)
