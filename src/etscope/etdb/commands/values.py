"""Tensors: looking at them, and putting others in their place."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from etscope.analysis.metrics import Metric, find_metric
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.commands.registry import command, whole
from etscope.etdb.debugger import Debugger, Gap
from etscope.etdb.expressions.expression import HANDLE, Expression, evaluate, parse
from etscope.etdb.expressions.scope import (
    DebuggerScope,
    decided,
    displayed,
    gap_between,
    gaps_so_far,
    only,
)
from etscope.etdb.output import Output, operators, value_lines
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.remote_tensor import part
from etscope.etdb.targets.target import is_far
from etscope.model.table import Column, Kind, Table
from etscope.quiet import quiet
from etscope.units import format_bytes, format_float

GROUP = "values"
_MOST_SHOWN = 4096
_MOST_FETCHED = 16 << 20  # bytes of a tensor that nobody asked for as a whole
_SET = re.compile(r"(%\d+|\$\w+|value\(\s*\d+\s*\)|[A-Za-z_][\w./]*)\s*=(?!=)\s*(.*)", re.DOTALL)
_FORMATS = {"f": "{:>13.6g}", "e": "{:>14.6e}", "d": "{:>12d}", "x": "{:>18}"}


@command("print[/f] EXPR", group=GROUP, aliases=("p", "inspect"), words=("node",))
def print_(debugger: Debugger, rest: str) -> Output:
    """Show the value of an expression over tensors (help expressions).

    A name of a node alone, `%HANDLE` or `$` is shown with the reference's value and their gap,
    where there are both. `print/f` shows all numbers.
    """
    full = rest.startswith("/")
    if full:
        option, _, rest = rest[1:].partition(" ")
        if option != "f":
            raise UsageError(f"print has no option /{option}", hint="print/f shows all numbers")
    expression = parse(rest or "$")
    scope = DebuggerScope(debugger)
    value = evaluate(expression, scope)
    answer = Output().say(*value_lines(value, full=full))
    return answer.say(*_beside(debugger, expression, scope, value))


def _beside(
    debugger: Debugger, expression: Expression, scope: DebuggerScope, value: Any
) -> list[str]:
    """The other side of an expression that is no more than a name: of the device's run the
    reference's value, of the reference's the recorded one; and the gap between them."""
    text = expression.text
    if not re.fullmatch(r"\$|%\d+|[A-Za-z_]\w*", text):
        return []
    name = None if text == "$" else next(expression.names())
    of_device = not debugger.some_target().is_reference
    if not (debugger.can_compare if of_device else debugger.recorded is not None):
        return []
    what = "reference" if of_device else "device"
    try:
        other = scope.reference(name) if of_device else scope.device(name)
    except EtscopeError as error:
        return [f"{what}: ({error.message})"]
    outputs = scope.outputs_here() if text == "$" else []
    if outputs:
        return [
            line
            for number, pair in enumerate(outputs)
            if pair is not None
            for line in (
                f"[{number}] is {pair.node}",
                *_both(what, other[number], value[number], own_first=not of_device),
            )
        ]
    return _both(what, other, value, own_first=not of_device)


def _both(what: str, other: Any, value: Any, *, own_first: bool) -> list[str]:
    """The other value, and the gap between the two."""
    reference, own = (value, other) if own_first else (other, value)
    if is_far(own) and own.nbytes > _MOST_FETCHED:
        told = f"of {format_bytes(own.nbytes)}, which print gap(sqnr) fetches"
        return [f"{what}: {value_lines(other)[0]}", f"gap: {told}"]
    gaps = []
    for metric in ("sqnr", "max_abs"):
        found = find_metric(metric)
        try:
            number = decided(found, reference, own)
        except EtscopeError:
            continue
        if number is not None:
            gaps.append(f"{found.title} {format_float(number)} {found.unit}".rstrip())
    return [f"{what}: {value_lines(other)[0]}", *(["gap: " + " · ".join(gaps)] if gaps else [])]


@command("x[/COUNTf] EXPR", group=GROUP, words=("node",))
def x(debugger: Debugger, rest: str) -> Output:
    """Show numbers of a tensor one by one with their indices: `x/8f conv[0]`.

    Formats: f (the default), e, d (whole numbers), x (the bits). COUNT is 8 by default.
    """
    match = re.match(r"/(\d{0,6})([a-z]?)\s+", rest + " ")
    count, form, text = 8, "f", rest
    if match is not None:
        count, form = whole(match[1], 8), match[2] or "f"
        text = rest[match.end() :]
    if form not in _FORMATS:
        raise UsageError(f"there is no format {form!r}", hint="formats are f, e, d and x")
    if count > _MOST_SHOWN:
        raise UsageError(f"{_MOST_SHOWN} numbers at most")
    value = evaluate(parse(text.strip() or "$"), DebuggerScope(debugger))
    shape = tuple(np.shape(value))
    array = part(value, count) if is_far(value) else np.asarray(value)
    if array.dtype.kind not in "biufV":
        raise UsageError("this is no tensor")
    flat = array.reshape(-1)[:count]
    per_line = 4 if form in "fdx" else 3
    answer = Output()
    for start in range(0, len(flat), per_line):
        index = np.unravel_index(start, shape) if shape else ()
        place = "[" + ", ".join(str(int(i)) for i in index) + "]"
        cells = "".join(_cell(item, form) for item in flat[start : start + per_line])
        answer.say(f"{place:<16}{cells}")
    if not len(flat):
        answer.say("empty")
    return answer


def _cell(item: Any, form: str) -> str:
    if form == "x":
        return _FORMATS[form].format("0x" + item.tobytes()[::-1].hex())
    if form == "d":
        number = float(item)
        return (
            f"{number:>12}"
            if number != number or abs(number) == float("inf")
            else (_FORMATS[form].format(int(number)))
        )
    return _FORMATS[form].format(float(item))


@command("display [EXPR]", group=GROUP, words=("node",))
def display(debugger: Debugger, rest: str) -> Output:
    """Show an expression at every stop; without one, show all that are displayed."""
    if rest:
        number = max(debugger.displays, default=0) + 1
        debugger.displays[number] = parse(rest)
        shown = {number: debugger.displays[number]} if debugger.stop is not None else {}
    else:
        shown = debugger.displays
    answer = Output()
    for number, expression in shown.items():
        answer.say(*displayed(debugger, number, expression))
    return answer


@command("undisplay [N …]", group=GROUP)
def undisplay(debugger: Debugger, rest: str) -> Output:
    """Do not show an expression at every stop any more; none of them without a number."""
    numbers = [whole(word) for word in rest.split()] or list(debugger.displays)
    for number in numbers:
        if number not in debugger.displays:
            raise UsageError(f"nothing is displayed as {number}")
        del debugger.displays[number]
    return Output()


@command("set %HANDLE|NODE|$NAME = EXPR", group="values", words=("node", "logging", "times"))
def set_(debugger: Debugger, rest: str) -> Output:
    """Put another value in the place of a node's, in a run that goes on: live, or on the runtime.
    What follows is computed from it.

    `set %12 = ref(%12) * 0`, `set $ = device($)`; on the runtime also `set value(12) = 0`, a value
    by its index. `set $x = EXPR` keeps a value under a name.
    `set logging FILE` writes the session to a file, `set logging off` ends that. `set times off`
    leaves times out, so that a transcript is the same each time.
    """
    word, _, path = rest.partition(" ")
    if word == "logging":
        return _logging(debugger, path.strip())
    if word == "times" and path.strip() in ("on", "off"):
        debugger.shows_times = path.strip() == "on"
        return Output()
    match = _SET.fullmatch("$here" + rest[1:] if re.match(r"\$\s*=", rest) else rest)
    if match is None:
        raise UsageError(
            f"cannot read {rest!r}", hint="set %12 = EXPR, set NODE = EXPR, or set $x = EXPR"
        )
    name, text = match[1], match[2]
    value = evaluate(parse(text), DebuggerScope(debugger))
    if name.startswith("$") and name != "$here":
        if name[1:].isdecimal():
            raise UsageError("a name begins with a letter: set $x = EXPR")
        debugger.variables[name[1:]] = value
        return Output()
    target = debugger.some_target()
    stop = debugger.here()
    node: str | int
    if name == "$here":
        # Of a delegate's call all outputs are meant, which are several nodes' values.
        node = "" if DebuggerScope(debugger).outputs_here() else stop.path or ""
    elif name.startswith("value("):
        node = int(name[len("value(") : -1])
    elif name.startswith("%"):
        node = DebuggerScope(debugger).node_of_handle(int(name[1:]))
    else:
        node = debugger.path_named(name)
    try:
        target.patch(node, stop.position, value)
    except EtscopeError:
        # With the new value an operator on the way back may have failed.
        if target is debugger.on_runtime:
            debugger.stand()
        raise
    finally:
        debugger.gaps.clear()
    named = f"value({node})" if isinstance(node, int) else node or stop.path or stop.name
    return Output().say(f"{named} = " + value_lines(value)[0])


def _logging(debugger: Debugger, path: str) -> Output:
    if path in ("", "on"):
        path = "etdb.log"
    if path == "off":
        debugger.logging = None
        return Output()
    try:
        with open(path, "a"):  # noqa: PTH123 (a path as it was typed)
            pass
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}") from error
    debugger.logging = path
    return Output().say(f"logging to {path}")


@command("call NODE", group=GROUP, words=("node",))
def call(debugger: Debugger, rest: str) -> Output:
    """Run a node's operator in PyTorch on the values that the run has of its inputs.

    What differs from the run's own value is then the operator's own, local error. Of inputs that
    the run has no value of, the reference's are taken, and named. With anything else than a name it
    is as print.
    """
    name = rest.strip()
    if name in ("", "$"):
        name = debugger.here().path or ""
    elif name.startswith("%") and name[1:].isdecimal():
        name = DebuggerScope(debugger).node_of_handle(int(name[1:]))
    elif not re.fullmatch(r"[A-Za-z_][\w/]*", name) or name.startswith(HANDLE):
        return print_(debugger, rest)
    name = debugger.path_named(name)
    node = debugger.node_named(name)
    if node.kind != "call_function":
        raise UsageError(f"{name} is a {node.kind}: nothing is called")
    scope = DebuggerScope(debugger)
    result = only(debugger.reference.call(name, lambda used: scope.value_for_call(used)))
    answer = Output().say(*value_lines(result))
    if scope.not_the_run:
        names = ", ".join(dict.fromkeys(scope.not_the_run))
        answer.say(f"of the reference, since the run has no value of it: {names}")
    try:
        own = scope.value_for_call(name)
    except EtscopeError as error:
        return answer.say(f"the run has no value of it: {error.message}")
    found = find_metric("sqnr")
    number = decided(found, result, own)
    if number is not None:
        answer.say(
            f"the run's own value is {format_float(number)} {found.unit} from it ({found.title})"
        )
    return answer


_COLUMNS = ("instruction", "op", "node", "total", "local", "verdict", "source")


@command("gap [METRIC] [N|run]", group=GROUP, aliases=("numerics",), words=("metric", "run"))
def gap(debugger: Debugger, rest: str) -> Output:
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
    answer = Output(finding=not found.is_fine)
    has_passes = any(table.values["pass"])
    columns = (_COLUMNS[0], "pass", *_COLUMNS[1:]) if has_passes else _COLUMNS
    return answer.table(table, columns)


def _runtime_gap(debugger: Debugger, metric: str, count: int, sort: str) -> Output:
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
    return Output().table(
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


def _live_gap(debugger: Debugger, metric: str, count: int) -> Output:
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
    return Output().table(table)
