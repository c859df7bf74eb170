"""Compare the run with the reference: the distance of each operator, and the first wrong one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from etscope.analysis.metrics import METRICS, Metric, find_metric
from etscope.analysis.numerics.diagnose import KeptValues
from etscope.analysis.numerics.rows import Numerics
from etscope.analysis.numerics.runs import runs_of
from etscope.analysis.numerics.value_report import value_sections
from etscope.analysis.numerics.values import channel_axis, compare_values, quantized_range
from etscope.analysis.profile.trace import Trace
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.commands import command, whole
from etscope.etdb.debugger import Debugger
from etscope.etdb.expression import evaluate, parse
from etscope.etdb.output import Output, source_text
from etscope.etdb.scope import (
    DebuggerScope,
    gap_between,
    single,
    values_read,
)
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.reference import load_torch
from etscope.etdb.targets.runtime import RuntimeTarget
from etscope.etdb.targets.target import open_record
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import read_etdump
from etscope.model.table import Column, Kind, Table
from etscope.support.quiet import quiet

GROUP = "values"
_STATE_IS_OFF = 60.0  # dB, far from what rounding leaves in many calls
_COLUMNS = [
    "instruction",
    "pass",
    "op",
    "node",
    "total",
    "local",
    "verdict",
    "non_finite",
    "source",
]
_IF_ANY = ("pass", "non_finite")  # columns that are shown if they have something


@command("blame [METRIC]", group=GROUP, words=("metric",))
def blame(debugger: Debugger, rest: str) -> Output:
    """Say which operator goes wrong first, and by itself: the verdict of `etscope numerics`.

    Each operator is computed again in PyTorch, from the run's own values, and in float64, which
    shows how much of a difference is rounding. METRIC is sqnr by default (help metrics). A recorded
    run is judged as a whole, a run on the runtime up to here; for that, it is repeated with tracing
    unless the target is --traced.
    """
    metric = find_metric(rest or "sqnr")
    found = _judged(debugger, metric)
    if found is None:
        raise UsageError(
            "a live run is PyTorch itself: no operator of it goes wrong",
            hint="choose target runtime or target recorded. gap shows what set has changed",
        )
    output = Output()
    if (failed := debugger.failed) is not None:
        output.say(f"the device failed: {failed}")
    output.say(*found.notes)
    output.finding = not found.is_fine
    first = found.first or found.stray_nan
    if first is not None:
        output.say(*(f"    {source_text(line)}" for line in first.lines[:1]))
    return output


def _judged(debugger: Debugger, metric: Metric) -> Numerics | None:
    """The verdict on the run, a recorded one or one on the runtime; None for a live run."""
    target = debugger.some_target()
    if isinstance(target, RecordedRuns):
        return _of_recorded(debugger, target, metric)
    return of_runtime(debugger, target, metric) if isinstance(target, RuntimeTarget) else None


def _of_recorded(debugger: Debugger, target: RecordedRuns, metric: Metric) -> Numerics:
    from etscope.diagnosis.numerics import RunToCompare, numerics_of

    open_record(debugger.capture)  # raises
    target.require_values()  # before PyTorch is loaded
    load_torch()
    calls = debugger.given(debugger.method)
    with quiet():
        asked = RunToCompare(
            metric=metric.name,
            method=debugger.method,
            run=target.chosen,
            inputs=target.given_inputs(calls, debugger.files.bundle) if calls else None,
            previous=target.earlier_inputs(calls, None) if len(calls) > 1 else None,
            bundle=debugger.files.bundle,
        )
        return numerics_of(target.trace, asked)


def of_runtime(debugger: Debugger, target: RuntimeTarget, metric: Metric) -> Numerics:
    """Judge the operators of the run up to here, from its core, starting with the state that the
    runtime had at the beginning.
    """
    from etscope.diagnosis.numerics import PreparedNumerics

    record = open_record(debugger.capture)
    if target.position is None:
        raise MissingDataError("nothing has run yet", hint="run, or start")
    core = target.core()
    trace = Trace(
        read_etdump(core.etdump),
        record,
        DebugBuffer.open(core.debug_buffer),
        debugger.program,
        forced=debugger.forced,
    )
    trace.check_debug_buffer()
    if not debugger.forced:
        trace.verify()
    state = target.first_state()
    load_torch()
    with quiet():
        prepared = PreparedNumerics(trace, target.method, metric=metric, kept=KeptValues())
        memory = prepared.memory()
        doubts: tuple[str, ...] = ()
        if prepared.keeps_state:
            for inputs in target.earlier_inputs((), None):
                prepared.go_on(trace, None, inputs, memory)
            doubts = _doubts_of_state(state, memory.reference, target.run)
            memory.take_device_state(state)
        run = runs_of(trace, target.method)[0]
        found = prepared.diagnose(trace, run, target.given_inputs((), None), memory)
        return replace(found, doubts=(*found.doubts, *doubts))


def _doubts_of_state(
    state: Mapping[str, Any], reference: Mapping[str, Any], run: int
) -> tuple[str, ...]:
    """Say that what went wrong may have done so in a run before."""
    metric = find_metric("sqnr")
    off = [
        name
        for name, value in state.items()
        if name in reference
        and (gap_between(metric, np.asarray(reference[name]), value) or 0) < _STATE_IS_OFF
    ]
    if not off:
        return ()
    return (
        f"run {run} began in a state that is not the reference's ({', '.join(off)}): the runs "
        "before it have the reason",
    )


@command(
    "gap [METRIC] [N] [run] | gap NODE|%HANDLE|$ [local]",
    group=GROUP,
    aliases=("numerics",),
    words=("metric", "run", "node"),
)
def gap(debugger: Debugger, rest: str) -> Output:
    """Compare the device's values with the reference, the worst local error first; or show one
    value next to the reference's.

    `gap NODE`, `gap %12` and `gap $` show the distribution of both, the error by channel, the worst
    elements, and scale and zero point of a quantized value; with `local`, compared with what
    PyTorch computes from the run's own inputs.

    METRIC is sqnr by default (help metrics). `total` compares with the reference; `local`, the
    operator's own error, with PyTorch's result for the device's inputs. At most N rows (15); with
    `run`, in order of execution. On the runtime, all operators that have run are compared; the run
    is repeated for it, with tracing. A live run with replaced values is compared with the plain
    reference. `blame` says which operator goes wrong first.
    """
    first, _, more = rest.strip().partition(" ")
    path = _node_named(debugger, first)
    if path is not None:
        if more.strip() not in ("", "local"):
            raise UsageError(
                f"cannot read {more.strip()!r}", hint=f"gap {first}, gap {first} local"
            )
        return _value_beside(debugger, first, path, local=bool(more.strip()))
    name, count, in_order = "sqnr", 15, False
    for word in rest.split():
        if word.isdecimal():
            count = whole(word)
            if not count:
                raise UsageError("the number of rows must be at least 1")
        elif word == "run":
            in_order = True
        else:
            name = word
    metric = find_metric(name)
    output = Output()
    found = _judged(debugger, metric)
    if found is None:
        table = _live_gaps(debugger, metric, in_order)
    else:
        output.finding = not found.is_fine
        table = found.table("run" if in_order else "error")
        empty = {name for name in _IF_ANY if not any(table.values[name])}
        table = table.select([name for name in _COLUMNS if name not in empty])
    total = len(table)
    if total > count:
        words = f"gap {name} {total} run" if in_order else f"gap {name} {total}"
        notes = (*table.notes, f"{total - count:,} more rows: {words} shows all")
        table = replace(table.take(range(count)), notes=notes)
    return output.table(table)


def _node_named(debugger: Debugger, word: str) -> str | None:
    """The path of a node that a word names; None for any other word, "" if it is not known."""
    if word == "$":
        return debugger.here().path or ""
    if word.startswith("%") and word[1:].isdecimal():
        return DebuggerScope(debugger).node_of_handle(int(word[1:]))
    if not word or word.isdecimal() or word == "run" or word in METRICS:
        return None
    try:
        return debugger.path_named(word)
    except EtscopeError:
        return None  # an unknown metric, to say so


def _value_beside(debugger: Debugger, word: str, path: str, *, local: bool) -> Output:
    """Show the run's value of a node next to the reference's, or PyTorch's from the same inputs."""
    scope = DebuggerScope(debugger)
    load_torch()
    is_node = not word.startswith(("$", "%"))
    value = scope.value(path) if is_node else evaluate(parse(word), scope)
    if local:
        if not path:
            raise MissingDataError("no node of the graph is known for this operator")
        expected = single(debugger.reference.call(path, scope.value_for_call))
    else:
        expected = scope.reference(None if word == "$" else path)
    outputs = scope.outputs_here() if word == "$" and not local else []
    pairs = [(path, expected, value)]
    if isinstance(value, (list, tuple)):
        if not isinstance(expected, (list, tuple)) or len(expected) != len(value):
            raise MissingDataError(
                f"{word} has {len(value)} values, but the reference's value has another "
                "number of values"
            )
        nodes = [path if one is None else one.node for one in outputs] or [path] * len(value)
        pairs = list(zip(nodes, expected, value, strict=True))
    graph = debugger.edge(debugger.method).graph
    against = "PyTorch's result from the run's inputs" if local else "the reference"
    output = Output()
    for number, (node, one, other) in enumerate(pairs):
        if one is None or other is None or not np.size(other):
            continue
        op = graph.calls[node].op if node in graph.calls else ""
        compared = compare_values(
            one,
            np.asarray(other),
            axis=channel_axis(op, np.ndim(other)),
            quantized=quantized_range(graph, node),
        )
        which = f"{node}[{number}]" if len(pairs) > 1 and not outputs else node
        output.items += value_sections(compared, f"{which}: the run against {against}", bars=True)
    if not output.items:
        raise MissingDataError(f"{word} has no elements to compare")
    return output.say(*scope.inputs_of_reference)


def _live_gaps(debugger: Debugger, metric: Metric, in_order: bool) -> Table:
    """Compare what has run so far of a live run with the plain reference."""
    target = debugger.some_target()
    until = debugger.position if debugger.position is not None else -1
    rows = []
    for stop in target.stops[: until + 1]:
        try:
            reference = debugger.reference.value(stop.name, stop.loop_pass)
        except EtscopeError:
            continue
        values = target.device_values(stop.position)
        pair = reference, values[0] if len(values) == 1 else values
        number = gap_between(metric, *(values_read(debugger, stop.name, one) for one in pair))
        rows.append((stop.position, stop.name, stop.op, number, str(next(iter(stop.lines), ""))))
    if not rows:
        raise MissingDataError("nothing has run yet", hint="run, or start")
    if not in_order:
        rows.sort(key=lambda row: (-metric.badness(row[3]), row[0]))
    columns = (
        Column("stop", Kind.INT),
        Column("node"),
        Column("op", priority=2),
        Column(metric.name, Kind.FLOAT, unit=metric.unit or None),
        Column("source", Kind.PATH, priority=1),
    )
    return Table.of_rows(columns, rows, title="the live run against the plain reference")
