"""A short `repr` of results, and their HTML in notebooks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

__all__ = ["Shown", "field_texts"]

_HTML = "etscope.views.tables.results"  # ranks above this module, so it is imported by name
_LONGEST, _LONGEST_FIELD = 300, 60  # characters


class Shown:
    """Base of results that may be large.

    Its `repr` is short: the headline or verdict of the result if it has one, else fields with one
    value, and the lengths of others. In a notebook it is a table.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # else `dataclass` makes another

    def __repr__(self) -> str:
        headline = getattr(self, "headline", None) or getattr(self, "verdict", None)
        texts = [headline] if isinstance(headline, str) else map("=".join, field_texts(self))
        name = type(self).__name__
        return f"<{_cut(' '.join((name, *texts)), _LONGEST)}>"

    def _repr_html_(self) -> str | None:
        found: str | None = importlib.import_module(_HTML).html_of(self)
        return found


def field_texts(result: Any) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a dataclass's fields: texts and numbers that are not the
    default, and "len(name)" of fields with several values."""
    for field in fields(result) if is_dataclass(result) else ():
        value = getattr(result, field.name, MISSING)
        if not field.repr or value is None or value is MISSING:
            continue
        if isinstance(value, (str, int, float, Enum, Path)):
            if isinstance(field.default, type(value)) and value == field.default:
                continue
            plain = value.value if isinstance(value, Enum) else value
            plain = str(plain) if isinstance(plain, Path) else plain
            yield field.name, _cut(repr(plain), _LONGEST_FIELD)
        elif hasattr(value, "__len__") and getattr(value, "shape", True) != () and len(value):
            yield f"len({field.name})", str(len(value))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
