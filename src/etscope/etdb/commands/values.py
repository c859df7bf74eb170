"""Values: show and change them, and compare them with the reference."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from etscope.analysis.metrics import find_metric
from etscope.errors import EtscopeError, UsageError
from etscope.etdb.commands import command, flag_of, whole
from etscope.etdb.debugger import Debugger
from etscope.etdb.expression import HANDLE, Expression, evaluate, parse, replaced_part
from etscope.etdb.output import Output, stop_lines, value_lines
from etscope.etdb.scope import (
    ALL,
    DebuggerScope,
    display_lines,
    gap_between,
    single,
)
from etscope.etdb.targets.remote_tensor import RemoteTensor, leading_part
from etscope.units import count as counted
from etscope.units import format_bytes, format_float

GROUP = "values"
_MOST_SHOWN = 4096  # numbers, four a line: more than a terminal keeps
MOST_FETCHED = 16 << 20  # bytes of a tensor that is fetched for its gap without being asked for
_SET = re.compile(
    r"(%\d+|\$\w*|value\(\s*\d+\s*\)|[A-Za-z_][\w./]*)\s*(\[[^=]*\])?\s*=(?!=)\s*(.*)", re.DOTALL
)
_FORMATS = {"f": "{:>13.6g}", "e": "{:>14.6e}", "d": "{:>12d}", "x": "{:>18}"}


@command("print[/f] EXPR", group=GROUP, aliases=("p", "inspect"), words=("node",))
def print_(debugger: Debugger, rest: str) -> Output:
    """Show the value of an expression over tensors (help expressions).

    For the name of a node alone, `%HANDLE` or `$`, the reference's value and the gap between them
    are shown, too, if there are both. `print/f` shows all numbers, with all of their digits.
    """
    full, rest = flag_of(rest, "print", "f", "shows all numbers")
    # The path of a node in a branch or loop, which etdb itself prints, would be a division.
    is_path = "/" in rest and debugger.record is not None and rest in debugger.nodes()
    expression = parse(f'value("{rest}")' if is_path else rest or "$")
    scope = DebuggerScope(debugger)
    value = evaluate(expression, scope)
    output = Output().say(*value_lines(value, full=full, width=debugger.columns()))
    output.values.append((expression.text, value))
    return output.add(_comparison(debugger, expression, scope, value))


def _comparison(
    debugger: Debugger, expression: Expression, scope: DebuggerScope, value: Any
) -> Output:
    """Compare the value of a bare name: the device's with the reference, the reference's with the
    dump. Empty for other expressions, and without anything to compare with."""
    text, output = expression.text, Output()
    if not re.fullmatch(r"\$|%\d+|[A-Za-z_]\w*", text):
        return output
    name = None if text == "$" else next(expression.names(), "")
    if name == "":  # True, nan
        return output
    of_device = not debugger.some_target().is_reference
    if not (debugger.can_compare if of_device else debugger.recorded is not None):
        return output
    what = "reference" if of_device else "device"
    if of_device and debugger.is_loading:
        return output.say(f"{what}: ({debugger.tell_of_loading()})")
    try:
        other = scope.reference(name) if of_device else scope.device(name)
    except EtscopeError as error:
        return output.say(f"{what}: ({error.message})")

    def compared(other: Any, value: Any, of: str = "") -> None:
        reference, device = (other, value) if of_device else (value, other)
        output.say(f"{what}: {value_lines(other)[0]}").values.append((what + of, other))
        if isinstance(device, RemoteTensor) and device.nbytes > MOST_FETCHED:
            size = format_bytes(device.nbytes)
            output.say(f"gap: not computed here; print gap(sqnr) fetches {size} for it")
            return
        gaps = []
        for metric in map(find_metric, ("sqnr", "max_abs")):
            try:
                number = gap_between(metric, reference, device)
            except EtscopeError:
                continue
            if number is not None:
                gaps.append(f"{metric.title} {format_float(number)} {metric.unit}".rstrip())
                output.values.append((f"gap {metric.name}{of}", number))
        if gaps:
            output.say("gap: " + " · ".join(gaps))

    outputs = scope.outputs_here() if text == "$" else []
    if not outputs:
        compared(other, value)
    for number, pair in enumerate(outputs):
        if pair is not None:
            output.say(f"[{number}] is {pair.node}")
            compared(other[number], value[number], f" [{number}]")
    return output


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
        raise UsageError(f"unknown format {form!r}", hint="formats are f, e, d and x")
    if count > _MOST_SHOWN:
        raise UsageError(f"{_MOST_SHOWN} numbers at most")
    value = evaluate(parse(text.strip() or "$"), DebuggerScope(debugger))
    if isinstance(value, (list, tuple)) and any(np.ndim(item) for item in value):
        places = ", ".join(f"${number}" for number in range(len(value)))
        raise UsageError(
            "x shows one value, and this is a list of outputs", hint=f"show one of them: {places}"
        )
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


@command("set %HANDLE|NODE|$NAME[INDEX] = EXPR", group=GROUP, words=("node", "times"))
def set_(debugger: Debugger, rest: str) -> Output:
    """Replace the value of a node, in a live run or on the runtime. Everything after it is computed
    from the new value.

    `set %12 = ref(%12) * 0`, `set $ = device($)`, `set $1 = nan` (the second output of the
    operator), `set $[0, :4] = 5` (elements or slices); on the runtime also `set value(12) = 0`, a
    value by its index. `set $x = EXPR` stores a value under a name.
    `set times off` omits times, so that transcripts can be compared.
    """
    word, setting = (part.strip() for part in rest.partition(" ")[::2])
    if word == "times" and setting in ("on", "off"):
        debugger.shows_times = setting == "on"
        return Output()
    match = _SET.fullmatch(rest)
    if match is None:
        raise UsageError(
            f"cannot read {rest!r}", hint="set %12 = EXPR, set NODE = EXPR, or set $x = EXPR"
        )
    name, part, text = match.groups()
    scope = DebuggerScope(debugger)
    value = evaluate(parse(text), scope)
    if part is not None:
        value = replaced_part(part, evaluate(parse(name), scope), value, scope)
    output = name.removeprefix("$") if name.startswith("$") else None
    if output == ALL:
        raise UsageError("$all is the outputs of the operator", hint="set $0 = EXPR, set $ = EXPR")
    if output and not output.isdecimal():
        debugger.variables[output] = value
        return Output()
    target, stop = debugger.some_target(), debugger.here()
    node, new = _replaced(debugger, name, output, value)
    try:
        target.patch(node, stop.position, new)
    except EtscopeError:
        # The new value may have made an operator fail on the way back to the stop.
        if target is debugger.on_runtime:
            debugger.follow_target()
        raise
    named = f"value({node})" if isinstance(node, int) else node or stop.path or stop.name
    said = Output().say(f"{name if output else named} = " + value_lines(value)[0])
    now = debugger.here()
    if (now.path, now.instruction) != (stop.path, stop.instruction):
        said.say(
            "with this value the run takes another path, and now stands at",
            *stop_lines(debugger, now),
        )
    return said


def _replaced(
    debugger: Debugger, name: str, output: str | None, value: Any
) -> tuple[str | int, Any]:
    """Return the node, or the value on the runtime, that `set` replaces, with its new value.

    output: of the operator here, "" for all of them; None for another node.
    """
    scope = DebuggerScope(debugger)
    if output == "":
        # "": all outputs of a delegate's call, which are values of several nodes.
        return "" if scope.outputs_here() else debugger.here().path or "", value
    if output is not None:
        number = int(output)
        count = len(debugger.some_target().device_values(debugger.here().position))
        if number >= count:
            raise UsageError(f"the operator gave {counted(count, 'value')}: $0 is the first")
        # None leaves a value unchanged.
        several = [value if at == number else None for at in range(count)]
        return "", several if count > 1 else value
    if name.startswith("value("):
        return int(name[len("value(") : -1]), value
    if name.startswith("%"):
        return scope.node_of_handle(int(name[1:])), value
    return debugger.path_named(name), value


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
    lines = value_lines(result, width=debugger.columns())
    output = Output().say(*lines, *scope.inputs_of_reference)
    try:
        own = scope.value_for_call(name)
    except EtscopeError as error:
        return output.say(f"the run has no value to compare with: {error.message}")
    metric = find_metric("sqnr")
    number = gap_between(metric, result, own)
    if number is not None:
        output.say(
            f"the run's own value is {format_float(number)} {metric.unit} from this result "
            f"({metric.title})"
        )
    return output
