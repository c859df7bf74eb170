"""Completion of lines: commands, nodes, modules, operators, files and more."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path

from etscope.analysis.graphs.graph_names import short_name
from etscope.analysis.metrics import METRICS
from etscope.analysis.program.source_location import module_path
from etscope.errors import EtscopeError
from etscope.etdb.commands.registry import COMMANDS, find_command
from etscope.etdb.commands.source import known_lines
from etscope.etdb.debugger import Debugger
from etscope.model.selector import KEYS

_MOST = 200


class Completer:
    """Completes lines of a session. The names of a graph are sorted once, so that a prefix is found
    quickly among thousands."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        self._sorted: dict[tuple[str, object], list[str]] = {}

    def complete(self, line: str) -> tuple[str, list[str]]:
        """The word at the end of `line`, and its completions in order."""
        head, _, _ = line.partition(" ")
        if " " not in line:
            names = (*COMMANDS, *self._debugger.defined)
            return line, sorted(name for name in names if name.startswith(line))
        try:
            one = find_command(head.partition("/")[0])
        except EtscopeError:
            return _last_word(line), []
        # File names contain operators of expressions.
        is_file = "file" in one.words
        word = line.rpartition(" ")[2] if is_file else _last_word(line)
        found: dict[str, None] = {}
        for what in one.words:
            found.update(dict.fromkeys(self._of(what, word)))
            if len(found) > _MOST:
                break
        return word, list(found)[:_MOST]

    def _of(self, what: str, word: str) -> Iterable[str]:
        try:
            if what == "file":
                folder, _, name = word.rpartition("/")
                # `Path.expanduser` fails without a home folder.
                path = os.path.expanduser(folder or ("/" if word.startswith("/") else "."))  # noqa: PTH111
                head = f"{folder}/" if "/" in word else ""
                return sorted(
                    f"{head}{entry.name}{'/' if entry.is_dir() else ''}"
                    for entry in Path(path).iterdir()
                    if entry.name.startswith(name) and (name or not entry.name.startswith("."))
                )[:_MOST]
            if what == "command":
                return _starting(sorted(COMMANDS), word)
            if what == "metric":
                return _starting(sorted(METRICS), word)
            if what == "breakpoint":
                return _starting([str(one.number) for one in self._debugger.breakpoints], word)
            if what == "checkpoint" and not what.startswith(word or "?"):
                return _starting([str(number) for number in self._debugger.checkpoints], word)
            if what == "selector":
                return self._selectors(word)
            if what in ("node", "module", "op", "graph", "file_line"):
                return _starting(self._names(what), word)
        except (EtscopeError, OSError, ValueError):
            return []
        return [what] if what.startswith(word) else []

    def _selectors(self, word: str) -> Iterator[str]:
        key, colon, rest = word.partition(":")
        if not colon:
            yield from _starting(sorted(f"{name}:" for name in KEYS), word)
            yield from _starting(self._names("node"), word)
        elif key in ("op", "module", "type", "file", "delegate"):
            for name in _starting(self._names(key), rest):
                yield f"{key}:{name}"

    def _names(self, what: str) -> list[str]:
        debugger = self._debugger
        key = (what, (id(debugger.capture), debugger.graph, debugger.method))
        if key not in self._sorted:
            self._sorted[key] = sorted(set(self._all(what)))
        return self._sorted[key]

    def _all(self, what: str) -> Iterator[str]:
        debugger = self._debugger
        record = debugger.record
        if what == "graph":
            yield from map(short_name, () if record is None else record.graph_names)
            return
        if what in ("file", "file_line"):
            for file in known_lines(debugger):
                yield Path(file).name
            return
        if record is None:
            for stop in debugger.target.stops if debugger.target is not None else ():
                yield from [stop.name] if what == "node" else [stop.op] if what == "op" else []
            return
        linked = debugger.linked()
        if what == "delegate":
            yield from linked.backends.values()
            return
        for node in linked.graph.walk():
            if what == "node":
                yield node.name
            elif what == "op" and node.kind == "call_function":
                yield node.op
            elif what == "module":
                yield module_path(node) or ""
            elif what == "type" and node.modules:
                yield node.modules[-1].type.rpartition(".")[2]


def _starting(names: list[str], word: str) -> Iterator[str]:
    """Names with a prefix, of sorted ones."""
    at = bisect_left(names, word)
    while at < len(names) and names[at].startswith(word):
        if names[at]:
            yield names[at]
        at += 1


def _last_word(line: str) -> str:
    start = max(line.rfind(separator) for separator in " ()[],+-*<>=")
    return line[start + 1 :]
