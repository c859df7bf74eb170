"""The child process of `etscope_lab.pages._artifact_cache`: makes one artifact from a job's files.

`main(FOLDER)` reads FOLDER/order.json and FOLDER/in/, and writes FOLDER/out/ and returns 0; or
writes the reason to FOLDER/failure.txt and returns 1. Uploads are read here and not in the server,
so that a crash or an endless loop of a reader does not affect the server.
(`etscope_lab.comparison.compare` reads dumps there.)
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from etscope.errors import EtscopeError, FormatError, MissingDataError, UsageError
from etscope.formats.run_json import RUN_ETDP, RUN_JSON, VALUES_ETDP

if TYPE_CHECKING:
    import numpy.typing as npt

    from etscope.analysis.profile.scale import Scale
    from etscope.analysis.profile.trace import Trace
    from etscope.capture.files import RunFiles
    from etscope.model.finding import Finding
    from etscope.model.table import Column, Table
    from etscope.reporting.report import ReportOptions

# Names of the files of a job in FOLDER/in, whatever their names were.
MODEL, RECORD, INPUTS = "model", "record", "inputs"
_MOST_ROWS = 300  # of a table on a page; the report has all rows
_MOST_DRAWN = 20_000  # rows of a dashboard's query
_MOST_LINES, _MOST_BARS = 12, 40  # of a chart
_OPERATORS = (
    "instruction", "event", "avg", "p50", "p90", "share", "module", "source", "backend",
)  # fmt: skip
_NICENESS = 10  # a measurement may run on this machine


def main(path: str) -> int:
    folder = Path(path)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    order = json.loads((folder / "order.json").read_text(encoding="utf-8"))
    try:
        BUILDERS[order["kind"]](folder / "in", folder / "out", order["options"])
    except EtscopeError as error:
        (folder / "failure.txt").write_text(str(error), encoding="utf-8", errors="replace")
        return 1
    return 0


def _report(source: Path, target: Path, options: Mapping[str, Any]) -> None:
    from etscope.reporting.report import report_inputs
    from etscope.support.quiet import quiet
    from etscope.views.page import document_of, page_html

    runs = [_run_files(folder) for folder in _run_folders(source)]
    with quiet():
        inputs = list(report_inputs(runs, _options(source, options)))
        text = page_html(document_of(inputs, options.get("title")))
    (target / "report.html").write_text(text, encoding="utf-8")


def _operators(source: Path, target: Path, options: Mapping[str, Any]) -> None:
    from etscope.analysis.insights.facts import Facts, Level
    from etscope.analysis.insights.insights import insights
    from etscope.analysis.tables.profile_table import profile_table
    from etscope.analysis.work.roofline import choose_calibration

    tables = []
    for run, folder in enumerate(_run_folders(source)):
        files = _run_files(folder)
        trace = _trace(files)
        has_values = files.values is not None or trace.refers_to_tensors
        calibration = choose_calibration(None, trace.saved_run)
        for number, profile in enumerate(trace.profiles()):
            scale = _scale(profile.total)
            table = profile_table(profile, scale, limit=_MOST_ROWS)
            plain = plain_table(table, _OPERATORS, profile.title(""))
            facts = Facts(trace, profile, scale, calibration, has_values=has_values)
            plain["insights"] = [_finding(one, run, number) for one in insights(facts, Level.ALL)]
            tables.append(plain)
    if not tables:
        raise MissingDataError("the dump has no times of operators")
    _write(target, tables)


def _finding(finding: Finding, run: int, method: int) -> dict[str, Any]:
    explanation = finding.explanation
    return {
        "severity": finding.severity.value,
        "sentence": finding.sentence,
        "remedies": [one.text for one in (explanation.remedies if explanation else ())],
        "place": _place_in_report(finding, run, method),
    }


def _place_in_report(finding: Finding, run: int, method: int) -> str:
    """The hash of the report's address where a finding is seen."""
    place = finding.place
    if place is None:
        return ""
    set_to = urlencode({"events.filter": place.select}) if place.select else ""
    return f"#run{run}/{place.view}/{method}" + (f"?{set_to}" if set_to else "")


def _differences(source: Path, target: Path, options: Mapping[str, Any]) -> None:
    from etscope.analysis.comparison.diff import diff_traces
    from etscope.analysis.comparison.diff_table import diff_table, shown_columns
    from etscope.analysis.statistics.compare_samples import Policy
    from etscope.support.quiet import quiet

    before, after = (_trace(_run_files(source / side)) for side in ("first", "second"))
    with quiet():
        diff = diff_traces(before, after, Policy(options["min_effect"], options["confidence"]))
    tables = [
        diff_table(method, _scale([method.total.before or 0.0]), limit=_MOST_ROWS)
        for method in diff.methods
    ]
    names = shown_columns(tables)
    found = []
    for method, table in zip(diff.methods, tables, strict=True):
        plain = plain_table(table, names, method.title(""))
        # Titles and closing rows of a diff judge the method by the one traced process of each side;
        # the job's verdict comes from all its rounds.
        closing = [row for row in plain["rows"] if row["closing"]]
        for cell in (cell for row in closing for cell in row["cells"] if cell["verdict"]):
            cell |= {"text": "", "verdict": ""}
        found.append(plain)
    _write(target, found)


def _tensorboard(source: Path, target: Path, options: Mapping[str, Any]) -> None:
    from etscope.reporting.report import diagnosis
    from etscope.reporting.tensorboard import write_tensorboard
    from etscope.support.quiet import quiet

    for folder in _run_folders(source):
        files = _run_files(folder)
        with quiet():
            numerics = None
            if files.dump is not None and None not in files.logged:  # a run that logged values
                logged = files.open(with_values=True)
                numerics, _ = diagnosis(logged, _options(source, options), files.bundle)
            write_tensorboard(
                target / "runs" / (folder.name if folder != source else "run"),
                files.capture(),
                numerics=[] if numerics is None else [numerics],
            )


def _dashboard(source: Path, target: Path, options: Mapping[str, Any]) -> None:
    from etscope_lab.fleet import query
    from etscope_lab.fleet.lab_results import lab_dataset
    from etscope_lab.lab import Lab

    with Lab.open(options["home"]) as lab:
        dataset = lab_dataset(lab)
    table = query(dataset, options["sql"], options["parameters"], limit=_MOST_DRAWN)
    drawn = options["chart"]
    chart = chart_of(table, **drawn) if drawn is not None and len(table) else None
    shown = table.take(range(min(len(table), _MOST_ROWS)))
    _write(target, [{**plain_table(shown, shown.names, ""), "chart": chart}])


def chart_of(
    table: Table, values: Sequence[str], over: str | None, by: Sequence[str]
) -> dict[str, Any]:
    """Return the data of a chart, see `etscope_lab.fleet.sql.Chart`: {series: [{name, x, y}], x,
    time, unit} or {bars: [{name, share, text}], label}; and `more`, the number of those left out.
    Raises `UsageError` for columns that cannot be drawn.
    """
    from etscope.views.tables.cells import table_texts

    columns = {column.name: column for column in table.columns}
    if missing := [name for name in (*values, *by, over) if name and name not in columns]:
        raise UsageError(f"the chart's column {missing[0]!r} is not in the result")
    keys = [
        " · ".join(map(str, key)) for key in zip(*(table.values[one] for one in by), strict=True)
    ]
    keys = keys or [""] * len(table)
    axis = [] if over is None else [_place(value) for value in table.values[over]]
    factor, unit = _unit_of(columns[values[0]])
    drawn: dict[str, list[Any]] = {}
    for name, texts in zip(values, table_texts(table.select(values)), strict=True):
        for row, (key, value) in enumerate(zip(keys, table.values[name], strict=True)):
            if value is not None and (over is None or axis[row] is not None):
                label = " · ".join(filter(None, (key, name if len(values) > 1 else "")))
                place = texts[row] if over is None else axis[row]
                drawn.setdefault(label, []).append((place, value * factor))
    if over is None:
        bars = [(name, *one) for name, some in drawn.items() for one in some]
        largest = max((abs(value) for *_, value in bars), default=0) or 1
        shown = [
            {"name": name, "text": text, "share": abs(value) / largest}
            for name, text, value in bars[:_MOST_BARS]
        ]
        label = ", ".join(columns[name].label for name in values)
        return {"bars": shown, "label": label, "more": max(len(bars) - _MOST_BARS, 0)}
    series = []
    for name, points in list(drawn.items())[:_MOST_LINES]:
        x, y = zip(*sorted(dict(points).items()), strict=True)
        series.append({"name": name, "x": x, "y": y})
    is_time = columns[over].kind.value not in ("int", "count", "float", "duration")
    more = max(len(drawn) - _MOST_LINES, 0)
    return {"series": series, "x": over, "time": is_time, "unit": unit, "more": more}


def _place(value: Any) -> float | None:
    """The place of a value on a horizontal axis: a number, or seconds since 1970 of a time."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).replace(tzinfo=timezone.utc).timestamp()
        except ValueError as error:
            raise UsageError(f"a chart goes over a time or a number, not {value!r:.60}") from error
    return value if isinstance(value, (int, float)) else None


def _unit_of(column: Column) -> tuple[float, str]:
    """The unit in which a chart shows a column, and the factor to it."""
    if column.kind.value == "duration":
        return {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}[str(column.unit)], "ms"
    return {"share": (100.0, "%"), "bytes": (2.0**-20, "MiB")}.get(column.kind.value, (1.0, ""))


BUILDERS: Mapping[str, Callable[[Path, Path, Mapping[str, Any]], None]] = {
    "report": _report,
    "operators": _operators,
    "differences": _differences,
    "tensorboard": _tensorboard,
    "dashboard": _dashboard,
}


def _run_folders(source: Path) -> list[Path]:
    """Return the folders of the runs: one, or the two sides of an A/B job or of a comparison."""
    found = [source / side for side in ("first", "second") if (source / side).is_dir()]
    return found or [source]


def _run_files(folder: Path) -> RunFiles:
    """Return the files of one run, by their content."""
    from etscope.capture.files import RunFiles
    from etscope.formats.identify import BPTE, ETRECORD, PTE, identify

    suffixes = {ETRECORD: ".etrecord", PTE: ".pte", BPTE: ".bpte"}
    found: dict[str, Any] = {}
    for name in (RECORD, MODEL):  # a file that was submitted as the record goes first
        path = folder / name
        if path.is_file():
            kind = identify(path)
            if kind not in suffixes:
                raise FormatError(f"the model is {kind}, not a program or an ETRecord")
            role = "record" if kind == ETRECORD else "program"
            if role not in found:
                found[role] = path.rename(path.with_name(f"{name}{suffixes[kind]}"))
    dump = next((folder / n for n in (RUN_ETDP, VALUES_ETDP) if (folder / n).is_file()), None)
    facts = folder / RUN_JSON
    return RunFiles(dump=dump, facts=facts if facts.is_file() else None, **found).with_saved()


def _trace(files: RunFiles) -> Trace:
    if files.dump is None:
        raise MissingDataError("the job has no ETDump", hint="traced_iterations: 1 or more")
    return files.open()


def _options(source: Path, options: Mapping[str, Any]) -> ReportOptions:
    from etscope.reporting.report import ReportOptions

    path = next(iter(sorted(source.rglob(f"{INPUTS}.*"))), None)

    def read(trace: Trace, method: str) -> Any:
        from etscope.run.inputs import file_inputs

        return file_inputs(str(path), trace.export, method)

    return ReportOptions(inputs=None if path is None else read, method=options.get("method"))


def _scale(total: Sequence[float] | npt.NDArray[Any]) -> Scale:
    """Return milliseconds, or microseconds for a method that takes less than one. total: in ns."""
    import numpy as np

    from etscope.analysis.profile.scale import Scale
    from etscope.units import TimeScale

    is_short = len(total) > 0 and float(np.median(total)) < 1e6
    return Scale(TimeScale.NS, TimeScale.US if is_short else TimeScale.MS)


def plain_table(table: Table, names: Sequence[str], title: str) -> dict[str, Any]:
    """Return a table as plain JSON: the text of each cell, and the value that it is sorted by."""
    from etscope.views.tables.cells import is_number, plain_rows, table_texts

    filled = [
        name
        for name in names
        if any(value is not None and value != "" and value == value for value in table.values[name])
    ]
    shown = table.select(filled)
    rows = zip(zip(*table_texts(shown), strict=True), plain_rows(shown), strict=True)
    closing = min(table.breaks, default=len(table))
    return {
        "title": title,
        # The column of the rows' names, which are indented by depth.
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
                "cells": [
                    {
                        "text": text,
                        # True and False are numbers in Python, and not in a table.
                        "value": value
                        if isinstance(value, (int, float)) and not isinstance(value, bool)
                        else None,
                        "verdict": text.split(" ")[0] if name == "verdict" else "",
                    }
                    for text, value, name in zip(*row, shown.names, strict=True)
                ],
                "depth": 0 if table.depth is None else int(table.depth[number]),
                "closing": number >= closing,
            }
            for number, row in enumerate(rows)
        ],
    }


def _write(target: Path, tables: Sequence[Mapping[str, Any]]) -> None:
    (target / "tables.json").write_text(json.dumps(list(tables)), encoding="utf-8")
