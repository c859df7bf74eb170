"""The Python of the model: its known lines, and the variables that it has at a stop."""

from __future__ import annotations

import ast
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
    the model, and the argument of an inner function with only one.
    """
    stop = debugger.stop
    frames = [] if stop is None else frames_of(stop)
    if stop is None or debugger.record is None or not stop.nodes or frame >= len(frames):
        return {}
    linked = debugger.edge(debugger.method)
    depth, own = len(frames) - frame, frames[frame]
    callers, module = frames[frame + 1 :], module_of_frame(stop.nodes[-1], depth)
    inside: dict[str, SourceLine] = {}  # the frame's line that each of its nodes comes from
    for path, stack in debugger.capture.once(("frames", linked.name), lambda: _stacks(linked)):
        line = stack[-depth] if len(stack) >= depth else None
        if (
            line is not None
            and (line.file, line.function) == (own.file, own.function)
            and stack[len(stack) - depth + 1 :] == callers
            and module_of_frame(linked.graph.calls[path], depth) == module
        ):
            inside[path] = line
    names = _arguments(debugger, linked, inside, own) if depth > 1 else {}
    if depth == 1:
        names = {name: name for name in linked.graph.inputs if name not in linked.graph.parameters}
    lines = list(inside.items())
    for at, (path, line) in enumerate(lines):
        following = lines[at + 1][1] if at + 1 < len(lines) else None
        if line != following:  # a statement assigns when its last operator is over
            names.update(dict.fromkeys(_assigned(line.text), path))
        if path == stop.path:
            break
    return names


def _stacks(linked: LinkedGraph) -> list[tuple[str, list[SourceLine]]]:
    """The paths of the graph's calls in order, each with the user's frames, innermost first."""
    return [
        (path, user_frames(source_lines(node.stack_trace)))
        for path, node in linked.graph.calls.items()
    ]


def _arguments(
    debugger: Debugger, linked: LinkedGraph, inside: dict[str, SourceLine], own: SourceLine
) -> dict[str, str]:
    """The argument of a function with only one, if its operators read one value from outside."""
    lines = read_lines(own.file, known_lines(debugger).get(own.file, {}))
    try:
        tree = ast.parse("\n".join(lines.get(n, "") for n in range(1, max(lines, default=0) + 1)))
    except (SyntaxError, ValueError, RecursionError):  # of the lines in the record
        return {}
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == own.function
        and node.lineno <= own.line <= (node.end_lineno or 0)
    ]  # fmt: skip
    names = [one.arg for one in functions[-1].args.args if one.arg != "self"] if functions else []
    graph = linked.graph
    reads = [name for path in inside for name in graph.calls[path].inputs]
    outer = {name for name in reads if name not in inside and name not in graph.parameters}
    return {names[0]: outer.pop()} if len(names) == 1 and len(outer) == 1 else {}


def _assigned(text: str) -> list[str]:
    """The names that a statement assigns a single value to."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):  # `return x`, the head of a loop
        return []
    found = []
    for one in statements:
        targets = one.targets if isinstance(one, ast.Assign) else (
            [one.target] if isinstance(one, (ast.AugAssign, ast.AnnAssign)) else []
        )  # fmt: skip
        found += [target.id for target in targets if isinstance(target, ast.Name)]
    return found
