"""How far the run is from the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from etscope.analysis.metrics import Metric, find_metric
from etscope.errors import EtscopeError, MissingDataError
from etscope.etdb._answer import Answer
from etscope.etdb._debugger import Debugger, Gap
from etscope.etdb.commands.common import whole
from etscope.etdb.commands.registry import command
from etscope.etdb.expressions.names import gap_between
from etscope.etdb.targets.lockstep import gaps_so_far
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.ui.describe import operators
from etscope.model.table import Column, Kind, Table
from etscope.quiet import quiet

GROUP = "values"
_COLUMNS = ("instruction", "op", "node", "total", "local", "verdict", "source")


@command("gap [METRIC] [N|run]", group=GROUP, aliases=("numerics",), words=("metric", "run"))
def gap(debugger: Debugger, rest: str) -> Answer:
    """Show how far the device's values are from the reference, the worst local error first.

    METRIC is sqnr by default (help metrics). `total` is against the reference, `local` against what
    PyTorch makes of the device's own inputs: it is the operator's own. N rows at most (15); `run`
    in order of execution. On the runtime it is of all that ran so far: the run is repeated for it,
    in lock step with the reference. In a live run: what was set against the plain reference.
    """
    metric, count, sort = "sqnr", 15, "error"
    for word in rest.split():
        if word.isdecimal():
            count = whole(word)
        elif word == "run":
            sort = "run"
        else:
            metric = word
    find_metric(metric)
    target = debugger.some_target()
    if debugger.on_runtime is not None:
        return _runtime_gap(debugger, metric, count, sort)
    if not isinstance(target, RecordedRuns):
        return _live_gap(debugger, metric, count)
    from etscope.diagnosis.numerics import numerics_of

    with quiet():
        found = numerics_of(
            target.trace,
            metric=metric,
            method=debugger.method,
            run=target.chosen,
            inputs=debugger.given(debugger.method),
            bundle=debugger.files.bundle,
        )
    table = found.table(sort)
    table = table.take(range(min(count, len(table))))
    answer = Answer(finding=not found.is_fine)
    has_passes = any(table.values["pass"])
    columns = (_COLUMNS[0], "pass", *_COLUMNS[1:]) if has_passes else _COLUMNS
    return answer.table(table, columns)


def _runtime_gap(debugger: Debugger, metric: str, count: int, sort: str) -> Answer:
    """What has run so far on the runtime, stop by stop beside the reference."""
    target = debugger.some_target()
    found = find_metric(metric)
    gaps = gaps_so_far(debugger, target, metric)
    rows = [
        (stop, gaps[stop.position])
        for stop in target.stops[: len(gaps)]
        if gaps[stop.position].total is not None
    ]
    if not rows:
        raise MissingDataError(
            "no operator that ran has a value in the reference",
            hint="the ETRecord tells which node each of them is",
        )
    if sort == "error":
        rows.sort(key=lambda row: (-_badness(found, row[1]), row[0].position))
    has_passes = any(stop.loop_pass for stop, _ in rows)
    shown = rows[:count]
    columns = (
        Column("stop", Kind.INT),
        Column("instruction", Kind.INT, priority=2),
        *([Column("pass", Kind.INT)] if has_passes else []),
        Column("node"),
        Column("op", priority=2),
        Column("total", Kind.FLOAT, unit=found.unit or None),
        Column("local", Kind.FLOAT, unit=found.unit or None),
        Column("source", Kind.PATH, priority=1),
    )
    values: dict[str, list[Any]] = {
        "stop": [stop.position for stop, _ in shown],
        "instruction": [stop.instruction for stop, _ in shown],
        "pass": [stop.loop_pass for stop, _ in shown],
        "node": [stop.node or stop.name for stop, _ in shown],
        "op": [stop.op for stop, _ in shown],
        "total": [gap.total for _, gap in shown],
        "local": [gap.local for _, gap in shown],
        "source": [str(next(iter(stop.lines), "")) for stop, _ in shown],
    }
    notes = [f"{len(rows) - count} more; gap {metric} N shows N"] if len(rows) > count else []
    unknown = len(gaps) - len(rows)
    if unknown:
        notes.append(f"{unknown:,} of {operators(len(gaps))} without a value in the reference")
    return Answer().table(
        Table(
            columns,
            {column.name: values[column.name] for column in columns},
            title=f"{found.title}: the run on the runtime against the reference",
            notes=tuple(notes),
        )
    )


def _badness(metric: Metric, gap: Gap) -> float:
    """By the operator's own error, where it is known."""
    return metric.badness(gap.total if gap.local is None else gap.local)


def _live_gap(debugger: Debugger, metric: str, count: int) -> Answer:
    """What has run so far against the plain reference."""
    target = debugger.some_target()
    found = find_metric(metric)
    until = debugger.position if debugger.position is not None else -1
    rows = []
    for stop in target.stops[: until + 1]:
        try:
            reference = debugger.reference.value(stop.name, stop.loop_pass)
        except EtscopeError:
            continue
        values = target.device_values(stop.position)
        number = gap_between(found, reference, values[0] if len(values) == 1 else values)
        rows.append((stop.position, stop.name, stop.op, number, str(next(iter(stop.lines), ""))))
    if not rows:
        raise MissingDataError("nothing has run yet", hint="run, or start")
    rows.sort(key=lambda row: (-found.badness(row[3]), row[0]))
    columns = (
        Column("stop", Kind.INT),
        Column("node"),
        Column("op", priority=2),
        Column(found.name, Kind.FLOAT, unit=found.unit or None),
        Column("source", Kind.PATH, priority=1),
    )
    table = Table(
        columns,
        {column.name: [row[i] for row in rows[:count]] for i, column in enumerate(columns)},
        title="the live run against the plain reference",
    )
    if len(rows) > count:
        table = replace(table, notes=(f"{len(rows) - count} more; gap {metric} N shows N",))
    return Answer().table(table)
