"""Going on, and back: run, step, next, finish, until, and their reverses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from etscope.analysis.numerics.runs import RECORD_HINT
from etscope.analysis.profile.trace import UNAVAILABLE
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.breakpoints import WATCH_INF, WATCH_NAN, Breakpoint, fields_of_stop
from etscope.etdb.commands.registry import command, selector_of, whole
from etscope.etdb.debugger import Debugger
from etscope.etdb.expressions.expression import evaluate, is_true
from etscope.etdb.expressions.predicate_pushdown import Test, number_tests
from etscope.etdb.expressions.scope import DebuggerScope, displayed
from etscope.etdb.output import Output, operators, stop_lines
from etscope.etdb.protocol.messages import Condition
from etscope.etdb.targets.target import FarTensor, Stop, Target, Watch, is_far
from etscope.model.selector import Selector

# Where each of gdb's words for going on leads, on any target, in both directions.


# What ends a walk at a stop, in words; None goes on.
Reason = Callable[[Stop], str | None]

FORWARD, BACKWARD = 1, -1
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class StopCriteria:
    """What a walk must not pass over: the stops that are `wanted`, and where numbers are given that
    a watch is for. certain: whether a stop is wanted whatever its values are; decides: whether all
    are that are wanted. passed: told of the stops that a target passed over. probe: the reason to
    stop somewhere, of which nothing is counted."""

    wanted: Callable[[Stop], bool]
    watches: tuple[Watch, ...]
    certain: Callable[[Stop], bool]
    decides: bool
    passed: Callable[[Sequence[Stop]], None]
    probe: Reason


def walk(
    target: Target, start: int, direction: int, reason: Reason, interest: StopCriteria
) -> tuple[int | None, str | None]:
    """Go from `start` (not itself looked at; -1 stands before the first stop) until there is a
    reason to stop, which is given with its position. (None, None): the run is over, or its start
    is reached.
    """
    if direction == FORWARD:
        return _forward(target, start, reason, interest)
    if target.keeps_values:
        places: Iterable[int] = range(start - 1, -1, -1)
    else:
        stood = min(start, len(target.stops) - 1)
        try:
            places = _last_place(target, start, interest)
        except KeyboardInterrupt:
            return _stay(target, stood)
    for position in places:
        target.reach(position)
        found = reason(target.stops[position])
        if target.interrupted:
            return target.position, INTERRUPTED
        if found is not None:
            return position, found
    return None, None


def _stay(target: Target, position: int) -> tuple[int | None, str]:
    """After Ctrl-C, stand where the run stood last, or wherever another Ctrl-C leaves it."""
    target.reach(position)
    return target.position, INTERRUPTED


def _forward(
    target: Target, start: int, reason: Reason, interest: StopCriteria
) -> tuple[int | None, str | None]:
    position = start
    try:
        while (found := target.go(position, interest.wanted, interest.watches)) is not None:
            interest.passed(target.stops[position + 1 : found])
            position = found
            why = reason(target.stops[position])
            if why is not None or target.interrupted:
                return position, why if why is not None else INTERRUPTED
    except KeyboardInterrupt:
        if target.keeps_values or position < 0:
            raise
        # It ran on, or values were looked at.
        return _stay(target, position)
    interest.passed(target.stops[position + 1 :])
    return None, None


def _last_place(target: Target, start: int, interest: StopCriteria) -> list[int]:
    """The last stop before `start` where there is a reason to stop, as a list of one or none. Of a
    run that keeps no values it is found by running again, once, from the last stop that is certain
    to have a reason, since each way back would be a run of its own. Raises `KeyboardInterrupt`."""
    certain = (s.position for s in reversed(target.stops[:start]) if interest.certain(s))
    position = next(certain, -1)
    last = [position] if position >= 0 else []
    if interest.decides:
        return last
    while (found := target.go(position, interest.wanted, interest.watches)) is not None:
        if target.interrupted:
            raise KeyboardInterrupt
        if found >= start:
            break
        if interest.probe(target.stops[found]) is not None:
            last = [found]
        position = found
    return last


def same_level(here: Stop | None) -> Reason:
    """For `next`: any stop but those further inside, in a module or a delegate's call."""
    level = _levels(here.module) if here is not None else ()
    depth = here.depth if here is not None else 0

    def reason(stop: Stop) -> str | None:
        inside = stop.depth > depth or (
            len(_levels(stop.module)) > len(level) and _levels(stop.module)[: len(level)] == level
        )
        # From the start every module is further inside: `next` goes over the outermost ones.
        if here is None:
            inside = stop.depth > 0
        return None if inside else ""

    return reason


def outside_of(module: str | None, depth: int) -> Reason:
    """For `finish`: the first stop that is no longer in a module, or in a delegate's call."""
    level = _levels(module)

    def reason(stop: Stop) -> str | None:
        if depth and stop.depth >= depth:
            return None
        # Of what no module is known nothing tells that it is outside.
        if not depth and (stop.module is None or _levels(stop.module)[: len(level)] == level):
            return None
        return ""

    return reason


def _levels(module: str | None) -> tuple[str, ...]:
    return tuple(module.split(".")) if module else ()


# What several commands share.


def arrived(debugger: Debugger, position: int, why: str = "") -> Output:
    """Stand at a stop, and say so; what is displayed follows."""
    debugger.position, debugger.ended = position, False
    debugger.level = debugger.frame = 0
    answer = Output()
    if why:
        answer.say(why)
    answer.say(*stop_lines(debugger, debugger.here()))
    for number, expression in debugger.displays.items():
        answer.say(*displayed(debugger, number, expression))
    return answer


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
        value = evaluate(one.condition, DebuggerScope(debugger))
    finally:
        debugger.position, debugger.ended = before
    return f", {one.what}" if is_true(value) else None


def stop_criteria(debugger: Debugger, own: Reason | None) -> StopCriteria:
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
    return StopCriteria(wanted, watches, certain, not (perhaps or looked), passed, probe)


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


GROUP = "running"


@command("run [RUN]", group=GROUP, aliases=("r",))
def run(debugger: Debugger, rest: str) -> Output:
    """Begin a run, and go on to the first breakpoint or to its end.

    RUN is a run of the dump by its number (info runs); by default the one that was chosen last. A
    live run, and one on the runtime, begins anew, without what was set.
    """
    _begun(debugger, rest)
    return _go(debugger, -1, FORWARD)


@command("start [RUN]", group=GROUP)
def start(debugger: Debugger, rest: str) -> Output:
    """Begin a run, and stop at its first operator."""
    target = _begun(debugger, rest)
    everywhere: Reason = lambda stop: ""  # noqa: E731
    position, _ = walk(target, -1, FORWARD, everywhere, stop_criteria(debugger, everywhere))
    if position is None:
        raise UsageError("the run has no operators")
    return arrived(debugger, position)


@command("continue [N]", group=GROUP, aliases=("c", "cont"), repeats=True)
def continue_(debugger: Debugger, rest: str) -> Output:
    """Go on to the next breakpoint or watchpoint, or to the N-th from here, or to the end."""
    return _times(debugger, rest, FORWARD)


@command("reverse-continue [N]", group=GROUP, aliases=("rc",), repeats=True)
def reverse_continue(debugger: Debugger, rest: str) -> Output:
    """Go back to the breakpoint before, or to the start of the run."""
    return _times(debugger, rest, BACKWARD)


@command("step [N]", group=GROUP, aliases=("s",), repeats=True)
def step(debugger: Debugger, rest: str) -> Output:
    """Go to the next operator, into modules and delegates; N times.

    Into a delegate it goes where its operators are known, in a recorded run that logged them. On
    the runtime a delegate's call is one instruction, and the stop stands behind it.
    """
    return _moved(debugger, whole(rest, 1), FORWARD, lambda stop: "")


@command("reverse-step [N]", group=GROUP, aliases=("rs",), repeats=True)
def reverse_step(debugger: Debugger, rest: str) -> Output:
    """Go to the operator before; N times."""
    return _moved(debugger, whole(rest, 1), BACKWARD, lambda stop: "")


@command("next [N]", group=GROUP, aliases=("n",), repeats=True)
def next_(debugger: Debugger, rest: str) -> Output:
    """Go to the next operator of this module or of one around it, over those further inside.

    Breakpoints inside stop it.
    """
    return _moved(debugger, whole(rest, 1), FORWARD, None)


@command("reverse-next [N]", group=GROUP, aliases=("rn",), repeats=True)
def reverse_next(debugger: Debugger, rest: str) -> Output:
    """Go back to the operator before of this module or of one around it."""
    return _moved(debugger, whole(rest, 1), BACKWARD, None)


@command("finish", group=GROUP, aliases=("fin",), repeats=True)
def finish(debugger: Debugger, rest: str) -> Output:
    """Go on until the module is left: the one that `up` went to, or else the operator's own.

    Inside of a delegate, it goes to the delegate's call.
    """
    return _left(debugger, FORWARD)


@command("reverse-finish", group=GROUP, repeats=True)
def reverse_finish(debugger: Debugger, rest: str) -> Output:
    """Go back to before the module was entered."""
    return _left(debugger, BACKWARD)


@command("until SELECTOR", group=GROUP, aliases=("u",), words=("selector",), repeats=True)
def until(debugger: Debugger, rest: str) -> Output:
    """Go on to the next operator that SELECTOR picks (help selectors); breakpoints stop it too."""
    if not rest:
        return _moved(debugger, 1, FORWARD, lambda stop: "")
    target = debugger.some_target()
    selector = selector_of(rest)
    if not any(selector.matches(fields_of_stop(stop)) for stop in target.stops):
        raise UsageError(f"nothing of this run is picked by {rest!r}", hint="help selectors")
    reason: Reason = lambda stop: "" if selector.matches(fields_of_stop(stop)) else None  # noqa: E731
    return _moved(debugger, 1, FORWARD, reason)


# -- how


def _begun(debugger: Debugger, rest: str) -> Target:
    target = debugger.some_target()
    debugger.breakpoints.begin()
    if rest:
        target.choose(whole(rest, what="the number of a run"))
    target.restart()
    debugger.begin(target)
    return target


def _start_of(debugger: Debugger, direction: int) -> int:
    """Where a walk starts; the run must have been begun."""
    target = debugger.some_target()
    if debugger.ended:
        if direction == FORWARD:
            raise UsageError("the run is over", hint="run begins it again; reverse-step goes back")
        return len(target.stops)
    if debugger.position is None:
        raise UsageError("the run has not been begun", hint="run, or start")
    return debugger.position


def _walked(debugger: Debugger, start: int, direction: int, wanted: Reason) -> tuple[Output, bool]:
    """Go on to the next stop that is `wanted`, or to a breakpoint before; also whether the way
    ends there: at a breakpoint, or with the run."""
    hits: list[bool] = []

    def reason(stop: Stop) -> str | None:
        hit = reason_to_stop(debugger, stop)
        if hit is None:
            return wanted(stop)
        hits.append(hit[1])
        return hit[0]

    interest = stop_criteria(debugger, wanted)
    try:
        position, why = walk(debugger.some_target(), start, direction, reason, interest)
    except EtscopeError:
        debugger.stand()
        raise
    if position is None:
        return _at_an_end(debugger, direction), True
    answer = arrived(debugger, position, why or "")
    answer.finding = answer.finding or any(hits)
    return answer, bool(hits) or why == INTERRUPTED


def _go(debugger: Debugger, start: int, direction: int) -> Output:
    return _walked(debugger, start, direction, lambda stop: None)[0]


def _times(debugger: Debugger, rest: str, direction: int) -> Output:
    answer = Output()
    for _ in range(max(whole(rest, 1), 1)):
        answer = _go(debugger, _start_of(debugger, direction), direction)
        if debugger.stop is None or (direction == BACKWARD and debugger.position == 0):
            break
    return answer


def _moved(debugger: Debugger, times: int, direction: int, own: Reason | None) -> Output:
    """Go to the next stop that `own` names (None: of the same level), `times` times; breakpoints
    on the way stop it."""
    if times < 1:
        raise UsageError("how many times: 1 or more")
    answer = Output()
    for _ in range(times):
        wanted = own or same_level(debugger.stop)
        answer, ends = _walked(debugger, _start_of(debugger, direction), direction, wanted)
        if ends:
            break
    return answer


def _left(debugger: Debugger, direction: int) -> Output:
    stop = debugger.here()
    module = stop.module
    if debugger.level and module is not None:
        parts = module.split(".") if module else []
        module = ".".join(parts[: max(len(parts) - debugger.level, 0)])
    if not stop.depth and not module:
        return _go(debugger, stop.position, direction)
    return _moved(debugger, 1, direction, outside_of(module, 0 if debugger.level else stop.depth))


def _at_an_end(debugger: Debugger, direction: int) -> Output:
    target = debugger.some_target()
    if direction == BACKWARD:
        if not len(target.stops):
            return Output().say("the start of the run")
        target.reach(0)
        return arrived(debugger, 0, "the start of the run")
    debugger.ended = True
    debugger.position = len(target.stops) - 1 if len(target.stops) else None
    undecided = debugger.breakpoints.undecided()
    if undecided is not None:
        raise MissingDataError(
            f"the run is over, and nothing tells whether {undecided.what!r} "
            f"(number {undecided.number}) held anywhere: {undecided.why}"
        )
    unseen = debugger.breakpoints.unseen()
    if unseen is not None:
        raise MissingDataError(
            f"the run is over, and {unseen.what!r} (number {unseen.number}) was looked at nowhere",
            hint="it picks nothing of what ran since run or start: info ops, info breakpoints",
        )
    info = next((run for run in target.runs if run.number == target.run), None)
    text = f"run {target.run} is over, after {operators(len(target.stops))}"
    if info is not None and info.total is not None and debugger.shows_times:
        scale = debugger.scale
        from etscope.units import format_duration

        text += f" · {format_duration(float(scale(info.total)), scale.unit)} {scale.unit}"
    answer = Output().say(text)
    for one in debugger.breakpoints.partly_decided():
        answer.say(
            f"{one.what!r} (number {one.number}) had no value at {one.unknown:,} of "
            f"{operators(one.looked)}: {one.why}"
        )
    return answer
