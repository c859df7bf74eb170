"""Walking a run to the next stop that is wanted, or where a breakpoint is hit.

Conditions that the target can test itself are left to it (predicate pushdown), so that it need not
stop at each operator. The tests found for an expression are necessary conditions: where one holds,
the full expression is evaluated. They may be wider than the expression.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from etscope.analysis.numerics.runs import RECORD_HINT
from etscope.analysis.profile.trace import UNAVAILABLE
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.breakpoints import WATCH_INF, WATCH_NAN, Breakpoint, fields_of_stop
from etscope.etdb.debugger import Debugger
from etscope.etdb.expression import (
    CURRENT,
    Expression,
    ValueMisfit,
    evaluate,
    is_true,
    parse,
)
from etscope.etdb.output import value_lines
from etscope.etdb.protocol.messages import Condition
from etscope.etdb.scope import DebuggerScope
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.remote_tensor import RemoteTensor
from etscope.etdb.targets.target import Stop, Target, Watch
from etscope.model.selector import Selector

FORWARD, BACKWARD = 1, -1
INTERRUPTED = "interrupted"
_WATCHED = {WATCH_NAN: Condition.NAN, WATCH_INF: Condition.INF}

# Decides if a walk ends at a stop: returns the reason to display, or None to go on.
Reason = Callable[[Stop], str | None]


# -- breakpoints


class Hit(NamedTuple):
    """A breakpoint that is hit. text: describes it. is_finding: it is a condition of the user."""

    breakpoint: Breakpoint
    text: str
    is_finding: bool


def hit_at(
    debugger: Debugger, stop: Stop, *, counts: bool = True, ignores: bool = False
) -> Hit | None:
    """Find the breakpoint that is hit at a stop. counts: count the hit. ignores: pass the hits that
    the user wants to ignore."""
    for one in debugger.breakpoints:
        if not one.enabled:
            continue
        if one.selector is not None and not one.selector.matches(fields_of_stop(stop)):
            continue
        found = _condition_met(debugger, one, stop)
        if found is not None:
            is_new = counts and one.is_new(debugger.some_target().stops, stop.position)
            if ignores and (one.ignored if is_new else one.passes):
                one.hits, one.ignored = one.hits + is_new, one.ignored - is_new
                one.passes = True
                continue
            if counts:
                one.passes = False
                debugger.breakpoints.hit(one, is_new=is_new)
            if one.log is not None:
                if counts:
                    debugger.logged.append(_log_text(debugger, one.log, stop))
                continue
            kind = "watchpoint" if one.selector is None else "breakpoint"
            kind = f"temporary {kind}" if one.once else kind
            is_finding = one.selector is None or one.condition is not None
            return Hit(one, f"{kind} {one.number}{found}", is_finding)
    return None


def _log_text(debugger: Debugger, text: str, stop: Stop) -> str:
    """Put the values of the expressions in braces into the text of a logpoint."""

    def value(match: re.Match[str]) -> str:
        try:
            with debugger.standing_at(stop.position):
                return value_lines(evaluate(parse(match[1]), DebuggerScope(debugger)))[0]
        except EtscopeError as error:
            return f"({error.message})"

    return re.sub(r"\{([^{}]*)\}", value, text)


def _condition_met(debugger: Debugger, one: Breakpoint, stop: Stop) -> str | None:
    """Evaluate the condition of a breakpoint. Returns the end of its message, None if the condition
    does not hold or has no value."""
    if one.condition is None and not one.watch:
        return f", {one.what}"
    found = None
    try:
        if one.watch:
            found = _non_finite(debugger, one.watch, stop)
        elif one.condition is not None:
            with debugger.standing_at(stop.position):
                value = evaluate(one.condition, DebuggerScope(debugger))
            found = f", {one.what}" if is_true(value) else None
    except EtscopeError as error:
        # A condition without a value here may have one at the next operator.
        if isinstance(error, UsageError) and not isinstance(error, ValueMisfit):
            raise
        one.unknown, one.why = one.unknown + 1, error.message
    one.looked += 1
    return found


def _non_finite(debugger: Debugger, watch: str, stop: Stop) -> str | None:
    """Describe NaN or infinities in the outputs of a stop; None if there are none."""
    is_nan = watch == WATCH_NAN
    target = debugger.some_target()
    values = target.device_values(stop.position)
    if not values or any(value is UNAVAILABLE for value in values):
        if isinstance(target, RecordedRuns):
            target.require_values()
        raise MissingDataError("no values were recorded", hint=RECORD_HINT)
    for value in values:
        if isinstance(value, RemoteTensor):
            if value.dtype.kind not in "fV":
                continue
            found = value.statistics()
            count = found.nan if is_nan else found.plus_inf + found.minus_inf
            size = value.size
        else:
            array = np.asarray(value)
            if array.dtype.kind == "V":
                array = array.astype(np.float32)
            if array.dtype.kind != "f":
                continue
            count, size = int((np.isnan if is_nan else np.isinf)(array).sum()), array.size
        if count:
            return f": {count:,} of {size:,} numbers are {'NaN' if is_nan else 'Inf'}"
    return None


# -- walking


@dataclass(frozen=True, slots=True)
class StopCriteria:
    """The stops that a walk must not miss: the `wanted` stops, and stops where a watch is true.

    certain: True if the stop is wanted whatever its values are. decides: True if all wanted stops
    are certain. passed: a function that is called with the stops that the target skipped. probe: a
    function that returns why to stop at a place, without counting a hit.
    """

    wanted: Callable[[Stop], bool]
    watches: tuple[Watch, ...]
    certain: Callable[[Stop], bool]
    decides: bool
    passed: Callable[[Sequence[Stop]], None]
    probe: Reason

    def last_before(self, target: Target, start: int) -> list[int]:
        """The last stop before `start` with a reason, as a list of one or none, in a run that keeps
        no values. Each step back would repeat the run, so it is searched in one forward run from
        the last stop that is certain. Raises `KeyboardInterrupt`."""
        certain = (s.position for s in reversed(target.stops[:start]) if self.certain(s))
        position = next(certain, -1)
        last = [position] if position >= 0 else []
        if self.decides:
            return last
        while (found := target.go(position, self.wanted, self.watches)) is not None:
            if target.interrupted:
                raise KeyboardInterrupt
            if found >= start:
                break
            if self.probe(target.stops[found]) is not None:
                last = [found]
            position = found
        return last

    def next_after(
        self, target: Target, start: int, reason: Reason
    ) -> tuple[int | None, str | None]:
        """Go on from `start` to the next stop with a reason; see `walk`."""
        position = start
        try:
            while (found := target.go(position, self.wanted, self.watches)) is not None:
                self.passed(target.stops[position + 1 : found])
                position = found
                why = reason(target.stops[position])
                if why is not None or target.interrupted:
                    return position, why if why is not None else INTERRUPTED
        except KeyboardInterrupt:
            if target.keeps_values or position < 0:
                raise
            return _stay(target, position)
        self.passed(target.stops[position + 1 :])
        return None, None


def stop_criteria(debugger: Debugger, own: Reason | None) -> StopCriteria:
    """Combine the stops of `own` with those where a breakpoint may be hit. Conditions that a target
    can test are left to it; all others are evaluated here."""
    always: list[Selector | None] = []
    perhaps: list[Selector | None] = []
    pushed: list[tuple[Breakpoint, tuple[Watch, ...]]] = []
    for one in debugger.breakpoints:
        if not one.enabled:
            continue
        if one.watch:
            tests: tuple[tuple[Condition, float], ...] | None = ((_WATCHED[one.watch], 0.0),)
        else:
            tests = None if one.condition is None else number_tests(one.condition)
        if tests is None:
            (always if one.condition is None else perhaps).append(one.selector)
        else:
            at = _picked_by([one.selector])
            pushed.append((one, tuple(Watch(condition, bound, at) for condition, bound in tests)))
    is_break, may_break = _picked_by(always), _picked_by(perhaps)

    def certain(stop: Stop) -> bool:
        return (own is not None and own(stop) is not None) or is_break(stop)

    def wanted(stop: Stop) -> bool:
        return certain(stop) or may_break(stop)

    def passed(stops: Sequence[Stop]) -> None:
        for one, watches in pushed:
            one.looked += sum(map(watches[0].at, stops))

    def probe(stop: Stop) -> str | None:
        found = hit_at(debugger, stop, counts=False)
        return found.text if found is not None else own(stop) if own is not None else None

    watches = tuple(watch for _, of_one in pushed for watch in of_one)
    return StopCriteria(wanted, watches, certain, not (perhaps or pushed), passed, probe)


def _picked_by(selectors: Sequence[Selector | None]) -> Callable[[Stop], bool]:
    """Return a function that is True for stops of one of the selectors; None picks all stops."""

    def picked(stop: Stop) -> bool:
        return any(one is None or one.matches(fields_of_stop(stop)) for one in selectors)

    return picked


def walk(
    target: Target, start: int, direction: int, reason: Reason, criteria: StopCriteria
) -> tuple[int | None, str | None]:
    """Go from `start` (not itself evaluated; -1 is before the first stop) to the next stop with a
    reason. Returns its position and the reason; (None, None) at the end of the run, or at its
    start when going back.
    """
    target.interrupted = False
    if direction == FORWARD:
        return criteria.next_after(target, start, reason)
    if target.keeps_values:
        positions: Iterable[int] = range(start - 1, -1, -1)
    else:
        before = min(start, len(target.stops) - 1)
        try:
            positions = criteria.last_before(target, start)
        except KeyboardInterrupt:
            return _stay(target, before)
    for position in positions:
        target.reach(position)
        found = reason(target.stops[position])
        if target.interrupted:
            return target.position, INTERRUPTED
        if found is not None:
            return position, found
    return None, None


def run_out(target: Target, start: int) -> bool:
    """Go from a stop to the end of the run; False if it is interrupted."""
    while (found := target.go(start, lambda stop: False)) is not None:
        if target.interrupted:
            return False
        start = found
    return True


def _stay(target: Target, position: int) -> tuple[int | None, str]:
    """After Ctrl-C, return to a stop, or stay where another Ctrl-C leaves the run."""
    target.reach(position)
    return target.position, INTERRUPTED


# -- predicate pushdown

Test = tuple[Condition, float]

_MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
}
_UPWARD, _DOWNWARD = (ast.Gt, ast.GtE), (ast.Lt, ast.LtE)
_NON_FINITE = {"isnan": Condition.NAN, "isinf": Condition.INF}
# numpy compares in the tensor's own type, to which the bound is rounded: bfloat16 has 8 bits.
_ROUNDING = 1.0 / 128


def number_tests(expression: Expression) -> tuple[Test, ...] | None:
    """Return tests of an operator's output; where the expression holds, at least one of them does.
    None if none are known.

    Supported are `$`, `$.max()`, `$.min()` and `$.abs()` or `$.abs().max()` against a number,
    `isnan($)` and `isinf($)`, and combinations with `and` and `or`.
    """
    return _tests(expression.tree)


def _tests(node: ast.expr) -> tuple[Test, ...] | None:
    if isinstance(node, ast.BoolOp):
        parts = [_tests(part) for part in node.values]
        known = [part for part in parts if part is not None]
        if isinstance(node.op, ast.And):
            return known[0] if known else None
        return tuple(test for part in known for test in part) if len(known) == len(parts) else None
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _comparison(node.left, type(node.ops[0]), node.comparators[0])
    # `isnan($)`, and `.any()` or `.sum()` of it
    _, node = _unwrap(node, ("any", "sum", "max", "count_nonzero"))
    name, of = _unwrap(node, tuple(_NON_FINITE))
    return ((_NON_FINITE[name], 0.0),) if name and _is_current(of) else None


def _comparison(left: ast.expr, op: type[ast.cmpop], right: ast.expr) -> tuple[Test, ...] | None:
    if _constant(left) is not None and op in _MIRRORED:
        left, op, right = right, _MIRRORED[op], left
    bound = _constant(right)
    if bound is None or op not in _MIRRORED:
        return None
    # Widen the bound, so that rounding it never loses a number.
    if op in (ast.GtE, ast.LtE):
        bound = math.nextafter(bound, -math.inf if op is ast.GtE else math.inf)
    slack = abs(bound) * _ROUNDING
    name, of = _unwrap(left, ("max", "min"))
    if _is_current(of):
        # `$.max() < 3` is a condition on all numbers, which no test covers.
        if op in _UPWARD and name in ("", "max"):
            return ((Condition.ABOVE, bound - slack),)
        if op in _DOWNWARD and name in ("", "min"):
            return ((Condition.BELOW, bound + slack),)
        return None
    inner, of = _unwrap(of, ("abs",))
    if inner == "abs" and _is_current(of) and name in ("", "max") and op in _UPWARD:
        return (Condition.ABOVE, bound - slack), (Condition.BELOW, slack - bound)
    return None


def _unwrap(node: ast.expr, names: tuple[str, ...]) -> tuple[str, ast.expr]:
    """Name and argument of a call of one of `names`, as a method or a function; else ("", node)."""
    if isinstance(node, ast.Call) and not node.keywords:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in names and not node.args:
            return func.attr, func.value
        if isinstance(func, ast.Name) and func.id in names and len(node.args) == 1:
            return func.id, node.args[0]
    return "", node


def _is_current(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == CURRENT


def _constant(node: ast.expr) -> float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        try:
            value = float(node.value)  # type: ignore[arg-type]
        except OverflowError:
            return None
        return value if math.isfinite(value) else None
    return None
