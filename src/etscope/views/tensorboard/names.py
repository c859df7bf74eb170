"""Names that TensorBoard's graph shows as they are, and does not fold, split or trip over.

- "/" is its separator of boxes, ":" comes before the number of an output, "^" marks a control edge.
- Five or more siblings that differ in a number at their end become one series box: no name here
  ends with a digit.
- Names are keys of JavaScript objects: "constructor" and "__proto__" are taken.
- A name is drawn as one line of text; what cannot be seen is written as an escape.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from etscope.views.tables.text_cells import visible

LONGEST = 120
# Signs that look alike: division slash, letter colon, circumflex.
_REPLACED = str.maketrans({"/": "\u2215", ":": "\ua789", "^": "\u02c6", "(": "[", ")": "]"})
_TAKEN = frozenset(
    {
        "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toString",
        "toLocaleString", "valueOf",
    }
)  # fmt: skip


def scope_name(part: str) -> str:
    """The name of a box; equal parts have equal names."""
    name = word(part)
    return f"{name}_" if name[-1].isdigit() else name


def word(text: str) -> str:
    """A text that the tab uses as a key: an operator, a part of a name."""
    plain = _plain(text)
    return f"{plain}_" if plain in _TAKEN or plain.startswith("__") else plain


class NodeNames:
    """Gives each node a name of its own: boxes joined by "/", and a last part that ends with "_"
    so that it is no box's name."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def name(self, scope: Sequence[str], name: str) -> str:
        path = "/".join((*map(scope_name, scope), _plain(name)))
        free, number = f"{path}_", 1
        while free in self._used:
            number += 1
            free = f"{path}~{number}_"
        self._used.add(free)
        return free


def device(backend: str | None) -> str:
    """What the statistics of a backend stand under: the graph tab drops all that is not
    "/device:NAME:0"."""
    if backend is None:
        return "/device:CPU:0"
    name = _plain(backend).removesuffix("Backend").upper() or "DELEGATE"
    return f"/device:{name}:0"


def _plain(text: str) -> str:
    """The text on one line, no longer than `LONGEST`, without what has a meaning in a name."""
    shown = visible(text).translate(_REPLACED) or "_"
    if len(shown) <= LONGEST:
        return shown
    mark = hashlib.sha256(shown.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{shown[: LONGEST - 10]}…{mark}_"
