"""`etscope info`: show the kind and the content of files."""

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

_ROWS = 30  # of each table in a text: fits a screen
_YAML = (".yaml", ".yml")


_DETAILS = """\
etscope finds the kind of a file from its content. --format json writes one document with all
sections. csv, tsv, jsonl and parquet have a flat table with one value in each row. Name a program
and its .ptd files together to see which tensor needs each key. -o FILE.yaml writes the operators of
programs with their types, for -DEXECUTORCH_SELECT_OPS_YAML of a selective build.

--memory: .ptd files add the sizes of weights; --etrecord adds the module and line of each tensor.
A FILE may be a run of etscope run --memory. With the run's program, or a record with the program,
measured bytes stand next to planned ones.

--size: --etrecord adds names, modules and lines of weights. Name a program and its .ptd, or a dump
and its debug buffer, together. Tables of a program are split by content and by operator; several
files have a total. csv, tsv, jsonl and parquet then have a row for each part of each file, or for
each group of --by.
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
    help="Show the bytes of each part of the FILEs. Each byte has one owner, so that the sizes add "
    "up to the file. The last table estimates savings.",
)
@click.option(
    "--by",
    type=click.Choice(("kind", "module", "dtype", "owner")),
    help="Group the bytes of --size. Default: kind; in CSV and the like, a row for each part.",
)
@click.option(
    "--memory",
    is_flag=True,
    help="Show the memory of a program by owner: weights, KV cache, activations. Also shows the "
    "memory plan: the place and the time of each tensor. Of a run with --memory: the measured "
    "memory by owner.",
)
@click.option(
    "--context",
    type=POSITIVE,
    metavar="N",
    help="With --memory: show the growth of the KV cache up to a context of N tokens.",
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
    """Show the kind and the content of each FILE: a run, an ETDump, an ETRecord, a .pte, a .bpte, a
    .ptd, the log of an app that ran a language model, or of a board.

    \b
    etscope info
    etscope info model.pte --size
    etscope info model.pte --memory
    etscope info llama.pte --memory --context 4096
    """
    from etscope.analysis.info import SCHEMA

    _check(size, by, memory, context, etrecord)
    if memory and etrecord is None:
        files, etrecord = _without_record(files)
    record = None
    if etrecord is not None:
        from etscope.formats.etrecord.reader import read_etrecord

        record = read_etrecord(etrecord)
    if size:
        _write_sizes(files, by, limit, record, output, force=force)
        return
    if not memory:  # --memory reports on the run itself
        files = with_folders_opened(files, buffers=False)
    beside = _Beside.of(files, memory=memory)
    if not memory and output.path.endswith(_YAML) and output.format is None:
        _write_selective_build(files, output.path)
        return
    reports, errors = [], []
    for file in files:
        if memory and file in beside.data and beside.programs:
            continue  # the report on the program has its bytes
        try:
            reports.append(
                beside.memory_report(file, record, context=context, force=force)
                if memory
                else beside.report(file)
            )
        except EtscopeError as error:  # report on the other files first
            errors.append(error)
    if reports:
        output.write_reports(reports, SCHEMA, limit=limit, text_limit=_ROWS)
    for other in errors[:-1]:
        click.echo(f"error: {other}", err=True)
    if errors:
        raise errors[-1]


def _write_selective_build(files: Sequence[str], path: str) -> None:
    """Write the operators of programs for a selective build of ExecuTorch."""
    from etscope.analysis.program.kernels import selective_build
    from etscope.formats.program.bpte import read_program_file
    from etscope.views.output import open_output

    text = selective_build([read_program_file(file)[0] for file in files])
    with open_output(path, binary=False) as out:
        out.write(text)


def _check(
    size: bool, by: str | None, memory: bool, context: int | None, etrecord: str | None
) -> None:
    """Raise `UsageError` for options that do not go together."""
    from etscope.errors import UsageError

    if size and memory:
        raise UsageError("--size does not go with --memory")
    if by is not None and not size:
        raise UsageError("--by needs --size", hint="add --size")
    if etrecord is not None and not (memory or size):
        raise UsageError("--etrecord needs --memory or --size", hint="name the record as a FILE")
    if context is not None and not memory:
        raise UsageError("--context needs --memory", hint="add --memory")


def _without_record(files: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Return the files without the only ETRecord among several, and that record."""
    from etscope.formats.identify import ETRECORD, identify

    records = []
    for file in files:
        with suppress(EtscopeError, OSError):  # the report on the file raises its errors
            records += [file] if identify(file) == ETRECORD else []
    if len(records) != 1 or len(files) < 2:
        return files, None
    return tuple(file for file in files if file not in records), records[0]


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


def _records_of(files: Sequence[str]) -> dict[str, RecordFile]:
    """Return the records among files that were made with a program among them, by its name."""
    found: dict[str, RecordFile] = {}
    if len(files) < 2:
        return found
    from etscope.capture.files import RunFiles, runs_of_files
    from etscope.formats.etrecord.reader import read_etrecord

    with suppress(EtscopeError):  # the report on a file raises its errors
        for run in runs_of_files(files):
            if run.program is not None and run.record is not None:
                with suppress(EtscopeError):
                    RunFiles(record=run.record, program=run.program).capture()  # checks both
                    found[str(run.program)] = read_etrecord(run.record)
    return found


@dataclass(frozen=True, slots=True)
class _Beside:
    """Files that the report on another file uses: programs, their .ptd files, saved runs, and
    the records of programs, by name."""

    programs: dict[str, Program]
    data: dict[str, ExternalData]
    runs: dict[str, SavedRun]
    records: dict[str, RecordFile]

    @classmethod
    def of(cls, files: Sequence[str], *, memory: bool) -> _Beside:
        """Open the files that other files need; files that cannot be read are skipped, as the
        report on each file raises its own errors. Without `memory`, only a .ptd and a program
        need others. Raises `MismatchError` for programs and a .ptd that do not belong together."""
        from etscope.formats.identify import BPTE, PTD, PTE, identify

        found = cls({}, {}, {}, {} if memory else _records_of(files))
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
        from etscope.formats.program.ptd import match_external, read_ptd

        for file, kind in kinds.items():
            with suppress(EtscopeError):
                if kind in (PTE, BPTE):
                    found.programs[file] = read_program_file(file)[0]
                elif kind == PTD:
                    found.data[file] = read_ptd(file)
        if memory and found.programs and found.data:
            match_external(list(found.programs.values()), list(found.data.values()))
        return found

    def report(self, file: str) -> Report:
        """Return the report on a file: its kind and its content."""
        from etscope.analysis.info import file_info

        programs, data = list(self.programs.values()), list(self.data.values())
        return file_info(file, programs, data, self.records.get(file))

    def memory_report(
        self, file: str, record: RecordFile | None, *, context: int | None, force: bool
    ) -> Report:
        """Return the memory that a program needs, or that a run took, by owner."""
        from etscope.analysis.faults.faults import faults_section, told
        from etscope.analysis.faults.state import state_notes
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
            # The report on the program has this section, too.
            kept = (one for one in report.sections if not programs or one.name != "memory_reuse")
            return replace(report, sections=tuple(kept))
        kind = identify(file)
        if kind not in (PTE, BPTE):
            raise UsageError(
                f"{file} is neither a program nor a saved run",
                hint="--memory takes .pte and .bpte files, and runs of etscope run --memory",
            )
        program = self.programs.get(file) or read_program_file(file)[0]
        fingerprint = program_fingerprint(program.source.buffer) if self.runs else None
        measured = (
            run.memory.measured
            for run in self.runs.values()
            if run.memory is not None and run.text("program_sha256") in (None, fingerprint)
        )
        export = Export(program, record, tuple(self.data.values()))
        about = {"file": file, "kind": kind}
        notes = tuple(map(told, state_notes(export)))
        report = memory_report(export, about, force=force, notes=notes)
        report = with_owners(report, program_memory(export, next(measured, None)), context)
        faults = faults_section(export)
        sections = (faults, *report.sections) if len(faults.table) else report.sections
        return replace(report, sections=sections)
