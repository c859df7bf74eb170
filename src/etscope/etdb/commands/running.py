"""Running, forward and backward: run, step, next, finish, until, and their reverses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.breakpoints import fields_of_stop
from etscope.etdb.commands import command, whole
from etscope.etdb.commands.source import picked_stops
from etscope.etdb.commands.targets import read_inputs
from etscope.etdb.debugger import (
    BREAKPOINT,
    END,
    ENTRY,
    EXCEPTION,
    GOTO,
    OF_AN_ORIGIN,
    PAUSE,
    STEP,
    Checkpoint,
    Debugger,
    Stopped,
)
from etscope.etdb.output import (
    Output,
    duration_text,
    line_of,
    modules_of,
    operators,
    stop_lines,
)
from etscope.etdb.scope import display_lines
from etscope.etdb.targets.target import Stop, Target
from etscope.etdb.walk import (
    BACKWARD,
    FORWARD,
    INTERRUPTED,
    Hit,
    Reason,
    hit_at,
    run_out,
    stop_criteria,
    walk,
)

GROUP = "running"


@command(
    "run [RUN|--call N|--keep [FILE]]",
    group=GROUP,
    aliases=("r",),
    words=("--call", "--keep", "file"),
)
def run(debugger: Debugger, rest: str) -> Output:
    """Start a run, and execute it up to the first breakpoint or to its end.

    RUN is its number (info runs); by default the run that was chosen last. A live run or a run on
    the runtime is executed again, without the values that were set; the earlier runs that leave the
    model's state are executed first.
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
        while target.run != wanted:
            start_at = -1 if debugger.position is None else debugger.position
            if not debugger.ended and not run_out(target, start_at):
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
    debugger.stopped = Stopped(ENTRY)
    return _arrive(debugger, position)


@command("continue [N]", group=GROUP, aliases=("c", "cont"), repeats=True)
def continue_(debugger: Debugger, rest: str) -> Output:
    """Continue to the next breakpoint or watchpoint, or to the N-th from here, or to the end.

    At the end of a run, continue with the next run, in the state that this one left (info runs).
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
    """Continue until the module ends: the module that `up` selected, or else the operator's own
    module.

    Inside a delegate, continue to the delegate's call.
    """
    return _leave(debugger, FORWARD)


@command("reverse-finish", group=GROUP, repeats=True)
def reverse_finish(debugger: Debugger, rest: str) -> Output:
    """Go back to before the module was entered."""
    return _leave(debugger, BACKWARD)


@command(
    "until SELECTOR|FILE:LINE|LINE",
    group=GROUP,
    aliases=("u", "advance"),
    words=("selector",),
    repeats=True,
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


@command("goto N|SELECTOR|FILE:LINE", group=GROUP, words=("selector",))
def goto(debugger: Debugger, rest: str) -> Output:
    """Go to a stop, forward or back, past all breakpoints: `goto 12` to stop [12], `goto net.py:24`
    or `goto op:softmax` to the next stop there, else to the first one.

    No operator is skipped: the runtime and PyTorch compute what lies between.
    """
    stops = debugger.some_target().stops
    if rest.isdecimal():
        if int(rest) >= len(stops):
            raise UsageError(f"stop {rest} does not exist", hint=f"stops are 0 to {len(stops) - 1}")
        return _jump(debugger, int(rest))
    if not rest:
        raise UsageError("goto where?", hint="goto 12, goto net.py:24, or goto op:softmax")
    selector = picked_stops(debugger, rest).selector
    found = [stop.position for stop in stops if selector.matches(fields_of_stop(stop))]
    here = -1 if debugger.position is None or debugger.ended else debugger.position
    return _jump(debugger, next((position for position in found if position > here), found[0]))


def _jump(debugger: Debugger, position: int) -> Output:
    """Go to a stop without looking for others on the way."""
    target = debugger.some_target()
    target.interrupted = False
    with _following(debugger):
        target.reach(position)
    if target.interrupted and target.position is not None:
        position = target.position
    debugger.stopped = Stopped(PAUSE if target.interrupted else GOTO)
    return _arrive(debugger, position, INTERRUPTED if target.interrupted else "")


@contextmanager
def _following(debugger: Debugger) -> Iterator[None]:
    """Stand where the run ended if it fails inside."""
    try:
        yield
    except EtscopeError as error:
        debugger.follow_target()
        debugger.stopped = Stopped(EXCEPTION, error.message)
        raise


def _begin(debugger: Debugger, rest: str) -> Target:
    target = debugger.some_target()
    debugger.breakpoints.begin()
    if rest:
        target.choose(whole(rest, what="the number of a run"))
    target.restart()
    debugger.begin(target)
    return target


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
        raise UsageError("the number of times must be at least 1")
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
        module = modules_of(stop)[debugger.level][0]
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
        raise UsageError("the run has not begun", hint="run, or start")
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
        with _following(debugger):
            position, why = walk(target, start, direction, reason, stop_criteria(debugger, wanted))
        goes_on = position is None and direction == FORWARD and target.next_run is not None
        if not (goes_on and debugger.breakpoints.name_call):
            break
        _go_on(debugger, target)
        start = -1
    if position is not None:
        interrupted = why == INTERRUPTED
        debugger.stopped = _reason_of(hits, why or "", interrupted)
        why = f"run {target.run}\n{why}".rstrip() if target.run != first else why
        output = _arrive(debugger, position, why or "")
        output.finding = output.finding or any(hit.is_finding for hit in hits)
        debugger.hit = hits[-1].breakpoint if hits else None
        return output, bool(hits) or interrupted
    if direction == FORWARD:
        return _end_of_run(debugger), True
    debugger.stopped = Stopped(ENTRY, "the start of the run")
    if not len(target.stops):
        return Output().say("the start of the run"), True
    target.reach(0)
    return _arrive(debugger, 0, "the start of the run"), True


def _reason_of(hits: Sequence[Hit], why: str, interrupted: bool) -> Stopped:
    if interrupted:
        return Stopped(PAUSE)
    if not hits:
        return Stopped(STEP)
    numbers = tuple(hit.breakpoint.number for hit in hits)
    one = hits[-1].breakpoint
    if one.origin in OF_AN_ORIGIN:
        return Stopped(f"{one.origin} breakpoint", why, numbers)
    # A condition on the values of all operators is what an exception is to a program.
    return Stopped(EXCEPTION if one.selector is None else BREAKPOINT, why, numbers)


def _arrive(debugger: Debugger, position: int, why: str = "") -> Output:
    """Make a stop the current one, and describe it, with all displays."""
    debugger.position, debugger.ended = position, False
    debugger.level = debugger.frame = 0
    if (line := line_of(debugger.here())) is not None:
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
    debugger.stopped = Stopped(END, f"run {target.run} is over")
    undecided = debugger.breakpoints.undecided()
    if undecided is not None:
        raise MissingDataError(
            f"the run is over, and it is unknown whether {undecided.what!r} (number "
            f"{undecided.number}) was true anywhere: {undecided.why}"
        )
    unseen = debugger.breakpoints.unseen()
    if unseen is not None:
        raise MissingDataError(
            f"the run is over, and {unseen.what!r} (number {unseen.number}) was never evaluated",
            hint="the breakpoint picks none of the operators that ran: see info ops and info "
            "breakpoints",
        )
    text = f"run {target.run} is over, after {operators(len(target.stops))}"
    if target.next_run is not None and not target.is_past:
        text += f", and run {target.next_run} goes on from its state"
    info = next((run for run in target.runs if run.number == target.run), None)
    if info is not None and info.total is not None and debugger.shows_times:
        text += f" · {duration_text(debugger, info.total)}"
    output = Output().say(text)
    if (failed := debugger.failed) is not None:
        output.say(failed)
    for one in debugger.breakpoints.partly_decided():
        output.say(
            f"{one.what!r} (number {one.number}) had no value at {one.unknown:,} of "
            f"{operators(one.looked)}: {one.why}"
        )
    return output


# -- checkpoints: states to go back to, with the values that were set before them


@command("checkpoint", group=GROUP)
def checkpoint(debugger: Debugger, rest: str) -> Output:
    """Save the state of the run, with the values that were set, for `restart`.

    `info checkpoints` lists them, `delete checkpoint N` removes one. They end with the target.
    """
    if rest:
        raise UsageError(
            "checkpoint takes no arguments", hint="restart N goes back to checkpoint N"
        )
    target = debugger.some_target()
    position = debugger.position
    if position is None:
        raise UsageError("the run has not begun", hint="run, or start")
    where = stop_lines(debugger, target.stops[position])[0]
    if debugger.ended:
        where = f"the end, after {where}"
    number = debugger.last_checkpoint = debugger.last_checkpoint + 1
    debugger.checkpoints[number] = Checkpoint(
        target.save(), target.run, position, debugger.ended, where
    )
    return Output().say(f"checkpoint {number}: run {target.run}, {where}")


@command("restart [N]", group=GROUP, words=("checkpoint",))
def restart(debugger: Debugger, rest: str) -> Output:
    """Go back to a checkpoint: its run, its stop, and the values that were set before it. Without
    N, go back to the first operator of the module: the one that `up` or `frame` selected, or else
    the operator's own module.

    The runtime repeats what it has to; values that were set after the checkpoint are forgotten.
    """
    if not rest:
        stop, stops = debugger.here(), debugger.some_target().stops
        modules = modules_of(stop)
        outside = outside_of(modules[debugger.level][0] if modules else None, 0)
        first = stop.position
        while first and outside(stops[first - 1]) is None:
            first -= 1
        return _jump(debugger, first)
    one = find_checkpoint(debugger, rest)
    target = debugger.some_target()
    target.restore(one.saved)
    debugger.begin(target)
    debugger.stopped = Stopped(ENTRY)
    debugger.position, debugger.ended = one.position, one.ended
    if one.ended:
        return Output().say(f"run {one.run}, {one.where}")
    if not target.keeps_values and target.position != one.position:  # Ctrl-C on the way
        debugger.follow_target()
    return Output().say(f"run {one.run}", *stop_lines(debugger, debugger.here()))


def find_checkpoint(debugger: Debugger, text: str) -> Checkpoint:
    """Find a checkpoint by its number. Raises `UsageError` with the known ones."""
    number = whole(text, what="the number of a checkpoint") if text else -1
    if number not in debugger.checkpoints:
        known = ", ".join(map(str, debugger.checkpoints)) or "none; checkpoint makes one"
        raise UsageError(
            f"checkpoint {number} does not exist" if text else "name a checkpoint",
            hint=f"checkpoints are: {known}",
        )
    return debugger.checkpoints[number]
