"""The person's Python around a stop, with times and errors in the margin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.commands.registry import command, whole
from etscope.etdb.debugger import Debugger
from etscope.etdb.expressions.scope import DebuggerScope, gaps_so_far
from etscope.etdb.output import Output, frames_of, stop_lines
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.target import Stop
from etscope.model.graph import SourceLine, source_lines
from etscope.units import format_duration, format_float

# Where in the person's Python a stop is: frames, and the modules around.


STACK = "stack"


@command("bt", group=STACK, aliases=("backtrace", "where"))
def bt(debugger: Debugger, rest: str) -> Output:
    """Show the Python stack that made the operator, innermost first, and the modules it is in.

    `bt full` has the frames of PyTorch, too.
    """
    stop = debugger.here()
    if rest not in ("", "full"):
        raise UsageError(f"bt or bt full, not bt {rest}")
    frames = list(reversed(stop.stack)) if rest else frames_of(stop)
    answer = Output()
    if not frames:
        answer.say("no Python stack is known", "  the record has none, or there is no record")
    for number, frame in enumerate(frames):
        mark = "*" if number == debugger.frame and not rest else " "
        function = f" in {frame.function}" if frame.function else ""
        answer.say(f"{mark}#{number:<2} {PurePath(frame.file).name}:{frame.line}{function}")
        if frame.text:
            answer.say(f"       {frame.text}")
    for level, (path, kind) in enumerate(modules_of(stop)):
        mark = "*" if level == debugger.level else " "
        answer.say(f"{mark}module {path or '(root)'}" + (f" ({kind})" if kind else ""))
    return answer


@command("frame [N]", group=STACK, aliases=("f",))
def frame(debugger: Debugger, rest: str) -> Output:
    """Look at a frame of the Python stack, or say where the run stands."""
    stop = debugger.here()
    if not rest:
        return Output().say(*stop_lines(debugger, stop), *_frame_lines(debugger, stop))
    frames = frames_of(stop)
    number = whole(rest)
    if not 0 <= number < len(frames):
        raise UsageError(f"there is no frame {number}", hint=f"bt lists {len(frames)} of them")
    debugger.frame = number
    return Output().say(*_frame_lines(debugger, stop))


@command("up [N]", group=STACK, repeats=True)
def up(debugger: Debugger, rest: str) -> Output:
    """Go to the module around, and to the frame that calls into this one."""
    return _moved(debugger, whole(rest, 1))


@command("down [N]", group=STACK, repeats=True)
def down(debugger: Debugger, rest: str) -> Output:
    """Go back into the module that the operator is in."""
    return _moved(debugger, -whole(rest, 1))


def modules_of(stop: Stop) -> list[tuple[str, str]]:
    """The modules of a stop as (path, type), innermost first."""
    node = stop.nodes[-1] if stop.nodes else None
    types = {} if node is None else {m.path: m.type.rpartition(".")[2] for m in node.modules}
    if stop.module is None:
        return []
    parts = stop.module.split(".") if stop.module else []
    paths = [".".join(parts[:length]) for length in range(len(parts), -1, -1)]
    return [(path, types.get(path, "")) for path in paths]


def selected_line(debugger: Debugger, stop: Stop) -> SourceLine | None:
    """The line that is looked at: that of the chosen frame."""
    frames = frames_of(stop)
    if frames:
        return frames[min(debugger.frame, len(frames) - 1)]
    return stop.lines[0] if stop.lines else None


def _moved(debugger: Debugger, by: int) -> Output:
    stop = debugger.here()
    modules = modules_of(stop)
    level = debugger.level + by
    if level < 0:
        raise UsageError("this is the innermost module already")
    if level >= max(len(modules), 1):
        raise UsageError("this is the outermost module already")
    debugger.level = level
    frames = frames_of(stop)
    # The outermost frames belong to the outermost modules; a module may have several frames.
    inner = len(modules) - level
    debugger.frame = max(len(frames) - inner, 0) if frames else 0
    path, kind = modules[level]
    head = f"module {path or '(root)'}" + (f" ({kind})" if kind else "")
    return Output().say(head, *_frame_lines(debugger, stop))


def _frame_lines(debugger: Debugger, stop: Stop) -> list[str]:
    frames = frames_of(stop)
    if not frames:
        return []
    number = min(debugger.frame, len(frames) - 1)
    one = frames[number]
    function = f" in {one.function}" if one.function else ""
    lines = [f"#{number} {PurePath(one.file).name}:{one.line}{function}"]
    return [*lines, f"    {one.text}"] if one.text else lines


GROUP = "source"
_AROUND = 5
_MOST_BYTES = 4 << 20  # of a source file


@dataclass(frozen=True, slots=True)
class _Margin:
    """What stands beside a line: its time in all runs of the dump, and its worst error."""

    time: str = ""
    error: str = ""


@command("list [FILE:LINE|LINE|FILE]", group=GROUP, aliases=("l",), words=("file_line",))
def list_(debugger: Debugger, rest: str) -> Output:
    """Show the Python around the current frame, or around another line.

    In the margin stand the average time of the line's operators and, with `list/e`, the worst
    error (SQNR in dB) of the values that the device gave. Lines come from the file itself, where it
    is here and is the one that was exported; else those are shown that the record has.
    """
    with_errors = rest.startswith("/")
    if with_errors:
        option, _, rest = rest[1:].partition(" ")
        if option != "e":
            raise UsageError(f"list has no option /{option}", hint="list/e shows errors")
    lines = known_lines(debugger)
    if not lines:
        raise MissingDataError("no lines of Python are known", hint="the ETRecord has them")
    file, center = _place(debugger, rest.strip(), lines)
    texts = _texts(file, lines[file])
    shown = sorted(number for number in texts if abs(number - center) <= _AROUND)
    if not shown:
        near = min(texts, key=lambda number: abs(number - center))
        shown = sorted(number for number in texts if abs(number - near) <= _AROUND)
    margins = _margins(debugger, file, with_errors)
    width = max((len(margins[n].time) for n in shown if n in margins), default=0)
    wide = max((len(margins[n].error) for n in shown if n in margins), default=0)
    answer = Output().say(PurePath(file).name)
    before = None
    for number in shown:
        if before is not None and number != before + 1:
            answer.say("   …")
        margin = margins.get(number, _Margin())
        beside = f"{margin.time:>{width}}  " if width else ""
        beside += f"{margin.error:>{wide}}  " if wide else ""
        mark = ">" if number == center else " "
        answer.say(f"{mark}{number:>5}  {beside}{texts[number]}".rstrip())
        before = number
    return answer


def known_lines(debugger: Debugger) -> dict[str, dict[int, str]]:
    """The person's lines that the stack traces of the method name: file -> line -> text."""
    found: dict[str, dict[int, str]] = {}
    for line in _all_lines(debugger):
        if not line.file.startswith("<") and "/site-packages/" not in line.file:
            found.setdefault(line.file, {}).setdefault(line.line, line.text)
    return found


def _all_lines(debugger: Debugger) -> list[SourceLine]:
    try:
        nodes = debugger.files.edge(debugger.method).graph.walk()
        lines = [line for node in nodes for line in source_lines(node.stack_trace)]
    except MissingDataError:
        lines = []
    target = debugger.target
    lines += [line for stop in (target.stops if target is not None else ()) for line in stop.stack]
    return lines


def _place(debugger: Debugger, rest: str, lines: dict[str, dict[int, str]]) -> tuple[str, int]:
    if not rest:
        stop = debugger.here()
        line = selected_line(debugger, stop)
        if line is None:
            raise MissingDataError("no line of Python is known of this operator")
        if line.file not in lines:
            lines[line.file] = {line.line: line.text}
        return line.file, line.line
    name, colon, number = rest.rpartition(":")
    if not colon and rest.isdecimal():
        line = selected_line(debugger, debugger.here())
        if line is None:
            raise MissingDataError("no line of Python is known of this operator")
        return line.file, int(rest)
    wanted = name if colon and number.isdecimal() else rest
    files = [file for file in lines if file == wanted or file.endswith(f"/{wanted}")]
    if not files:
        known = ", ".join(sorted(PurePath(file).name for file in lines))
        raise UsageError(f"no line of {wanted!r} is known", hint=f"files are: {known}")
    file = files[0]
    return file, whole(number) if colon and number.isdecimal() else min(lines[file])


def _texts(file: str, known: dict[int, str]) -> dict[int, str]:
    """The lines of a file: of the file itself, if it still says what the record says."""
    path = Path(file)
    try:
        if path.suffix == ".py" and path.is_file() and path.stat().st_size <= _MOST_BYTES:
            own = dict(enumerate(path.read_text(errors="replace").splitlines(), 1))
            if all(_agrees(own, number, text) for number, text in known.items()):
                return own
    except OSError:
        pass
    return known


def _agrees(own: dict[int, str], number: int, text: str) -> bool:
    # The text of a statement of several lines is that of all of them.
    return number in own and (
        not text or text.startswith(own[number].strip()) or (own[number].strip().startswith(text))
    )


def _margins(debugger: Debugger, file: str, with_errors: bool) -> dict[int, _Margin]:
    target = debugger.target
    profile = debugger.files.profiles.get(debugger.method)
    times: dict[int, float] = {}
    if profile is not None and debugger.shows_times:
        scale = debugger.scale
        for row in profile.rows:
            if row.depth == 0 and not row.own_clock:
                for line in row.attribution.lines[:1]:
                    if line.file == file:
                        mean = float(scale(row.ticks).mean())
                        times[line.line] = times.get(line.line, 0.0) + mean
    errors = _errors(debugger, file) if with_errors and target is not None else {}
    unit = debugger.scale.unit
    return {
        number: _Margin(
            f"{format_duration(times[number], unit)} {unit}" if number in times else "",
            f"{format_float(errors[number])} dB" if number in errors else "",
        )
        for number in {*times, *errors}
    }


def _errors(debugger: Debugger, file: str) -> dict[int, float]:
    """The worst SQNR of the values that stops on each line gave."""
    target = debugger.some_target()
    if debugger.on_runtime is not None:
        return _worst(
            (stop.lines[0], gap.total)
            for position, gap in gaps_so_far(debugger, target, "sqnr").items()
            if (stop := target.stops[position]).lines and stop.lines[0].file == file
        )
    if not isinstance(target, RecordedRuns):
        raise UsageError(
            "errors are those of the device: of a recorded run, or one on the runtime",
            hint="target recorded, or target runtime",
        )
    pairs = target.matched().by_node
    found: list[tuple[SourceLine, float | None]] = []
    before = debugger.position, debugger.ended
    try:
        for stop in target.stops:
            line = stop.lines[0] if stop.lines else None
            if line is None or line.file != file or stop.node not in pairs:
                continue
            debugger.position, debugger.ended = stop.position, False
            try:
                gap = DebuggerScope(debugger).gap("sqnr")
            except EtscopeError:
                continue
            found.append((line, gap))
    finally:
        debugger.position, debugger.ended = before
    return _worst(found)


def _worst(gaps: Iterable[tuple[SourceLine, float | None]]) -> dict[int, float]:
    found: dict[int, float] = {}
    for line, gap in gaps:
        if gap is not None:
            found[line.line] = min(found.get(line.line, float("inf")), gap)
    return found
