"""What can stand at the end of a line: commands, nodes, modules, operators, files, …"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path

from etscope.analysis.graphs.graph_names import short_name
from etscope.analysis.metrics import METRICS
from etscope.analysis.profile.source_location import module_path
from etscope.errors import EtscopeError
from etscope.etdb.commands.registry import COMMANDS, find_command
from etscope.etdb.debugger import Debugger
from etscope.model.selector import KEYS

_MOST = 200


class Completer:
    """Completions of a session's lines. Names are sorted once for a graph, so that a prefix is
    found among thousands without a pause."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        self._sorted: dict[tuple[str, object], list[str]] = {}

    def complete(self, line: str) -> tuple[str, list[str]]:
        """The word at the end of `line`, and what it can become, in order."""
        head, _, _ = line.partition(" ")
        if " " not in line:
            return line, sorted(name for name in COMMANDS if name.startswith(line))
        try:
            one = find_command(head.partition("/")[0])
        except EtscopeError:
            return _last_word(line), []
        # Names of files have the marks of expressions in them.
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
                return _paths(word)
            if what == "command":
                return _starting(sorted(COMMANDS), word)
            if what == "metric":
                return _starting(sorted(METRICS), word)
            if what == "breakpoint":
                return _starting([str(one.number) for one in self._debugger.breakpoints], word)
            if what == "selector":
                return self._selectors(word)
            if what in ("node", "module", "op", "graph", "file_line"):
                return _starting(self._names(what), word)
        except EtscopeError:
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
        key = (what, (id(debugger.files), debugger.graph, debugger.method))
        if key not in self._sorted:
            self._sorted[key] = sorted(set(self._all(what)))
        return self._sorted[key]

    def _all(self, what: str) -> Iterator[str]:
        debugger = self._debugger
        record = debugger.files.record
        if what == "graph":
            yield from map(short_name, () if record is None else record.graph_names)
            return
        if what in ("file", "file_line"):
            from etscope.etdb.commands.source import known_lines

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
    """The names with a prefix, of sorted ones."""
    at = bisect_left(names, word)
    while at < len(names) and names[at].startswith(word):
        if names[at]:
            yield names[at]
        at += 1


def _last_word(line: str) -> str:
    start = max(line.rfind(separator) for separator in " ()[],+-*<>=")
    return line[start + 1 :]


def _paths(word: str) -> list[str]:
    folder, _, name = word.rpartition("/")
    # Of somebody who has no home, `Path.expanduser` makes an error.
    place = Path(os.path.expanduser(folder or ("/" if word.startswith("/") else ".")))  # noqa: PTH111
    head = f"{folder}/" if "/" in word else ""
    try:
        return sorted(
            f"{head}{entry.name}{'/' if entry.is_dir() else ''}"
            for entry in place.iterdir()
            if entry.name.startswith(name) and (name or not entry.name.startswith("."))
        )[:_MOST]
    except (OSError, ValueError):
        return []
