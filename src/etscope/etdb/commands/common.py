"""What several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from etscope.analysis.numerics.gap import RECORD_HINT
from etscope.analysis.profile.trace import UNAVAILABLE
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb._answer import Answer
from etscope.etdb._breakpoints import WATCH_INF, WATCH_NAN, Breakpoint, fields_of_stop
from etscope.etdb._debugger import Debugger
from etscope.etdb.commands.stepping import Interest, Reason
from etscope.etdb.expressions.evaluate import evaluate, is_true
from etscope.etdb.expressions.expression import Expression
from etscope.etdb.expressions.names import Values
from etscope.etdb.expressions.predicate_pushdown import Test, number_tests
from etscope.etdb.protocol.facts import Condition
from etscope.etdb.targets.target import FarTensor, Stop, Watch, is_far
from etscope.etdb.ui.describe import stop_lines, value_lines
from etscope.model.selector import Selector


def whole(text: str, default: int | None = None, what: str = "a number") -> int:
    """A whole number that a person wrote."""
    if not text and default is not None:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{what} is expected, not {text!r}") from None


def selector_of(text: str) -> Selector:
    """The selector that a person wrote; `%12` is the debug handle 12, as in expressions."""
    return Selector(re.sub(r"%(\d+)", r"handle:\1", text))


def arrived(debugger: Debugger, position: int, why: str = "") -> Answer:
    """Stand at a stop, and say so; what is displayed follows."""
    debugger.position, debugger.ended = position, False
    debugger.level = debugger.frame = 0
    answer = Answer()
    if why:
        answer.say(why)
    answer.say(*stop_lines(debugger, debugger.here()))
    for number, expression in debugger.displays.items():
        answer.say(*displayed(debugger, number, expression))
    return answer


def displayed(debugger: Debugger, number: int, expression: Expression) -> list[str]:
    """The lines of one `display`; where it has no value, why."""
    try:
        lines = value_lines(evaluate(expression, Values(debugger)))
    except EtscopeError as error:
        lines = [f"({error.message})"]
    head = f"{number}: {expression} = "
    return [head + lines[0], *(f"    {line}" for line in lines[1:])]


def reason_to_stop(
    debugger: Debugger, stop: Stop, *, counts: bool = True
) -> tuple[str, bool] | None:
    """Why a run is to stop here, in words, and whether a condition said so; None if it is not.
    counts: whether it is a hit of the breakpoint."""
    for one in debugger.breakpoints:
        if not one.enabled:
            continue
        if one.selector is not None and not one.selector.matches(fields_of_stop(stop)):
            continue
        found = _condition_met(debugger, one, stop)
        if found is not None:
            if counts:
                debugger.breakpoints.hit(one)
            kind = "watchpoint" if one.selector is None else "breakpoint"
            kind = f"temporary {kind}" if one.once else kind
            finding = one.selector is None or one.condition is not None
            return f"{kind} {one.number}{found}", finding
    return None


def _condition_met(debugger: Debugger, one: Breakpoint, stop: Stop) -> str | None:
    """What is said of a breakpoint that is hit; None when its condition does not hold."""
    if one.condition is None and not one.watch:
        return f", {one.what}"
    try:
        found = (
            _odd_numbers(debugger, one.watch, stop) if one.watch else _holds(debugger, one, stop)
        )
    except EtscopeError as error:
        # What has no value at this operator may have one at the next.
        if type(error) is UsageError:
            raise
        debugger.breakpoints.looked_at(one, error.message)
        return None
    debugger.breakpoints.looked_at(one, None)
    return found


def _holds(debugger: Debugger, one: Breakpoint, stop: Stop) -> str | None:
    if one.condition is None:
        return None
    before = debugger.position, debugger.ended
    debugger.position, debugger.ended = stop.position, False
    try:
        value = evaluate(one.condition, Values(debugger))
    finally:
        debugger.position, debugger.ended = before
    return f", {one.what}" if is_true(value) else None


def interest_of(debugger: Debugger, own: Reason | None) -> Interest:
    """What a walk must not pass over: what `own` names, and where a breakpoint may be hit.
    Conditions that a target can look at are left to it; all others are looked at in etdb."""
    always: list[Selector | None] = []
    perhaps: list[Selector | None] = []
    looked: list[tuple[Breakpoint, tuple[Watch, ...]]] = []
    for one in debugger.breakpoints:
        if not one.enabled:
            continue
        tests = _tests_of(one)
        if tests is None:
            (always if one.condition is None else perhaps).append(one.selector)
        else:
            at = _picks(one.selector)
            looked.append((one, tuple(Watch(condition, bound, at) for condition, bound in tests)))

    def certain(stop: Stop) -> bool:
        return (own is not None and own(stop) is not None) or _any_picks(always, stop)

    def wanted(stop: Stop) -> bool:
        return certain(stop) or _any_picks(perhaps, stop)

    def passed(stops: Sequence[Stop]) -> None:
        for one, watches in looked:
            debugger.breakpoints.passed(one, sum(map(watches[0].at, stops)))

    def probe(stop: Stop) -> str | None:
        found = reason_to_stop(debugger, stop, counts=False)
        return found[0] if found is not None else own(stop) if own is not None else None

    watches = tuple(watch for _, of_one in looked for watch in of_one)
    return Interest(wanted, watches, certain, not (perhaps or looked), passed, probe)


def _tests_of(one: Breakpoint) -> tuple[Test, ...] | None:
    if one.watch:
        return (({WATCH_NAN: Condition.NAN, WATCH_INF: Condition.INF}[one.watch], 0.0),)
    return None if one.condition is None else number_tests(one.condition)


def _any_picks(selectors: Sequence[Selector | None], stop: Stop) -> bool:
    return any(_picks(selector)(stop) for selector in selectors)


def _picks(selector: Selector | None) -> Callable[[Stop], bool]:
    if selector is None:
        return lambda stop: True
    return lambda stop: selector.matches(fields_of_stop(stop))


def _odd_numbers(debugger: Debugger, watch: str, stop: Stop) -> str | None:
    test = {WATCH_NAN: np.isnan, WATCH_INF: np.isinf}[watch]
    values = debugger.some_target().device_values(stop.position)
    if not values or any(value is UNAVAILABLE for value in values):
        raise MissingDataError("no values were recorded", hint=RECORD_HINT)
    for value in values:
        if is_far(value):
            if found := _odd_far(value, watch):
                return found
            continue
        array = np.asarray(value)
        if array.dtype.kind == "V":
            array = array.astype(np.float32)
        if array.dtype.kind == "f" and (count := int(test(array).sum())):
            return _odd_words(count, array.size, watch)
    return None


def _odd_far(value: FarTensor, watch: str) -> str | None:
    if value.dtype.kind not in "fV":
        return None
    told = value.statistics()
    count = told.nan if watch == WATCH_NAN else told.plus_inf + told.minus_inf
    return _odd_words(count, value.size, watch) if count else None


def _odd_words(count: int, size: int, watch: str) -> str:
    name = "NaN" if watch == WATCH_NAN else "Inf"
    return f": {count:,} of {size:,} numbers are {name}"
