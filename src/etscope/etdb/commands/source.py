"""The user's Python: the stack of a stop, and source lines with times and errors in the margin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import NamedTuple

from etscope.analysis.metrics import find_metric
from etscope.analysis.profile.rollup import rollup
from etscope.analysis.program.source_location import lines_of
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.breakpoints import LineSelector, fields_of_stop
from etscope.etdb.commands import command, flag_of, whole
from etscope.etdb.commands.numerics import of_runtime
from etscope.etdb.debugger import Debugger
from etscope.etdb.output import (
    Output,
    frames_of,
    level_of_frame,
    line_of,
    modules_of,
    stop_lines,
)
from etscope.etdb.python_code import known_lines, read_lines
from etscope.etdb.scope import DebuggerScope
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.runtime import RuntimeTarget
from etscope.etdb.targets.target import Stop
from etscope.model.graph import SourceLine
from etscope.model.selector import Selector, meant
from etscope.units import format_duration, format_float

_AROUND = 5  # lines
_QUOTED = re.compile(r"""(["'])([^"']*:\d+)\1""")
_FILE_LINE = re.compile(r"(?<![^\s(])([^\s:()]+\.\w+):(\d+)(?![^\s)])")  # net.py:12


@command("bt", group="stack", aliases=("backtrace", "where"))
def bt(debugger: Debugger, rest: str) -> Output:
    """Show the Python stack of the operator, innermost first, and the modules it is in.

    `bt full` includes the frames of PyTorch.
    """
    stop = debugger.here()
    if rest not in ("", "full"):
        raise UsageError(f"bt or bt full, not bt {rest}")
    frames = list(reversed(stop.stack)) if rest else frames_of(stop)
    output = Output()
    if not frames:
        why = (
            "the model has no code here: bt full shows PyTorch's"
            if stop.stack
            else "the record has none, or no record is loaded"
        )
        output.say("no Python stack is known", f"  {why}")
    for number, frame in enumerate(frames):
        mark = "*" if number == debugger.frame and not rest else " "
        function = f" in {frame.function}" if frame.function else ""
        output.say(f"{mark}#{number:<2} {PurePath(frame.file).name}:{frame.line}{function}")
        if frame.text:
            output.say(f"       {frame.text}")
    for level, (path, kind) in enumerate(modules_of(stop)):
        mark = "*" if level == debugger.level else " "
        output.say(f"{mark}module {path or '(root)'}" + (f" ({kind})" if kind else ""))
    return output


@command("frame [N]", group="stack", aliases=("f",))
def frame(debugger: Debugger, rest: str) -> Output:
    """Select a frame of the Python stack, or show the current stop."""
    stop = debugger.here()
    if not rest:
        return Output().say(*stop_lines(debugger, stop), *_frame_lines(debugger, stop))
    frames = frames_of(stop)
    number = whole(rest)
    if not 0 <= number < len(frames):
        raise UsageError(f"frame {number} does not exist", hint=f"bt lists {len(frames)} of them")
    debugger.frame = number
    debugger.level = level_of_frame(stop, number)
    return Output().say(*_frame_lines(debugger, stop))


@command("up [N]", group="stack", repeats=True)
def up(debugger: Debugger, rest: str) -> Output:
    """Go to the enclosing module, and to the frame that calls into this one."""
    return _select_level(debugger, debugger.level + whole(rest, 1))


@command("down [N]", group="stack", repeats=True)
def down(debugger: Debugger, rest: str) -> Output:
    """Go back into the module that the operator is in."""
    return _select_level(debugger, debugger.level - whole(rest, 1))


def _select_level(debugger: Debugger, level: int) -> Output:
    stop = debugger.here()
    modules = modules_of(stop)
    if level < 0:
        raise UsageError("this is the innermost module already")
    if level >= max(len(modules), 1):
        raise UsageError("this is the outermost module already")
    debugger.level = level
    frames = frames_of(stop)
    # Modules of torch have no frame of their own: theirs is that of the module around them.
    around = (n for n in range(len(frames)) if level_of_frame(stop, n) >= level)
    debugger.frame = next(around, max(len(frames) - 1, 0))
    path, kind = modules[level]
    head = f"module {path or '(root)'}" + (f" ({kind})" if kind else "")
    return Output().say(head, *_frame_lines(debugger, stop))


def _frame_lines(debugger: Debugger, stop: Stop) -> list[str]:
    frames = frames_of(stop)
    if not frames:
        return []
    number = min(debugger.frame, len(frames) - 1)
    one = frames[number]
    debugger.file_shown = one.file
    function = f" in {one.function}" if one.function else ""
    lines = [f"#{number} {PurePath(one.file).name}:{one.line}{function}"]
    return [*lines, f"    {one.text}"] if one.text else lines


@command("list [FILE:LINE|LINE|FILE|NODE]", group="source", aliases=("l",),
         words=("file_line", "node"))  # fmt: skip
def list_(debugger: Debugger, rest: str) -> Output:
    """Show the Python around the current frame, around the line of a node, or around another line:
    `list net.py:24`, `list 24` (of the file that was shown last).

    The margin shows the average time of the line's operators and, with `list/e`, the worst error
    (SQNR in dB) of the device's values. Lines come from the file if it has not changed since the
    export; otherwise from the record.
    """
    with_errors, rest = flag_of(rest, "list", "e", "shows errors")
    lines = known_lines(debugger)
    if not lines:
        raise MissingDataError("no lines of Python are known", hint="the ETRecord has them")
    file, center = _find_line(debugger, rest.strip(), lines)
    texts = read_lines(file, lines[file])
    if not texts:
        raise MissingDataError(f"no line of {file} is known")
    debugger.file_shown = file
    shown = sorted(number for number in texts if abs(number - center) <= _AROUND)
    if not shown:
        near = min(texts, key=lambda number: abs(number - center))
        shown = sorted(number for number in texts if abs(number - near) <= _AROUND)

    unit = debugger.scale.unit
    times = {
        number: f"{format_duration(time, unit)} {unit}"
        for number, time in _line_times(debugger, file).items()
    }
    has_errors = with_errors and debugger.target is not None
    errors = {
        number: f"{format_float(error)} dB"
        for number, error in (_line_errors(debugger, file) if has_errors else {}).items()
    }
    margins = [
        (column, max(len(column[n]) for n in shown if n in column))
        for column in (times, errors)
        if any(n in column for n in shown)
    ]
    output = Output().say(PurePath(file).name)
    before = None
    for number in shown:
        if before is not None and number != before + 1:
            output.say("   …")
        beside = "".join(f"{column.get(number, ''):>{width}}  " for column, width in margins)
        mark = ">" if number == center else " "
        output.say(f"{mark}{number:>5}  {beside}{texts[number]}".rstrip())
        before = number
    return output


class Picked(NamedTuple):
    """Stops that are picked by a selector or a line of Python. text: the selector, or the line with
    its file. places: the number of stops; None without a target.
    """

    text: str
    selector: Selector
    places: int | None


def picked_stops(debugger: Debugger, text: str) -> Picked:
    """Parse a selector (`%12` is the debug handle 12), FILE:LINE, or a line of the file that was
    shown last. A line without an operator picks the operators that are called from it.

    Raises `UsageError` if no stop of the target is picked."""
    more = ""
    if text.isdecimal():
        more = f"; id:{text} is an instruction"
        text = f"{PurePath(_file_shown(debugger, known_lines(debugger))).name}:{text}"
    text = _QUOTED.sub(r"\2", text)
    name, _, number = text.rpartition(":")
    files = [one for one in known_lines(debugger) if one == name or one.endswith(f"/{name}")]
    if files and number.isdecimal():
        return stops_at_line(debugger, text, files, int(number), more)
    line = _FILE_LINE.fullmatch(text)
    plain = re.sub(r"%(\d+)", r"handle:\1", _FILE_LINE.sub(r"file:\g<0>", text))
    selector = Selector(plain)
    if debugger.target is None:
        return Picked(text, selector, None)
    count = sum(selector.matches(fields_of_stop(stop)) for stop in debugger.target.stops)
    if count:
        return Picked(text, selector, count)
    if line is not None:
        _known_file(line[1], known_lines(debugger))  # raises
    hint = meant(plain, map(fields_of_stop, debugger.target.stops)) or (
        "info ops lists what there is, FILE.py:12 is a line of Python; help selectors"
    )
    raise UsageError(f"nothing is picked by {text!r}", hint=hint)


def stops_at_line(
    debugger: Debugger, text: str, files: Sequence[str], number: int, more: str = ""
) -> Picked:
    """Pick the operators that come from a line, or those that are called from it. text: as the user
    wrote it. files: that the text may mean, of `known_lines`. more: for the hint.

    Raises `UsageError` with the nearest line if there are none."""
    places = frozenset(f"{file}:{number}" for file in files)
    is_own = not places.isdisjoint(map(str, _operator_lines(debugger)))
    selector = LineSelector(text, places, "file" if is_own else "frame")
    if debugger.target is None:
        return Picked(text, selector, None)
    count = sum(selector.matches(fields_of_stop(stop)) for stop in debugger.target.stops)
    if not count:
        known = known_lines(debugger)
        near = min((n for file in files for n in known[file]), key=lambda n: abs(n - number))
        raise UsageError(
            f"nothing is picked by {text!r}",
            hint=f"the nearest line with an operator is {text.rpartition(':')[0]}:{near}{more}",
        )
    return Picked(text, selector, count)


def _operator_lines(debugger: Debugger) -> list[SourceLine]:
    """The lines that operators come from, each once."""
    if debugger.target is not None:
        return list(dict.fromkeys(line for stop in debugger.target.stops for line in stop.lines))
    try:
        return list(lines_of(debugger.edge(debugger.method).graph.walk()))
    except MissingDataError:
        return []


def _find_line(debugger: Debugger, rest: str, lines: dict[str, dict[int, str]]) -> tuple[str, int]:
    """File and line that an argument of `list` names; adds the current frame's line to `lines`."""
    name, colon, number = rest.rpartition(":")
    if rest.isdecimal():
        file = _file_shown(debugger, lines)
        lines.setdefault(file, {})
        return file, int(rest)
    if not rest:
        stop = debugger.here()
        frames = frames_of(stop)
        line = frames[min(debugger.frame, len(frames) - 1)] if frames else line_of(stop)
        if line is None:
            raise MissingDataError("no line of Python is known of this operator")
        lines.setdefault(line.file, {line.line: line.text})
        return line.file, line.line
    if rest in debugger.nodes():
        line = next(iter(lines_of([debugger.nodes()[rest]])), None)
        if line is None:
            raise MissingDataError(f"no line of Python is known of {rest}")
        return line.file, line.line
    wanted = name if colon and number.isdecimal() else rest
    file = _known_file(wanted, lines)
    return file, whole(number) if colon and number.isdecimal() else min(lines[file])


def _file_shown(debugger: Debugger, lines: dict[str, dict[int, str]]) -> str:
    """Return the file of the last shown line; before that, the only file of the model."""
    if debugger.file_shown is not None:
        return debugger.file_shown
    if len(lines) != 1:
        raise UsageError(
            "a line number alone is not enough: give FILE:LINE", hint=_files_text(lines)
        )
    return next(iter(lines))


def _known_file(name: str, lines: dict[str, dict[int, str]]) -> str:
    """The file of a name without the folders on its left. Raises `UsageError` if there is none."""
    for file in lines:
        if file == name or file.endswith(f"/{name}"):
            return file
    raise UsageError(f"no line of {name!r} is known", hint=_files_text(lines))


def _files_text(lines: dict[str, dict[int, str]]) -> str:
    return "files are: " + (", ".join(sorted(PurePath(file).name for file in lines)) or "none")


def _line_times(debugger: Debugger, file: str) -> dict[int, float]:
    """Average time of each line's operators, over all runs of the dump; a time that several lines
    share counts for the first of them."""
    profile = debugger.profiles.get(debugger.method)
    times: dict[int, float] = {}
    if profile is None or not debugger.shows_times:
        return times
    for group in rollup(profile, "source").groups:
        for line in group.rows[0].attribution.lines[:1]:
            if line.file == file:
                mean = float(debugger.scale(group.average))
                times[line.line] = times.get(line.line, 0.0) + mean
    return times


def _line_errors(debugger: Debugger, file: str) -> dict[int, float]:
    """Worst SQNR of the values of each line's stops."""
    target = debugger.some_target()
    gaps: list[tuple[SourceLine, float | None]] = []
    if isinstance(target, RuntimeTarget):
        found = of_runtime(debugger, target, find_metric("sqnr"))
        gaps = [(line, row.total) for row in found.rows for line in row.lines[:1]]
    elif isinstance(target, RecordedRuns):
        pairs = target.matched().by_node
        for stop in target.stops:
            if stop.lines and stop.lines[0].file == file and stop.node in pairs:
                with suppress(EtscopeError), debugger.standing_at(stop.position):
                    gaps.append((stop.lines[0], DebuggerScope(debugger).gap("sqnr")))
    else:
        raise UsageError(
            "errors need values of the device: of a recorded run, or a run on the runtime",
            hint="target recorded, or target runtime",
        )
    worst: dict[int, float] = {}
    for line, number in gaps:
        if number is not None and line.file == file:
            worst[line.line] = min(worst.get(line.line, float("inf")), number)
    return worst
