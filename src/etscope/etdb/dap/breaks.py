"""Breakpoints of an editor: each request replaces the ones of its kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from etscope.errors import EtscopeError, UsageError
from etscope.etdb.breakpoints import WATCH_INF, WATCH_NAN
from etscope.etdb.commands.breaks import parse_known, write_selector
from etscope.etdb.commands.source import Picked, picked_stops, stops_at_line
from etscope.etdb.debugger import Debugger
from etscope.etdb.expression import parse
from etscope.etdb.python_code import known_lines
from etscope.formats.json_values import JsonValue

_DIVERGENCE = "gap(sqnr) < 60"  # dB; float kernels that are right stay above 90
# Filters of exceptions: what an operator may give that is wrong.
FILTERS: dict[str, tuple[str, str]] = {
    "nan": ("NaN", "Stop at an operator that gives NaN"),
    "inf": ("Infinity", "Stop at an operator that gives infinities"),
    "divergence": (
        "Divergence from PyTorch",
        "Stop at the first value that is not the reference's",
    ),
}


def filters() -> list[dict[str, Any]]:
    """The filters, for the capabilities."""
    found: list[dict[str, Any]] = [
        {"filter": name, "label": label, "description": text}
        for name, (label, text) in FILTERS.items()
    ]
    found[-1] |= {
        "supportsCondition": True,
        "conditionDescription": f"a condition, by default {_DIVERGENCE}",
    }
    return found


class EditorBreakpoints:
    """Sets the breakpoints of a session by the requests of an editor."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger

    def set_lines(self, path: str, wanted: Sequence[JsonValue]) -> list[dict[str, Any]]:
        """Replace the breakpoints of a file."""

        def picked(of: JsonValue) -> dict[str, Any]:
            found = picked_line(self._debugger, path, of.get("line").whole())
            return {"selector": found.selector, "place": found.text}

        answers = self._replace(f"file {path}", wanted, picked)
        for answer, one in zip(answers, wanted, strict=True):
            answer["line"] = one.get("line").whole()
        return answers

    def set_functions(self, wanted: Sequence[JsonValue]) -> list[dict[str, Any]]:
        """Replace the breakpoints by selector: "op:softmax", "module:blocks.0", a node."""

        def picked(of: JsonValue) -> dict[str, Any]:
            found = picked_stops(self._debugger, of.get("name").text())
            return {"selector": found.selector, "place": found.text}

        return self._replace("function", wanted, picked)

    def set_instructions(self, wanted: Sequence[JsonValue]) -> list[dict[str, Any]]:
        """Replace the breakpoints by instruction: addresses are numbers of instructions."""

        def picked(of: JsonValue) -> dict[str, Any]:
            found = picked_stops(self._debugger, f"id:{address_of(of, 'instructionReference')}")
            return {"selector": found.selector, "place": found.text}

        return self._replace("instruction", wanted, picked)

    def set_data(self, wanted: Sequence[JsonValue]) -> list[dict[str, Any]]:
        """Replace the breakpoints by the node that is written."""

        def picked(of: JsonValue) -> dict[str, Any]:
            selector = write_selector(self._debugger, of.get("dataId").text())
            return {"selector": selector, "place": selector.text}

        return self._replace("data", wanted, picked)

    def set_filters(self, wanted: Sequence[JsonValue]) -> list[dict[str, Any]]:
        """Replace the breakpoints by filter."""

        def picked(of: JsonValue) -> dict[str, Any]:
            name = of.get("filterId").text(tuple(FILTERS))
            if name in (WATCH_NAN, WATCH_INF):
                return {"watch": name}
            return {"condition": parse(of.optional("condition", JsonValue.text) or _DIVERGENCE)}

        return self._replace("exception", wanted, picked)

    def _replace(
        self,
        origin: str,
        wanted: Sequence[JsonValue],
        picked: Callable[[JsonValue], dict[str, Any]],
    ) -> list[dict[str, Any]]:
        self._debugger.breakpoints.clear(origin)
        return [self._added(origin, one, picked) for one in wanted]

    def _added(
        self, origin: str, one: JsonValue, picked: Callable[[JsonValue], dict[str, Any]]
    ) -> dict[str, Any]:
        try:
            fields = {"origin": origin, **picked(one), **self._fields(one)}
        except EtscopeError as error:
            hint = f": {error.hint}" if error.hint else ""
            return {"verified": False, "message": f"{error.message}{hint}"}
        return {"verified": True, "id": self._debugger.breakpoints.add(**fields).number}

    def _fields(self, one: JsonValue) -> dict[str, Any]:
        """Condition, hit count and message of a breakpoint. Raises `UsageError`."""
        fields: dict[str, Any] = {}
        text = one.optional("condition", JsonValue.text)
        if text and one.find("filterId") is None:
            fields["condition"] = parse_known(self._debugger, text)
        count = (one.optional("hitCondition", JsonValue.text) or "").strip()
        if count:
            if not count.isdecimal() or not int(count):
                raise UsageError("a hit count is a number above 0")
            fields["ignored"] = int(count) - 1
        if (log := one.optional("logMessage", JsonValue.text)) is not None:
            fields["log"] = log
        return fields


def address_of(of: JsonValue, name: str) -> int:
    """The number of an instruction: an address that the client has, with its offset. Raises
    `UsageError` for others."""
    text = of.get(name).text()
    try:
        number = int(text, 0)
    except ValueError:
        raise UsageError(f"{text!r:.40} is not the number of an instruction") from None
    return number + (of.optional("offset", JsonValue.whole) or 0)


def picked_line(debugger: Debugger, path: str, line: int) -> Picked:
    """The stops at a line of a file. Raises `UsageError` without any."""
    files = [one for one in known_lines(debugger) if _is_same(one, path)]
    if not files:
        raise UsageError(f"no operator comes from {path}")
    return stops_at_line(debugger, f"{path}:{line}", files, line)


def _is_same(file: str, path: str) -> bool:
    """True if two paths name one file, or the same file of another machine by its name alone."""
    if file == path:
        return True
    try:
        return os.path.samefile(file, path)  # noqa: PTH121 (of texts)
    except OSError:
        return False
