"""Values: show and change them, and compare them with the reference."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from etscope.analysis.metrics import Metric, find_metric
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.commands.registry import command, whole
from etscope.etdb.debugger import Debugger
from etscope.etdb.expressions.expression import HANDLE, Expression, evaluate, parse
from etscope.etdb.expressions.scope import (
    DebuggerScope,
    display_lines,
    gap_between,
    gaps_so_far,
    single,
    values_read,
)
from etscope.etdb.output import Output, counted, operators, value_lines
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.reference import load_torch
from etscope.etdb.targets.remote_tensor import RemoteTensor, leading_part
from etscope.model.table import Column, Kind, Table
from etscope.quiet import quiet
from etscope.units import format_bytes, format_float

GROUP = "values"
_MOST_SHOWN = 4096
_MOST_FETCHED = 16 << 20  # bytes of a tensor that is fetched for its gap without being asked for
_SET = re.compile(r"(%\d+|\$\w*|value\(\s*\d+\s*\)|[A-Za-z_][\w./]*)\s*=(?!=)\s*(.*)", re.DOTALL)
_FORMATS = {"f": "{:>13.6g}", "e": "{:>14.6e}", "d": "{:>12d}", "x": "{:>18}"}
_COLUMNS = ("instruction", "op", "node", "total", "local", "verdict", "source")


@command("print[/f] EXPR", group=GROUP, aliases=("p", "inspect"), words=("node",))
def print_(debugger: Debugger, rest: str) -> Output:
    """Show the value of an expression over tensors (help expressions).

    For the name of a node alone, `%HANDLE` or `$`, the reference's value and the gap between them
    are shown, too, if there are both. `print/f` shows all numbers, with all of their digits.
    """
    full = rest.startswith("/")
    if full:
        option, _, rest = rest[1:].partition(" ")
        if option != "f":
            raise UsageError(f"print has no option /{option}", hint="print/f shows all numbers")
    expression = parse(rest or "$")
    scope = DebuggerScope(debugger)
    value = evaluate(expression, scope)
    output = Output().say(*value_lines(value, full=full))
    return output.say(*_comparison(debugger, expression, scope, value))


def _comparison(
    debugger: Debugger, expression: Expression, scope: DebuggerScope, value: Any
) -> list[str]:
    """Compare the value of a bare name: the device's with the reference, the reference's with the
    dump. Empty for other expressions, and without anything to compare with."""
    text = expression.text
    if not re.fullmatch(r"\$|%\d+|[A-Za-z_]\w*", text):
        return []
    name = None if text == "$" else next(expression.names(), "")
    if name == "":  # True, nan
        return []
    of_device = not debugger.some_target().is_reference
    if not (debugger.can_compare if of_device else debugger.recorded is not None):
        return []
    what = "reference" if of_device else "device"
    try:
        other = scope.reference(name) if of_device else scope.device(name)
    except EtscopeError as error:
        return [f"{what}: ({error.message})"]

    def compared(other: Any, value: Any) -> list[str]:
        reference, device = (other, value) if of_device else (value, other)
        lines = [f"{what}: {value_lines(other)[0]}"]
        if isinstance(device, RemoteTensor) and device.nbytes > _MOST_FETCHED:
            size = format_bytes(device.nbytes)
            return [*lines, f"gap: of {size}, which print gap(sqnr) fetches"]
        gaps = []
        for metric in map(find_metric, ("sqnr", "max_abs")):
            try:
                number = gap_between(metric, reference, device)
            except EtscopeError:
                continue
            if number is not None:
                gaps.append(f"{metric.title} {format_float(number)} {metric.unit}".rstrip())
        return [*lines, "gap: " + " · ".join(gaps)] if gaps else lines

    outputs = scope.outputs_here() if text == "$" else []
    if not outputs:
        return compared(other, value)
    lines = []
    for number, pair in enumerate(outputs):
        if pair is not None:
            lines += [f"[{number}] is {pair.node}", *compared(other[number], value[number])]
    return lines


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
    if isinstance(value, (list, tuple)) and any(np.ndim(item) for item in value):
        places = ", ".join(f"${number}" for number in range(len(value)))
        raise UsageError("this is a list of outputs", hint=f"show one of them: {places}")
    shape = tuple(np.shape(value))
    array = leading_part(value, count) if isinstance(value, RemoteTensor) else np.asarray(value)
    if array.dtype.kind not in "biufV":
        raise UsageError("this is not a tensor")

    def cell(item: Any) -> str:
        if form == "x":
            return _FORMATS[form].format("0x" + item.tobytes()[::-1].hex())
        number = float(item)
        if form == "d" and not np.isfinite(number):
            return f"{number:>12}"
        return _FORMATS[form].format(int(number) if form == "d" else number)

    flat = array.reshape(-1)[:count]
    per_line = 4 if form in "fdx" else 3
    output = Output()
    for start in range(0, len(flat), per_line):
        index = np.unravel_index(start, shape) if shape else ()
        place = "[" + ", ".join(str(int(i)) for i in index) + "]"
        output.say(f"{place:<16}" + "".join(map(cell, flat[start : start + per_line])))
    if not len(flat):
        output.say("empty")
    return output


@command("display [EXPR]", group=GROUP, words=("node",))
def display(debugger: Debugger, rest: str) -> Output:
    """Show an expression at every stop; without one, show all that are displayed."""
    if rest:
        number = max(debugger.displays, default=0) + 1
        debugger.displays[number] = parse(rest)
        shown = {number: debugger.displays[number]} if debugger.stop is not None else {}
    else:
        shown = debugger.displays
    output = Output()
    for number, expression in shown.items():
        output.say(*display_lines(debugger, number, expression))
    return output


@command("undisplay [N …]", group=GROUP)
def undisplay(debugger: Debugger, rest: str) -> Output:
    """Stop showing an expression at every stop; without a number, all of them."""
    numbers = [whole(word) for word in rest.split()] or list(debugger.displays)
    for number in numbers:
        if number not in debugger.displays:
            raise UsageError(f"nothing is displayed as {number}")
        del debugger.displays[number]
    return Output()


@command("set %HANDLE|NODE|$NAME = EXPR", group=GROUP, words=("node", "logging", "times"))
def set_(debugger: Debugger, rest: str) -> Output:
    """Replace the value of a node, in a live run or on the runtime. Everything after it is computed
    from the new value.

    `set %12 = ref(%12) * 0`, `set $ = device($)`, `set $1 = nan` (the second output of the
    operator); on the runtime also `set value(12) = 0`, a value by its index. `set $x = EXPR` stores
    a value under a name.
    `set logging FILE` writes the session to a file until `set logging off`. `set times off` omits
    times, so that transcripts can be compared.
    """
    word, _, setting = rest.partition(" ")
    setting = setting.strip()
    if word == "logging":
        return _set_logging(debugger, setting)
    if word == "times" and setting in ("on", "off"):
        debugger.shows_times = setting == "on"
        return Output()
    match = _SET.fullmatch(rest)
    if match is None:
        raise UsageError(
            f"cannot read {rest!r}", hint="set %12 = EXPR, set NODE = EXPR, or set $x = EXPR"
        )
    name, text = match[1], match[2]
    value = evaluate(parse(text), DebuggerScope(debugger))
    output = name.removeprefix("$") if name.startswith("$") else None
    if output and not output.isdecimal():
        debugger.variables[output] = value
        return Output()
    target = debugger.some_target()
    stop = debugger.here()
    node: str | int
    new = value
    if output == "":
        # "": all outputs of a delegate's call, which are values of several nodes.
        node = "" if DebuggerScope(debugger).outputs_here() else stop.path or ""
    elif output is not None:
        node, number = "", int(output)
        count = len(target.device_values(stop.position))
        if number >= count:
            raise UsageError(f"the operator gave {counted(count, 'value')}: $0 is the first")
        if count > 1:  # None leaves a value as it is
            new = [value if at == number else None for at in range(count)]
    elif name.startswith("value("):
        node = int(name[len("value(") : -1])
    elif name.startswith("%"):
        node = DebuggerScope(debugger).node_of_handle(int(name[1:]))
    else:
        node = debugger.path_named(name)
    try:
        target.patch(node, stop.position, new)
    except EtscopeError:
        # The new value may have made an operator fail on the way back to the stop.
        if target is debugger.on_runtime:
            debugger.follow_target()
        raise
    finally:
        debugger.gaps.clear()
    named = f"value({node})" if isinstance(node, int) else node or stop.path or stop.name
    named = name if output else named
    return Output().say(f"{named} = " + value_lines(value)[0])


def _set_logging(debugger: Debugger, path: str) -> Output:
    if path == "off":
        debugger.logging = None
        return Output()
    if path in ("", "on"):
        path = "etdb.log"
    try:
        with open(path, "a"):  # noqa: PTH123 (a path as it was typed)
            pass
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}") from error
    debugger.logging = path
    return Output().say(f"logging to {path}")


@command("call NODE", group=GROUP, words=("node",))
def call(debugger: Debugger, rest: str) -> Output:
    """Run a node's operator in PyTorch on the run's values of its inputs.

    The difference from the run's own value is the operator's local error. For inputs without a
    value in the run, the reference's are used, and named. An argument that is not a name is printed
    as by `print`.
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
    result = single(debugger.reference.call(name, scope.value_for_call))
    output = Output().say(*value_lines(result))
    if scope.from_reference:
        names = ", ".join(dict.fromkeys(scope.from_reference))
        output.say(f"of the reference, since the run has no value of it: {names}")
    try:
        own = scope.value_for_call(name)
    except EtscopeError as error:
        return output.say(f"the run has no value of it: {error.message}")
    metric = find_metric("sqnr")
    number = gap_between(metric, result, own)
    if number is not None:
        output.say(
            f"the run's own value is {format_float(number)} {metric.unit} from it ({metric.title})"
        )
    return output


@command("gap [METRIC] [N] [run]", group=GROUP, aliases=("numerics",), words=("metric", "run"))
def gap(debugger: Debugger, rest: str) -> Output:
    """Compare the device's values with the reference, the worst local error first.

    METRIC is sqnr by default (help metrics). `total` compares with the reference; `local`, the
    operator's own error, with PyTorch's result for the device's inputs. At most N rows (15); with
    `run`, in order of execution. On the runtime, all operators that have run are compared, without
    outputs that nothing reads; the run is repeated for it. A live run with replaced values is
    compared with the plain reference.
    """
    name, count, in_order = "sqnr", 15, False
    for word in rest.split():
        if word.isdecimal():
            count = whole(word)
        elif word == "run":
            in_order = True
        else:
            name = word
    metric = find_metric(name)
    target = debugger.some_target()
    output = Output()
    if debugger.on_runtime is not None:
        table = _runtime_gaps(debugger, metric, in_order)
    elif not isinstance(target, RecordedRuns):
        table = _live_gaps(debugger, metric, in_order)
    else:
        from etscope.diagnosis.numerics import numerics_of

        load_torch()
        with quiet():
            found = numerics_of(
                target.trace,
                metric=name,
                method=debugger.method,
                run=target.chosen,
                inputs=debugger.given(debugger.method),
                bundle=debugger.files.bundle,
            )
        output.finding = not found.is_fine
        table = found.table("run" if in_order else "error")
        has_passes = any(table.values["pass"])
        table = table.select((_COLUMNS[0], "pass", *_COLUMNS[1:]) if has_passes else _COLUMNS)
    total = len(table)
    if total > count:
        words = f"gap {name} {total} run" if in_order else f"gap {name} {total}"
        notes = (*table.notes, f"{total - count:,} more rows: {words} shows all")
        table = replace(table.take(range(count)), notes=notes)
    return output.table(table)


def _runtime_gaps(debugger: Debugger, metric: Metric, in_order: bool) -> Table:
    """Compare what has run so far on the runtime with the reference."""
    target = debugger.some_target()
    gaps = gaps_so_far(debugger, target, metric.name)
    rows = [
        (stop, gaps[stop.position])
        for stop in target.stops[: len(gaps)]
        if gaps[stop.position].total is not None
    ]
    if not rows:
        raise MissingDataError(
            "no operator that ran has a value in the reference",
            hint="load the ETRecord, which has the node of each of them",
        )
    if not in_order:  # the worst first: by the operator's own error, if it is known
        badness = {
            stop.position: metric.badness(one.total if one.local is None else one.local)
            for stop, one in rows
        }
        rows.sort(key=lambda row: (-badness[row[0].position], row[0].position))
    unit = metric.unit or None
    has_passes = any(stop.loop_pass for stop, _ in rows)
    content: dict[Column, list[Any]] = {
        Column("stop", Kind.INT): [stop.position for stop, _ in rows],
        Column("instruction", Kind.INT, priority=2): [stop.instruction for stop, _ in rows],
        **({Column("pass", Kind.INT): [stop.loop_pass for stop, _ in rows]} if has_passes else {}),
        Column("node"): [stop.node or stop.name for stop, _ in rows],
        Column("op", priority=2): [stop.op for stop, _ in rows],
        Column("total", Kind.FLOAT, unit=unit): [one.total for _, one in rows],
        Column("local", Kind.FLOAT, unit=unit): [one.local for _, one in rows],
        Column("source", Kind.PATH, priority=1): [
            str(next(iter(stop.lines), "")) for stop, _ in rows
        ],
    }
    unknown = len(gaps) - len(rows)
    note = f"{unknown:,} of {operators(len(gaps))} without a value in the reference"
    return Table.of(
        content,
        title=f"{metric.title}: the run on the runtime against the reference",
        notes=(note,) if unknown else (),
    )


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
