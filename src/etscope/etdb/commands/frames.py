"""Where in the person's Python a stop is: frames, and the modules around."""

from __future__ import annotations

from pathlib import PurePath

from etscope.errors import UsageError
from etscope.etdb._answer import Answer
from etscope.etdb._debugger import Debugger
from etscope.etdb.commands.common import whole
from etscope.etdb.commands.registry import command
from etscope.etdb.targets.target import Stop
from etscope.etdb.ui.describe import frames_of, stop_lines
from etscope.model.graph import SourceLine

GROUP = "stack"


@command("bt", group=GROUP, aliases=("backtrace", "where"))
def bt(debugger: Debugger, rest: str) -> Answer:
    """Show the Python stack that made the operator, innermost first, and the modules it is in.

    `bt full` has the frames of PyTorch, too.
    """
    stop = debugger.here()
    if rest not in ("", "full"):
        raise UsageError(f"bt or bt full, not bt {rest}")
    frames = list(reversed(stop.stack)) if rest else frames_of(stop)
    answer = Answer()
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


@command("frame [N]", group=GROUP, aliases=("f",))
def frame(debugger: Debugger, rest: str) -> Answer:
    """Look at a frame of the Python stack, or say where the run stands."""
    stop = debugger.here()
    if not rest:
        return Answer().say(*stop_lines(debugger, stop), *_frame_lines(debugger, stop))
    frames = frames_of(stop)
    number = whole(rest)
    if not 0 <= number < len(frames):
        raise UsageError(f"there is no frame {number}", hint=f"bt lists {len(frames)} of them")
    debugger.frame = number
    return Answer().say(*_frame_lines(debugger, stop))


@command("up [N]", group=GROUP, repeats=True)
def up(debugger: Debugger, rest: str) -> Answer:
    """Go to the module around, and to the frame that calls into this one."""
    return _moved(debugger, whole(rest, 1))


@command("down [N]", group=GROUP, repeats=True)
def down(debugger: Debugger, rest: str) -> Answer:
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


def _moved(debugger: Debugger, by: int) -> Answer:
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
    return Answer().say(head, *_frame_lines(debugger, stop))


def _frame_lines(debugger: Debugger, stop: Stop) -> list[str]:
    frames = frames_of(stop)
    if not frames:
        return []
    number = min(debugger.frame, len(frames) - 1)
    one = frames[number]
    function = f" in {one.function}" if one.function else ""
    lines = [f"#{number} {PurePath(one.file).name}:{one.line}{function}"]
    return [*lines, f"    {one.text}"] if one.text else lines
