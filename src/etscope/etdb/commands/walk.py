"""Going on, and back: run, step, next, finish, until, and their reverses."""

from __future__ import annotations

from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb._answer import Answer
from etscope.etdb._breakpoints import fields_of_stop
from etscope.etdb._debugger import Debugger
from etscope.etdb.commands.common import (
    arrived,
    interest_of,
    reason_to_stop,
    selector_of,
    whole,
)
from etscope.etdb.commands.registry import command
from etscope.etdb.commands.stepping import (
    BACKWARD,
    FORWARD,
    INTERRUPTED,
    Reason,
    outside_of,
    same_level,
    walk,
)
from etscope.etdb.targets.target import Stop, Target
from etscope.etdb.ui.describe import operators

GROUP = "running"


@command("run [RUN]", group=GROUP, aliases=("r",))
def run(debugger: Debugger, rest: str) -> Answer:
    """Begin a run, and go on to the first breakpoint or to its end.

    RUN is a run of the dump by its number (info runs); by default the one that was chosen last. A
    live run, and one on the runtime, begins anew, without what was set.
    """
    _begun(debugger, rest)
    return _go(debugger, -1, FORWARD)


@command("start [RUN]", group=GROUP)
def start(debugger: Debugger, rest: str) -> Answer:
    """Begin a run, and stop at its first operator."""
    target = _begun(debugger, rest)
    everywhere: Reason = lambda stop: ""  # noqa: E731
    position, _ = walk(target, -1, FORWARD, everywhere, interest_of(debugger, everywhere))
    if position is None:
        raise UsageError("the run has no operators")
    return arrived(debugger, position)


@command("continue [N]", group=GROUP, aliases=("c", "cont"), repeats=True)
def continue_(debugger: Debugger, rest: str) -> Answer:
    """Go on to the next breakpoint or watchpoint, or to the N-th from here, or to the end."""
    return _times(debugger, rest, FORWARD)


@command("reverse-continue [N]", group=GROUP, aliases=("rc",), repeats=True)
def reverse_continue(debugger: Debugger, rest: str) -> Answer:
    """Go back to the breakpoint before, or to the start of the run."""
    return _times(debugger, rest, BACKWARD)


@command("step [N]", group=GROUP, aliases=("s",), repeats=True)
def step(debugger: Debugger, rest: str) -> Answer:
    """Go to the next operator, into modules and delegates; N times.

    Into a delegate it goes where its operators are known, in a recorded run that logged them. On
    the runtime a delegate's call is one instruction, and the stop stands behind it.
    """
    return _moved(debugger, whole(rest, 1), FORWARD, lambda stop: "")


@command("reverse-step [N]", group=GROUP, aliases=("rs",), repeats=True)
def reverse_step(debugger: Debugger, rest: str) -> Answer:
    """Go to the operator before; N times."""
    return _moved(debugger, whole(rest, 1), BACKWARD, lambda stop: "")


@command("next [N]", group=GROUP, aliases=("n",), repeats=True)
def next_(debugger: Debugger, rest: str) -> Answer:
    """Go to the next operator of this module or of one around it, over those further inside.

    Breakpoints inside stop it.
    """
    return _moved(debugger, whole(rest, 1), FORWARD, None)


@command("reverse-next [N]", group=GROUP, aliases=("rn",), repeats=True)
def reverse_next(debugger: Debugger, rest: str) -> Answer:
    """Go back to the operator before of this module or of one around it."""
    return _moved(debugger, whole(rest, 1), BACKWARD, None)


@command("finish", group=GROUP, aliases=("fin",), repeats=True)
def finish(debugger: Debugger, rest: str) -> Answer:
    """Go on until the module is left: the one that `up` went to, or else the operator's own.

    Inside of a delegate, it goes to the delegate's call.
    """
    return _left(debugger, FORWARD)


@command("reverse-finish", group=GROUP, repeats=True)
def reverse_finish(debugger: Debugger, rest: str) -> Answer:
    """Go back to before the module was entered."""
    return _left(debugger, BACKWARD)


@command("until SELECTOR", group=GROUP, aliases=("u",), words=("selector",), repeats=True)
def until(debugger: Debugger, rest: str) -> Answer:
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


def _walked(debugger: Debugger, start: int, direction: int, wanted: Reason) -> tuple[Answer, bool]:
    """Go on to the next stop that is `wanted`, or to a breakpoint before; also whether the way
    ends there: at a breakpoint, or with the run."""
    hits: list[bool] = []

    def reason(stop: Stop) -> str | None:
        hit = reason_to_stop(debugger, stop)
        if hit is None:
            return wanted(stop)
        hits.append(hit[1])
        return hit[0]

    interest = interest_of(debugger, wanted)
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


def _go(debugger: Debugger, start: int, direction: int) -> Answer:
    return _walked(debugger, start, direction, lambda stop: None)[0]


def _times(debugger: Debugger, rest: str, direction: int) -> Answer:
    answer = Answer()
    for _ in range(max(whole(rest, 1), 1)):
        answer = _go(debugger, _start_of(debugger, direction), direction)
        if debugger.stop is None or (direction == BACKWARD and debugger.position == 0):
            break
    return answer


def _moved(debugger: Debugger, times: int, direction: int, own: Reason | None) -> Answer:
    """Go to the next stop that `own` names (None: of the same level), `times` times; breakpoints
    on the way stop it."""
    if times < 1:
        raise UsageError("how many times: 1 or more")
    answer = Answer()
    for _ in range(times):
        wanted = own or same_level(debugger.stop)
        answer, ends = _walked(debugger, _start_of(debugger, direction), direction, wanted)
        if ends:
            break
    return answer


def _left(debugger: Debugger, direction: int) -> Answer:
    stop = debugger.here()
    module = stop.module
    if debugger.level and module is not None:
        parts = module.split(".") if module else []
        module = ".".join(parts[: max(len(parts) - debugger.level, 0)])
    if not stop.depth and not module:
        return _go(debugger, stop.position, direction)
    return _moved(debugger, 1, direction, outside_of(module, 0 if debugger.level else stop.depth))


def _at_an_end(debugger: Debugger, direction: int) -> Answer:
    target = debugger.some_target()
    if direction == BACKWARD:
        if not len(target.stops):
            return Answer().say("the start of the run")
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
    answer = Answer().say(text)
    for one in debugger.breakpoints.partly_decided():
        answer.say(
            f"{one.what!r} (number {one.number}) had no value at {one.unknown:,} of "
            f"{operators(one.looked)}: {one.why}"
        )
    return answer
