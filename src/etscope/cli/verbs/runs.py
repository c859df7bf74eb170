"""`etscope runs`: list, show, remove and import runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from etscope.cli.options.common import FILE, POSITIVE, force_option, output_options
from etscope.cli.options.kept_runs import NEXT, SAVE_OPTIONS, kept_runs, saved_run
from etscope.cli.output.tables import OutputOptions
from etscope.errors import EtscopeError, FormatError, UsageError

if TYPE_CHECKING:
    from etscope.analysis.profile.trace import Trace
    from etscope.capture.kept_runs import KeptRun

_LOG_LIMIT = 1 << 30  # bytes
_LOG_END = b"#[END]"  # of ExecuTorch's Arm runner, after its dump
_SUMMARY = "summary.json"


@click.group(invoke_without_command=True)
@partial(output_options, to_file=False)
@click.pass_context
def command(context: click.Context, output: OutputOptions) -> None:
    """List the kept runs, the last one first.

    \b
    etscope runs
    etscope runs show @1
    etscope runs remove @2 @3
    etscope runs cap 20 500MB
    etscope runs import run.etdp model.pte

    @0 is the last run and the default of all commands, @1 is the run before. Runs are in
    .etscope/runs, or in the folder $ETSCOPE_RUNS.
    """
    if context.invoked_subcommand is not None:
        return
    from etscope.capture.kept_runs import KeptRuns, within
    from etscope.model.table import Column, Kind, Table

    runs = KeptRuns()
    found = runs.newest_first()
    known = [_summary(run) for run in found]
    content: dict[Column, list[Any]] = {
        Column("run"): [f"@{position}" for position in range(len(found))],
        Column("when"): [one["when"] for one in known],
        Column("folder", Kind.PATH, priority=1): [run.path.name for run in found],
        Column("backend", priority=2): [one["backend"] for one in known],
        Column("median", Kind.DURATION, "ms"): [one["median_ms"] for one in known],
        Column("size", Kind.BYTES, priority=3): [run.size for run in found],
        Column("first_finding", is_sentence=True): [one["finding"] for one in known],
    }
    title = f"{len(found):,} of at most {within(runs.cap)}, in {runs.folder}"
    notes = () if found else ("There are no runs here. Make one: etscope run MODEL",)
    output.write_tables([Table.of(content, title=title, notes=notes)])


@command.command("show")
@click.argument("runs", nargs=-1, callback=kept_runs(1), metavar="[RUN]...")
@partial(output_options, to_file=False)
def show(runs: tuple[str, ...], output: OutputOptions) -> None:
    """Show the files and facts of RUN. Default: the last run."""
    from etscope.model.report import Report, Section, facts
    from etscope.model.table import Column, Kind, Table

    reports = []
    for folder in runs:
        run = _kept(folder)
        about = _summary(run)
        entries = [
            (Column("when"), about["when"]),
            (Column("program", Kind.PATH), run.saved.text("program")),
            (Column("backend"), about["backend"]),
            (Column("runner"), run.saved.text("runner")),
            (Column("threads", Kind.COUNT), run.saved.count("threads")),
            (Column("median", Kind.DURATION, "ms"), about["median_ms"]),
            (Column("first_finding"), about["finding"]),
        ]
        files = sorted(path for path in run.path.iterdir() if path.is_file())
        table = Table.of(
            {
                Column("file", Kind.PATH): [path.name for path in files],
                Column("size", Kind.BYTES): [path.stat().st_size for path in files],
            },
            title="Files",
        )
        sections = (facts("run", "Run", entries), Section("files", table))
        reports.append(Report({"file": str(run.path), "kind": "run"}, sections))
    output.write_reports(reports, "etscope.runs/1")


@command.command("remove")
@click.argument("runs", nargs=-1, required=True, callback=kept_runs(), metavar="RUN...")
def remove(runs: tuple[str, ...]) -> None:
    """Remove RUN: @1, or its folder in .etscope/runs."""
    from etscope.capture.kept_runs import KeptRuns

    found = [_kept(folder) for folder in runs]
    KeptRuns().remove(found)
    for run in found:
        click.echo(f"removed {run.path}", err=True)


@command.command("cap")
@click.argument("count", type=POSITIVE, required=False)
@click.argument("size", required=False)
def cap(count: int | None, size: str | None) -> None:
    """Show or change the limit of kept runs, and of their size. The oldest runs are removed first.

    \b
    etscope runs cap
    etscope runs cap 20
    etscope runs cap 20 500MB
    """
    from etscope.capture.kept_runs import KeptRuns, size_of, within

    runs = KeptRuns()
    if count is not None or size is not None:
        before = runs.cap
        runs.cap = replace(
            before,
            runs=before.runs if count is None else count,
            bytes=before.bytes if size is None else size_of(size),
        )
        for run in runs.make_room():
            click.echo(f"removed {run.path}", err=True)
    click.echo(f"{runs.folder} keeps {within(runs.cap)}")


@command.command("import")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@force_option
@SAVE_OPTIONS[0]
def import_command(files: tuple[str, ...], force: bool, save: Path | None) -> None:
    """Import a run from a phone or a board.

    \b
    etscope runs import run.etdp model.etrecord model.pte
    etscope runs import pulled/
    etscope runs import run.etdp debug.bin model.pte
    etscope runs import uart.log model.etrecord
    picocom -q -b 115200 /dev/ttyUSB0 | etscope runs import - model.etrecord

    FILEs may be in any order, or in a folder; debug.bin has logged values. A board's log may hold
    the dump, as ExecuTorch's Arm runner prints it; its counters and allocators are kept, too. - is
    a log from standard input, up to the line #[END] after the dump, or to its end.
    etscope checks that the files belong together, and copies them. The import is then the last run.
    """
    from etscope.capture.files import run_of_files
    from etscope.capture.kept_runs import import_run

    with TemporaryDirectory() as unpacked:
        found_files, log = _without_log(files, Path(unpacked))
        found = run_of_files(found_files)
        if found.dump is None:
            raise UsageError(f"{found.name} has no ETDump", hint="name the dump, too")
        named = found.program or found.record or log or found.dump
        with saved_run(save, False, named.stem, NEXT) as folder:
            if folder is None:
                raise UsageError(
                    "the run cannot be kept in this folder", hint="--save DIR names another one"
                )
            folder.mkdir(parents=True, exist_ok=True)
            import_run(found, folder, log=log, force=force)


def _without_log(files: Sequence[str], folder: Path) -> tuple[list[str], Path | None]:
    """Return the files, with those in a board's log, written to `folder`, in its place; and the
    log, if it says more."""
    from etscope.analysis.info import file_info
    from etscope.formats.etdump.board_log import files_in_log

    found, log = [], None
    for file in files:
        if file == "-":
            file = _log_from_stdin(folder)
        inside = {} if Path(file).is_dir() else files_in_log(file)
        for name, data in inside.items():
            (folder / Path(name).name).write_bytes(data)
            found.append(str(folder / Path(name).name))
        if not inside:
            found.append(file)
            continue
        with suppress(FormatError):  # nothing but the dump
            file_info(file)
            log = Path(file)
    return found, log


def _log_from_stdin(folder: Path) -> str:
    """Keep a log from standard input up to the end of the dump: a serial port is never closed."""
    path = folder / "board.log"
    with path.open("wb") as log:
        for line in sys.stdin.buffer:
            log.write(line)
            if log.tell() > _LOG_LIMIT:
                raise FormatError(f"the log on standard input exceeds {_LOG_LIMIT >> 20} MiB")
            if line.strip().endswith(_LOG_END):
                break
    return str(path)


def _kept(folder: str) -> KeptRun:
    from etscope.capture.kept_runs import KeptRuns

    wanted = Path(folder).resolve()
    for run in KeptRuns().newest_first():
        if run.path.resolve() == wanted:
            return run
    raise UsageError(f"{folder} is not a kept run", hint="etscope runs lists them")


def _summary(run: KeptRun) -> dict[str, Any]:
    """Return what the list shows of a run. The first finding needs the whole run, so a file in the
    run's folder keeps it."""
    path = run.path / _SUMMARY
    with suppress(OSError, ValueError):
        known = json.loads(path.read_bytes())
        if isinstance(known, dict) and known.keys() >= {"when", "backend", "median_ms", "finding"}:
            return known
    found: dict[str, Any] = {"when": None, "backend": None, "median_ms": None, "finding": None}
    try:
        at = run.saved.recorded_at
        found["when"] = None if at is None else f"{at:%Y-%m-%d %H:%M}"
        from etscope.capture.files import run_of_files

        trace = run_of_files([str(run.path)]).open()
        program = trace.recorded_program
        names = (
            delegate.backend_id
            for method in (() if program is None else program.methods)
            for delegate in method.delegates
        )
        found["backend"] = ", ".join(dict.fromkeys(names)) or "portable"
        found |= _first_finding(trace)
        samples = [one.samples_ns for one in run.saved.untraced]
        if samples and len(samples[0]):
            found["median_ms"] = float(np.median(samples[0])) / 1e6
    except EtscopeError as error:
        return {**found, "finding": f"cannot be read: {error.message}"}
    with suppress(OSError):
        path.write_text(json.dumps(found), encoding="utf-8")
    return found


def _first_finding(trace: Trace) -> dict[str, Any]:
    from etscope.capture.profiles import chosen_profiles
    from etscope.cli.options.run import first_of
    from etscope.explain import explain

    first = chosen_profiles(trace, None)[0]
    method = explain(trace, method=first.method)[0]  # other methods would be explained in vain
    findings = first_of(method.findings)
    return {
        "median_ms": float(np.median(method.facts.scale(method.facts.profile.total))),
        "finding": findings[0].sentence if findings else "nothing that takes 2 % or more",
    }
