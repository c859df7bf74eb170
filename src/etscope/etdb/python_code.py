"""The Python of the model: its known lines, and the variables that it has at a stop."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.errors import MissingDataError
from etscope.etdb.debugger import Debugger
from etscope.etdb.output import frames_of, module_of_frame, user_frames
from etscope.model.graph import SourceLine, source_lines

_MOST_BYTES = 4 << 20  # of a source file


def known_lines(debugger: Debugger) -> dict[str, dict[int, str]]:
    """The user's lines in stack traces of the method: file -> line -> text."""
    try:
        nodes = debugger.edge(debugger.method).graph.walk()
        lines = [line for node in nodes for line in source_lines(node.stack_trace)]
    except MissingDataError:
        lines = []
    if debugger.target is not None:
        lines += [line for stop in debugger.target.stops for line in stop.stack]
    found: dict[str, dict[int, str]] = {}
    for line in lines:
        if not line.file.startswith("<") and "/site-packages/" not in line.file:
            found.setdefault(line.file, {}).setdefault(line.line, line.text)
    return found


def read_lines(file: str, known: dict[int, str]) -> dict[int, str]:
    """Lines of a file, if it still agrees with the record; else the lines of the record."""

    def agrees(number: int, text: str) -> bool:
        # A statement of several lines has the text of all of them.
        own = lines.get(number)
        if own is None:
            return False
        return not text or text.startswith(own.strip()) or own.strip().startswith(text)

    path = Path(file)
    try:
        if path.suffix == ".py" and path.is_file() and path.stat().st_size <= _MOST_BYTES:
            lines = dict(enumerate(path.read_text("utf-8", "replace").splitlines(), 1))
            if all(agrees(number, text) for number, text in known.items()):
                return lines
    except OSError:
        pass
    return known


def python_names(debugger: Debugger, frame: int) -> dict[str, str]:
    """Find the variables of a frame of the current stop's stack: name -> path of the node with the
    value.

    These are tensors that statements of the frame have assigned (`y = …`), and arguments: those of
    the model, and the argument of an inner function with only one. The file must agree with the
    record; a variable that the function also binds without an operator (`y = x`) is not known.
    """
    stop = debugger.stop
    frames = [] if stop is None else frames_of(stop)
    if stop is None or debugger.record is None or not stop.nodes or frame >= len(frames):
        return {}
    linked = debugger.edge(debugger.method)
    graph, depth, own = linked.graph, len(frames) - frame, frames[frame]
    stacks = debugger.capture.once(("stacks", linked.name), lambda: _stacks(linked))
    function = next(
        (
            one
            for one in debugger.capture.once(("python", own.file), lambda: _functions(own, stacks))
            if one.name == own.function and one.lineno <= own.line <= (one.end_lineno or 0)
        ),
        None,
    )
    if function is None:
        return {}
    callers, module = frames[frame + 1 :], module_of_frame(stop.nodes[-1], depth)
    inside: dict[str, int] = {}  # the frame's line that each of its nodes comes from
    for path, stack in stacks.items():
        line = stack[-depth] if len(stack) >= depth else None
        if (
            line is not None
            and (line.file, line.function) == (own.file, own.function)
            and stack[len(stack) - depth + 1 :] == callers
            and module_of_frame(graph.calls[path], depth) == module
        ):
            inside[path] = line.line
    arguments = [one.arg for one in function.args.args if one.arg != "self"]
    inputs = [name for name in graph.inputs if name not in graph.parameters]
    names = {name: name for name in arguments if depth == 1 and name in inputs}
    known = graph.by_name
    reads = {name for path in inside for name in graph.calls[path].inputs if name in known}
    outer = {one for one in reads - {*graph.parameters} if known[one].name not in inside}
    if depth > 1 and len(arguments) == len(outer) == 1:
        names = {arguments[0]: outer.pop()}
    assigned, silent = _bindings(function, set(inside.values()))
    lines = [*inside.items(), ("", 0)]
    for (path, at), (_, following) in pairwise(lines):
        if at != following and at in assigned:  # when its last operator is over
            names[assigned[at]] = path
        if path == stop.path:
            break
    return {name: path for name, path in names.items() if name not in silent}


def _stacks(linked: LinkedGraph) -> dict[str, list[SourceLine]]:
    """The user's frames of each call of the graph, in order: path -> frames, innermost first."""
    calls = linked.graph.calls.items()
    return {path: user_frames(source_lines(node.stack_trace)) for path, node in calls}


def _functions(own: SourceLine, stacks: dict[str, list[SourceLine]]) -> list[ast.FunctionDef]:
    """The functions of a frame's file, inner ones first; none if it is not the one of the
    record."""
    known = {
        line.line: line.text for stack in stacks.values() for line in stack if line.file == own.file
    }
    lines = read_lines(own.file, known)
    if lines is known:
        return []
    try:
        tree = ast.parse("\n".join(lines.values()))
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)][::-1]


def _bindings(function: ast.FunctionDef, lines: set[int]) -> tuple[dict[int, str], set[str]]:
    """The name that the statement at each line assigns a single value to; and the names that are
    also bound otherwise, or where none of `lines` is."""
    assigned: dict[int, str] = {}
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else (
            [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []
        )  # fmt: skip
        if isinstance(node, ast.stmt) and len(targets) == 1 and isinstance(targets[0], ast.Name):
            span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if not lines.isdisjoint(span):
                assigned.update(dict.fromkeys(span, targets[0].id))
    silent = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        and assigned.get(node.lineno) != node.id
    }  # fmt: skip
    return assigned, silent
