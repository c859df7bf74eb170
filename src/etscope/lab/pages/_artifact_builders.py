"""The child process of `etscope.lab.pages._artifact_cache`: makes one thing of a job's files.

`main(FOLDER)` reads FOLDER/order.json and FOLDER/in/, and writes FOLDER/out/ and returns 0; or
FOLDER/failure.txt with the reason, and returns 1. What was uploaded is read here and not in the
server, so that neither a crash nor an endless loop of a reader is the server's.
(`etscope.lab.comparison.compare` reads dumps there.)
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.errors import EtscopeError, FormatError, MissingDataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from etscope.analysis.profile.scale import Scale
    from etscope.analysis.profile.trace import Trace
    from etscope.formats.run_json import RUN_JSON
    from etscope.model.table import Table
from etscope.reporting.report import ReportOptions, RunFiles

# What the programs and records of a job are called for the child, whatever they are.
MODEL, RECORD, INPUTS = "model", "record", "inputs"
_MOST_ROWS = 300  # of a table on a page: the report has all
_OPERATORS = (
    "instruction", "event", "avg", "p50", "p90", "share", "module", "source", "backend",
)  # fmt: skip
_NICENESS = 10  # a measurement may run on this very machine


def main(place: str) -> int:
    folder = Path(place)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    order = json.loads((folder / "order.json").read_text(encoding="utf-8"))
    try:
        MAKERS[order["kind"]](folder / "in", folder / "out", order["options"])
    except EtscopeError as error:
        (folder / "failure.txt").write_text(str(error), encoding="utf-8", errors="replace")
        return 1
    return 0


# -- the four kinds


def _report(source: Path, target: Path, options: Mapping[str, Any]) -> None:
    from etscope.quiet import quiet
    from etscope.reporting.report import report_inputs
    from etscope.views.page import document_of, page_html

    runs = [_files(folder) for folder in _sides(source)]
    with quiet():
        inputs = list(report_inputs(runs, _options(source, options)))
        text = page_html(document_of(inputs, options.get("title")))
    (target / "report.html").write_text(text, encoding="utf-8")


def _operators(source: Path, target: Path, options: Mapping[str, Any]) -> None:
    from etscope.analysis.profile.profile_table import profile_table

    tables = []
    for folder in _sides(source):
        trace = _trace(_files(folder))
        for profile in trace.profiles():
            table = profile_table(profile, _scale(profile.total), limit=_MOST_ROWS)
            tables.append(_plain(table, _OPERATORS, profile.method or ""))
    if not tables:
        raise MissingDataError("the dump has no times of operators")
    _write(target, tables)


def _differences(source: Path, target: Path, options: Mapping[str, Any]) -> None:
    from etscope.analysis.comparison.compare_samples import Policy
    from etscope.analysis.comparison.diff import diff_traces
    from etscope.analysis.comparison.diff_table import shown_columns
    from etscope.quiet import quiet

    before, after = (_trace(_files(source / side)) for side in ("first", "second"))
    with quiet():
        diff = diff_traces(before, after, Policy(options["min_effect"], options["confidence"]))
    totals = [[method.total.before or 0.0] for method in diff.methods]
    tables = [
        method.table(_scale(total), limit=_MOST_ROWS)
        for method, total in zip(diff.methods, totals, strict=True)
    ]
    names = shown_columns(tables)
    _write(target, [_plain(table, names, table.title) for table in tables])


def _tensorboard(source: Path, target: Path, options: Mapping[str, Any]) -> None:
    from etscope.formats.etrecord.reader import read_etrecord
    from etscope.formats.program.bpte import read_program_file
    from etscope.quiet import quiet
    from etscope.reporting.report import diagnosis
    from etscope.reporting.tensorboard import write_tensorboard

    for folder in _sides(source):
        files = _files(folder)
        program, bundle = (
            (None, None) if files.program is None else read_program_file(files.program)
        )
        trace = None if files.dump is None else _trace(files)
        with quiet():
            numerics = None
            logged = None if files.dump is None else _logged(files)
            if logged is not None:
                numerics, _ = diagnosis(logged, _options(source, options), bundle)
            write_tensorboard(
                target / "runs" / (folder.name if folder != source else "run"),
                record=None if files.record is None else read_etrecord(files.record),
                trace=trace,
                program=program,
                numerics=[] if numerics is None else [numerics],
            )


MAKERS: Mapping[str, Callable[[Path, Path, Mapping[str, Any]], None]] = {
    "report": _report,
    "operators": _operators,
    "differences": _differences,
    "tensorboard": _tensorboard,
}


# -- files


def _sides(source: Path) -> list[Path]:
    """The folders of the runs: one, or the two sides of an A/B job or of a comparison."""
    found = [source / side for side in ("first", "second") if (source / side).is_dir()]
    return found or [source]


def _files(folder: Path) -> RunFiles:
    """The files of one run, by what they are."""
    from etscope.formats.identify import BPTE, ETRECORD, PTE, identify
    from etscope.reporting.report import RunFiles

    suffixes = {ETRECORD: ".etrecord", PTE: ".pte", BPTE: ".bpte"}
    found: dict[str, Path] = {}
    for name in (RECORD, MODEL):  # what is named as the record is the record
        path = folder / name
        if path.is_file():
            kind = identify(path)
            if kind not in suffixes:
                raise FormatError(f"the model is {kind}, not a program or an ETRecord")
            role = "record" if kind == ETRECORD else "program"
            if role not in found:
                found[role] = path.rename(path.with_name(f"{name}{suffixes[kind]}"))
    for role, name in (
        ("dump", "run.etdp"), ("values", "values.etdp"), ("values_buffer", "debug.bin"),
        ("facts", RUN_JSON),
    ):  # fmt: skip
        if (folder / name).is_file():
            found[role] = folder / name
    if "dump" not in found and "values" in found:
        found["dump"] = found.pop("values")
    if "values" not in found and "values_buffer" in found:
        buffer = found.pop("values_buffer")
        if found.get("dump", buffer).name == "values.etdp":
            found["debug_buffer"] = buffer
    return RunFiles(**found)


def _trace(files: RunFiles) -> Trace:
    from etscope.analysis.profile.trace import Trace
    from etscope.formats.etdump.reader import read_etdump
    from etscope.formats.etrecord.reader import read_etrecord
    from etscope.formats.program.bpte import read_program_file

    if files.dump is None:
        raise MissingDataError("the job has no ETDump", hint="traced_iterations: 1 or more")
    return Trace(
        dump=read_etdump(files.dump),
        record=None if files.record is None else read_etrecord(files.record),
        program=None if files.program is None else read_program_file(files.program)[0],
    )


def _logged(files: RunFiles) -> Trace | None:
    """The trace of the run whose values were logged."""
    from dataclasses import replace

    from etscope.formats.etdump.debug_values import DebugBuffer
    from etscope.formats.etdump.reader import read_etdump

    dump, buffer = files.values or files.dump, files.values_buffer or files.debug_buffer
    if dump is None or buffer is None:
        return None
    return replace(_trace(files), dump=read_etdump(dump), debug_buffer=DebugBuffer.open(buffer))


def _options(source: Path, options: Mapping[str, Any]) -> ReportOptions:
    from etscope.reporting.report import ReportOptions

    inputs = next(iter(sorted(source.rglob(f"{INPUTS}.*"))), None)

    def given(trace: Trace, method: str) -> Any:
        return _inputs(trace, method, inputs) if inputs is not None else None

    return ReportOptions(inputs=None if inputs is None else given, method=options.get("method"))


def _inputs(trace: Trace, method: str, path: Path) -> Sequence[Any]:
    """The inputs of a method's run, from a file."""
    from etscope.formats.torch_files.tensor_files import read_tensor_file
    from etscope.model.exported_graph import record_input_names
    from etscope.run.inputs import method_inputs

    program = trace.recorded_program
    if program is None:
        return list(read_tensor_file(str(path)).values)
    names = None if trace.record is None else record_input_names(trace.record, method)
    return list(method_inputs(program, method, str(path), seed=0, input_names=names))


# -- tables


def _scale(total: Sequence[float] | npt.NDArray[Any]) -> Scale:
    """Milliseconds; of a method that takes less than one, microseconds. total: ticks, in ns."""
    import numpy as np

    from etscope.analysis.profile.scale import Scale
    from etscope.units import TimeScale

    is_short = len(total) > 0 and float(np.median(total)) < 1e6
    return Scale(TimeScale.NS, TimeScale.US if is_short else TimeScale.MS)


def _plain(table: Table, names: Sequence[str], title: str) -> dict[str, Any]:
    """A table as plain JSON: what a page shows of each cell, and what it is sorted by."""
    from etscope.views.tables.cell_values import is_number, plain_rows
    from etscope.views.tables.text_cells import table_texts

    shown = table.select([name for name in names if any(_is_there(v) for v in table.values[name])])
    rows = zip(zip(*table_texts(shown), strict=True), plain_rows(shown), strict=True)
    closing = min(table.breaks, default=len(table))
    return {
        "title": title,
        # Where a row's name is, which is set in below the row that it belongs to.
        "names_at": shown.names.index("event") if "event" in shown.names else 0,
        "notes": list(table.notes),
        "columns": [
            {
                "label": column.label,
                "number": is_number(column.kind),
                "path": column.kind.value == "path",
            }
            for column in shown.columns
        ],
        "rows": [
            {
                "cells": [_cell(*cell) for cell in zip(*row, shown.names, strict=True)],
                "depth": 0 if table.depth is None else int(table.depth[number]),
                "closing": number >= closing,
            }
            for number, row in enumerate(rows)
        ],
    }


def _cell(text: str, value: Any, name: str) -> dict[str, Any]:
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    verdict = text.split(" ")[0] if name == "verdict" else ""
    return {"text": text, "value": number, "verdict": verdict}


def _is_there(value: Any) -> bool:
    return value is not None and value != "" and value == value


def _write(target: Path, tables: Sequence[Mapping[str, Any]]) -> None:
    (target / "tables.json").write_text(json.dumps(list(tables)), encoding="utf-8")
