"""Names as `torch.fx` gives them to nodes, so that ours equal those of a deserialized program.

A serialized program does not hold the names of all nodes: torch makes them anew when it builds the
graph, by the rules of `torch.fx.graph._Namespace` (torch 2.1 to 2.13).
"""

from __future__ import annotations

import builtins
import keyword
import re

_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"([a-zA-Z_][0-9a-zA-Z_]*?)(?:_([0-9]{1,18}))?")
_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")
_RESERVED = frozenset(
    {*keyword.kwlist, *dir(builtins), "NoneType", "device", "fx_pytree", "inf", "nan", "pytree"}
    | {"torch"}
)


class Namespace:
    """The names of one graph, each given once."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last: dict[str, int] = {}

    def create(self, wanted: str) -> str:
        """A name like `wanted` that is an identifier and was not given before."""
        name = _ILLEGAL.sub("_", wanted) or "_unnamed"
        if name[0].isdigit():
            name = "_" + name
        base, digits = _split(name)
        if digits is None or name in self._used:
            number = self._last.get(base, 0)
            if name in _RESERVED:
                number += 1
                name = f"{base}_{number}"
        else:
            number = int(digits)
        while name in self._used:
            number += 1
            name = f"{base}_{number}"
        self._used.add(name)
        self._last[base] = number
        return name

    def reserve(self, name: str) -> None:
        """Keep `name` from being given to another."""
        self._used.add(name)


def from_target(target: str) -> str:
    """The name that fx wants for a node of this target, when it is told no other."""
    if len(target) > 4 and target.startswith("__") and target.endswith("__"):
        target = target[2:-2]
    return _CAPITAL.sub(r"_\1", target).lower()


def _split(name: str) -> tuple[str, str | None]:
    """An identifier without its number, and the number."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], match[2]) if match else (name, None)
