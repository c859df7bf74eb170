"""The texts in which a serialized graph keeps what is known of a node: modules, origins, handle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, overload

from etscope.errors import FormatError, reading
from etscope.formats.exported_program.exported_json import integer, mapping, sequence, text
from etscope.model.graph import ModuleFrame, Origin

_HANDLE = re.compile(r"-?\d{1,18}")


class Origins(Sequence[Origin]):
    """The `from_node` chain of a node, parsed when it is first looked at.

    It is JSON within JSON, and the larger half of a record's graph; few tools need it.
    """

    __slots__ = ("_parsed", "_text")

    def __init__(self, from_node: str) -> None:
        self._text = from_node
        self._parsed: tuple[Origin, ...] | None = None

    def _origins(self) -> tuple[Origin, ...]:
        if self._parsed is None:
            with reading("ETRecord", member="from_node"):
                content = json.loads(self._text)
                self._parsed = _origins([] if content is None else content)
        return self._parsed

    @overload
    def __getitem__(self, index: int) -> Origin: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Origin, ...]: ...
    def __getitem__(self, index: int | slice) -> Origin | tuple[Origin, ...]:
        return self._origins()[index]

    def __len__(self) -> int:
        return len(self._origins())

    def __iter__(self) -> Iterator[Origin]:
        return iter(self._origins())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Origins):
            return self._text == other._text or self._origins() == other._origins()
        return self._origins() == other

    def __hash__(self) -> int:
        return hash(self._origins())

    def __repr__(self) -> str:
        return repr(self._origins())


def _origins(content: object) -> tuple[Origin, ...]:
    return tuple(_origin(mapping(link, "an origin")) for link in sequence(content, "from_node"))


def _origin(link: dict[str, Any]) -> Origin:
    return Origin(
        name=text(link["name"], "an origin's name"),
        target=text(link["target"], "an origin's target"),
        graph_id=integer(link["graph_id"], "a graph's id"),
        pass_name=text(link.get("pass_name") or "", "a pass's name"),
        actions=tuple(filter(None, text(link.get("action") or "", "an action").split("+"))),
        origins=_origins(link.get("from_node") or []),
    )


def origins(from_node: str | None) -> Sequence[Origin]:
    """The origins that a node's metadata give as JSON text."""
    return Origins(from_node) if from_node else ()


def debug_handle(value: str | None) -> int | None:
    """The handle that a node's metadata give as decimal text."""
    if value is None or value == "None":
        return None
    if not _HANDLE.fullmatch(text(value, "a debug handle")):
        raise FormatError(f"a debug handle must be a whole number, found {value[:40]!r}")
    return int(value)


@lru_cache(maxsize=4096)
def module_frames(nn_module_stack: str | None) -> tuple[ModuleFrame, ...]:
    """The levels of a module stack, outermost first, from "key,path,type;key,path,type".

    A type may hold commas within brackets, as `Generic[int, str]` does.
    """
    return tuple(_frame(level) for level in (nn_module_stack or "").split(";") if level)


def _frame(level: str) -> ModuleFrame:
    parts = level.split(",", 2) if "[" not in level and "(" not in level else _split(level)
    if len(parts) < 3:  # a module's name may hold half a pair of brackets
        parts = level.split(",", 2)
    if len(parts) < 3:
        raise FormatError(f"a module stack's level must be key,path,type: {level[:80]!r}")
    return ModuleFrame(parts[0].strip(), parts[1].strip(), ",".join(parts[2:]).strip())


def _split(level: str) -> list[str]:
    """The parts between commas that stand outside of brackets."""
    parts = [""]
    depth = 0
    for piece in re.split(r"([\[\](),])", level):
        if piece == "," and depth == 0:
            parts.append("")
            continue
        depth = max(0, depth + (piece in "[(") - (piece in "])") if piece else depth)
        parts[-1] += piece
    return parts
