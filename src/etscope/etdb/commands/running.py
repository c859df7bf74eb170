"""Running, forward and backward: run, step, next, finish, until, and their reverses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from etscope.analysis.numerics.runs import RECORD_HINT
from etscope.analysis.profile.trace import UNAVAILABLE
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.breakpoints import WATCH_INF, WATCH_NAN, Breakpoint, fields_of_stop
from etscope.etdb.commands.registry import command, whole
from etscope.etdb.commands.source import picked_stops
from etscope.etdb.commands.targets import read_inputs
from etscope.etdb.debugger import Debugger
from etscope.etdb.expressions.expression import evaluate, is_true
from etscope.etdb.expressions.predicate_pushdown import number_tests
from etscope.etdb.output import Output, operators, stop_lines
from etscope.etdb.protocol.messages import Condition
from etscope.etdb.scope import DebuggerScope, display_lines
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.remote_tensor import RemoteTensor
from etscope.etdb.targets.target import Stop, Target, Watch
from etscope.model.selector import Selector
from etscope.units import format_duration

GROUP = "running"
FORWARD, BACKWARD = 1, -1
INTERRUPTED = "interrupted"
_WATCHED = {WATCH_NAN: Condition.NAN, WATCH_INF: Condition.INF}

# Decides if a walk ends at a stop: returns the reason to display, or None to go on.
Reason = Callable[[Stop], str | None]


@command(
    "run [RUN|--call N|--keep [FILE]]",
    group=GROUP,
    aliases=("r",),
    words=("--call", "--keep", "file"),
)
def run(debugger: Debugger, rest: str) -> Output:
    """Begin a run, and go on to the first breakpoint or to its end.

    RUN is its number (info runs); by default the one that was chosen last. A live run, and one on
    the runtime, begins anew, without the values that were set; the runs before it, from which a
    model has its state, are executed first.
    --call: the run of that call of a recorded language model, from 0 (info runs).
    --keep: a further run, in the state that the current one leaves, on the inputs of FILE or on the
    same ones. At the end of a run, `continue` goes on with the next one.
    """
    word, _, path = rest.partition(" ")
    if word == "--call":
        _begin(debugger, _run_of_call(debugger, path.strip()))
    elif word == "--keep":
        target = debugger.some_target()
        _start_of(debugger, BACKWARD)  # raises before a run has begun
        if path or target.next_run is None:
            target.add_call(*debugger.given(debugger.method, read_inputs(path)) if path else ())
        wanted = target.runs[-1].number if path else target.next_run
        everywhere_on: Reason = lambda stop: None  # noqa: E731
        past_all = StopCriteria(_nowhere, (), _nowhere, True, lambda stops: None, everywhere_on)
        while target.run != wanted:
            if not debugger.ended:
                start_at = -1 if debugger.position is None else debugger.position
                if walk(target, start_at, FORWARD, everywhere_on, past_all)[0] is not None:
                    debugger.follow_target()
                    raise KeyboardInterrupt
            _go_on(debugger, target)
    else:
        _begin(debugger, rest)
    return _go(debugger, -1, FORWARD)


def _run_of_call(debugger: Debugger, number: str) -> str:
    """Return the number of the run that a call of a language model is."""
    runs = debugger.some_target().runs
    for run in runs:
        if run.call is not None and str(run.call) == number:
            return str(run.number)
    known = [run.call for run in runs if run.call is not None]
    raise UsageError(
        f"call {number} does not exist",
        hint=f"calls are {known[0]} to {known[-1]}: info runs"
        if known
        else "calls are known of recorded runs of a language model",
    )


@command("start [RUN]", group=GROUP)
def start(debugger: Debugger, rest: str) -> Output:
    """Begin a run, and stop at its first operator."""
    target = _begin(debugger, rest)
    everywhere: Reason = lambda stop: ""  # noqa: E731
    position, _ = walk(target, -1, FORWARD, everywhere, stop_criteria(debugger, everywhere))
    if position is None:
        raise UsageError("the run has no operators")
    return _arrive(debugger, position)


@command("continue [N]", group=GROUP, aliases=("c", "cont"), repeats=True)
def continue_(debugger: Debugger, rest: str) -> Output:
    """Go on to the next breakpoint or watchpoint, or to the N-th from here, or to the end.

    At the end of a run, go on with the next one, in the state that this one left (info runs).
    """
    return _continue(debugger, rest, FORWARD)


@command("reverse-continue [N]", group=GROUP, aliases=("rc",), repeats=True)
def reverse_continue(debugger: Debugger, rest: str) -> Output:
    """Go back to the previous breakpoint, or to the start of the run."""
    return _continue(debugger, rest, BACKWARD)


@command("step [N]", group=GROUP, aliases=("s",), repeats=True)
def step(debugger: Debugger, rest: str) -> Output:
    """Go to the next operator, into modules and delegates; N times.

    It steps into a delegate if a recorded run logged its operators. On the runtime, a delegate's
    call is one instruction, and the stop is after it.
    """
    return _move(debugger, whole(rest, 1), FORWARD, lambda stop: "")


@command("reverse-step [N]", group=GROUP, aliases=("rs",), repeats=True)
def reverse_step(debugger: Debugger, rest: str) -> Output:
    """Go to the previous operator; N times."""
    return _move(debugger, whole(rest, 1), BACKWARD, lambda stop: "")


@command("next [N]", group=GROUP, aliases=("n",), repeats=True)
def next_(debugger: Debugger, rest: str) -> Output:
    """Go to the next operator of this module or of one around it, without entering inner ones.

    Breakpoints inside stop it.
    """
    return _move(debugger, whole(rest, 1), FORWARD, None)


@command("reverse-next [N]", group=GROUP, aliases=("rn",), repeats=True)
def reverse_next(debugger: Debugger, rest: str) -> Output:
    """Go back to the previous operator of this module or of one around it."""
    return _move(debugger, whole(rest, 1), BACKWARD, None)


@command("finish", group=GROUP, aliases=("fin",), repeats=True)
def finish(debugger: Debugger, rest: str) -> Output:
    """Go on until the module is left: the one that `up` went to, or else the operator's own.

    Inside a delegate, it goes to the delegate's call.
    """
    return _leave(debugger, FORWARD)


@command("reverse-finish", group=GROUP, repeats=True)
def reverse_finish(debugger: Debugger, rest: str) -> Output:
    """Go back to before the module was entered."""
    return _leave(debugger, BACKWARD)


@command(
    "until SELECTOR|FILE:LINE|LINE", group=GROUP, aliases=("u",), words=("selector",), repeats=True
)
def until(debugger: Debugger, rest: str) -> Output:
    """Go on to the next operator that SELECTOR picks (help selectors), or that comes from a line of
    Python: `until net.py:24`, `until 24`. Breakpoints stop it too.
    """
    if not rest:
        return _move(debugger, 1, FORWARD, lambda stop: "")
    debugger.some_target()
    _, selector, _ = picked_stops(debugger, rest)
    reason: Reason = lambda stop: "" if selector.matches(fields_of_stop(stop)) else None  # noqa: E731
    return _move(debugger, 1, FORWARD, reason)


def _begin(debugger: Debugger, rest: str) -> Target:
    target = debugger.some_target()
    debugger.breakpoints.begin()
    if rest:
        target.choose(whole(rest, what="the number of a run"))
    target.restart()
    debugger.begin(target)
    return target


def _nowhere(stop: Stop) -> bool:
    return False


def _go_on(debugger: Debugger, target: Target) -> None:
    """Begin the next run, in the state that this one left."""
    target.go_on()
    debugger.begin(target)


def _continue(debugger: Debugger, rest: str, direction: int) -> Output:
    output = Output()
    for _ in range(max(whole(rest, 1), 1)):
        target = debugger.some_target()
        if debugger.ended and direction == FORWARD and target.next_run is not None:
            _go_on(debugger, target)
            start = -1
        else:
            start = _start_of(debugger, direction)
        output = _go(debugger, start, direction)
        if debugger.stop is None or (direction == BACKWARD and debugger.position == 0):
            break
    return output


def _go(debugger: Debugger, start: int, direction: int) -> Output:
    return _walk(debugger, start, direction, lambda stop: None)[0]


def _move(debugger: Debugger, times: int, direction: int, own: Reason | None) -> Output:
    """Go to the next stop with a reason of `own` (None: at the same level), `times` times.
    Breakpoints on the way end it."""
    if times < 1:
        raise UsageError("how many times: 1 or more")
    output = Output()
    for _ in range(times):
        wanted = own or _same_level(debugger.stop)
        output, ends = _walk(debugger, _start_of(debugger, direction), direction, wanted)
        if ends:
            break
    return output


def _leave(debugger: Debugger, direction: int) -> Output:
    stop = debugger.here()
    module = stop.module
    if debugger.level and module is not None:
        parts = module.split(".") if module else []
        module = ".".join(parts[: max(len(parts) - debugger.level, 0)])
    if not stop.depth and not module:
        return _go(debugger, stop.position, direction)
    return _move(debugger, 1, direction, outside_of(module, 0 if debugger.level else stop.depth))


def outside_of(module: str | None, depth: int) -> Reason:
    """Stop for `finish`: at the first operator outside of a module, or of a delegate's call."""
    level = _levels(module)

    def reason(stop: Stop) -> str | None:
        if depth and stop.depth >= depth:
            return None
        # An operator of unknown module may be inside.
        if not depth and (stop.module is None or _levels(stop.module)[: len(level)] == level):
            return None
        return ""

    return reason


def _same_level(here: Stop | None) -> Reason:
    """Stop for `next`: anywhere but further inside, in a module or a delegate's call."""
    level = _levels(here.module) if here is not None else ()
    depth = here.depth if here is not None else 0

    def reason(stop: Stop) -> str | None:
        inside = stop.depth > depth or (
            len(_levels(stop.module)) > len(level) and _levels(stop.module)[: len(level)] == level
        )
        # Before the first operator, every module would be inside: `next` goes over delegates only.
        if here is None:
            inside = stop.depth > 0
        return None if inside else ""

    return reason


def _levels(module: str | None) -> tuple[str, ...]:
    return tuple(module.split(".")) if module else ()


def _start_of(debugger: Debugger, direction: int) -> int:
    """Position at which a walk starts. Raises `UsageError` if the run has not begun, or is over."""
    target = debugger.some_target()
    if debugger.ended:
        if direction == BACKWARD:
            return len(target.stops)
        hint = "run begins it again; reverse-step goes back"
        if target.next_run is not None:
            hint += f"; continue goes on with run {target.next_run}"
        elif not target.is_past:
            hint += "; run --keep goes on in the state that it left"
        raise UsageError("the run is over", hint=hint)
    if debugger.position is None:
        raise UsageError("the run has not been begun", hint="run, or start")
    return debugger.position


def _walk(debugger: Debugger, start: int, direction: int, wanted: Reason) -> tuple[Output, bool]:
    """Go to the next stop that is `wanted`, or to a breakpoint before. The second value is True if
    a repeated command ends there: at a breakpoint, or at the end of the run."""
    hits: list[Hit] = []

    def reason(stop: Stop) -> str | None:
        hit = hit_at(debugger, stop, ignores=direction == FORWARD)
        if hit is None:
            return wanted(stop)
        hits.append(hit)
        return hit.text

    target = debugger.some_target()
    first = target.run
    while True:
        try:
            position, why = walk(target, start, direction, reason, stop_criteria(debugger, wanted))
        except EtscopeError:
            debugger.follow_target()
            raise
        goes_on = position is None and direction == FORWARD and target.next_run is not None
        if not (goes_on and debugger.breakpoints.name_call):
            break
        _go_on(debugger, target)
        start = -1
    if position is not None:
        interrupted = why == INTERRUPTED
        why = f"run {target.run}\n{why}".rstrip() if target.run != first else why
        output = _arrive(debugger, position, why or "")
        output.finding = output.finding or any(hit.is_finding for hit in hits)
        debugger.hit = hits[-1].breakpoint if hits else None
        return output, bool(hits) or interrupted
    if direction == FORWARD:
        return _end_of_run(debugger), True
    if not len(target.stops):
        return Output().say("the start of the run"), True
    target.reach(0)
    return _arrive(debugger, 0, "the start of the run"), True


def _arrive(debugger: Debugger, position: int, why: str = "") -> Output:
    """Make a stop the current one, and describe it, with all displays."""
    debugger.position, debugger.ended = position, False
    debugger.level = debugger.frame = 0
    for line in debugger.here().lines[:1]:
        debugger.file_shown = line.file
    output = Output()
    if why:
        output.say(why)
    output.say(*stop_lines(debugger, debugger.here()))
    for number, expression in debugger.displays.items():
        output.say(*display_lines(debugger, number, expression))
    return output


def _end_of_run(debugger: Debugger) -> Output:
    """Report the end of the run. Raises `MissingDataError` for conditions that were never
    evaluated, or never had a value."""
    target = debugger.some_target()
    debugger.ended = True
    debugger.position = len(target.stops) - 1 if len(target.stops) else None
    undecided = debugger.breakpoints.undecided()
    if undecided is not None:
        raise MissingDataError(
            f"the run is over, and it is unknown whether {undecided.what!r} "
            f"(number {undecided.number}) held anywhere: {undecided.why}"
        )
    unseen = debugger.breakpoints.unseen()
    if unseen is not None:
        raise MissingDataError(
            f"the run is over, and {unseen.what!r} (number {unseen.number}) was never evaluated",
            hint="it picks none of the operators that ran: info ops, info breakpoints",
        )
    text = f"run {target.run} is over, after {operators(len(target.stops))}"
    if target.next_run is not None and not target.is_past:
        text += f", and run {target.next_run} goes on from its state"
    info = next((run for run in target.runs if run.number == target.run), None)
    if info is not None and info.total is not None and debugger.shows_times:
        scale = debugger.scale
        text += f" · {format_duration(float(scale(info.total)), scale.unit)} {scale.unit}"
    output = Output().say(text)
    for one in debugger.breakpoints.partly_decided():
        output.say(
            f"{one.what!r} (number {one.number}) had no value at {one.unknown:,} of "
            f"{operators(one.looked)}: {one.why}"
        )
    return output


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
            if ignores and one.ignored:
                debugger.breakpoints.ignore(one)
                continue
            if counts:
                debugger.breakpoints.hit(one)
            kind = "watchpoint" if one.selector is None else "breakpoint"
            kind = f"temporary {kind}" if one.once else kind
            is_finding = one.selector is None or one.condition is not None
            return Hit(one, f"{kind} {one.number}{found}", is_finding)
    return None


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
        if type(error) is UsageError:
            raise
        debugger.breakpoints.looked_at(one, error.message)
        return None
    debugger.breakpoints.looked_at(one, None)
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
    """Stops that a walk must not miss: those that are `wanted`, and those where a watch holds.

    certain: the stop is wanted whatever its values are; decides: all wanted stops are certain.
    passed: called with the stops that the target passed over. probe: the reason to stop somewhere,
    without counting a hit."""

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
            debugger.breakpoints.passed(one, sum(map(watches[0].at, stops)))

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


def _stay(target: Target, position: int) -> tuple[int | None, str]:
    """After Ctrl-C, return to a stop, or stay where another Ctrl-C leaves the run."""
    target.reach(position)
    return target.position, INTERRUPTED
