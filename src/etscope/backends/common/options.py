"""Options of a function: its keyword parameters, with values parsed from text."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from etscope.errors import UsageError

_TRUTHS = {"true": True, "yes": True, "on": True, "1": True}
_TRUTHS |= {"false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter of a function.

    type: its annotation: bool, int, float, str, tuple[str, ...], a Literal, or one of these or
        None. `parsed` returns a text for any other type unchanged.
    default: `inspect.Parameter.empty` if the parameter is required.
    """

    name: str
    type: Any
    default: Any

    def __str__(self) -> str:
        """Return "name=VALUE" with the accepted values."""
        return f"{self.name}={self.values}"

    @property
    def values(self) -> str:
        """The accepted values, for people: "true|false"."""
        kind = _inner(self.type)
        if get_origin(kind) is Literal:
            return "|".join(map(str, get_args(kind)))
        if get_origin(kind) is tuple:
            return "TEXT,TEXT"
        return {bool: "true|false", int: "NUMBER", float: "NUMBER"}.get(kind, "TEXT")


def options_of(function: Callable[..., Any]) -> dict[str, Option]:
    """Return the parameters of a function by name, without *args and **kwargs."""
    collecting = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: Option(name, one.annotation, one.default)
        for name, one in inspect.signature(function, eval_str=True).parameters.items()
        if one.kind not in collecting
    }


def parsed(value: Any, option: Option, name: str) -> Any:
    """Return the value of an option, with a text converted to the option's type. name: the
    option's, for messages.

    Raises `UsageError` for a value of the wrong type.
    """
    kind = _inner(option.type)
    found = value
    if get_origin(kind) is Literal:
        found = next((one for one in get_args(kind) if value == one or value == str(one)), None)
    elif kind is bool:
        found = _TRUTHS.get(value.lower()) if isinstance(value, str) else value
        found = found if isinstance(found, bool) else None
    elif kind in (int, float):
        try:
            found = None if isinstance(value, bool) else kind(value)
        except (TypeError, ValueError):
            found = None
    elif get_origin(kind) is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        if isinstance(parts, (list, tuple)) and all(isinstance(part, str) for part in parts):
            found = tuple(part.strip() for part in parts)
        else:
            found = None
    elif kind is str and not isinstance(value, str):
        found = None
    if found is None:
        raise UsageError(f"{value!r} is not a value of {name}", hint=f"give {option}")
    return found


def _inner(kind: Any) -> Any:
    """Return the type without None: int for `int | None`."""
    if get_origin(kind) in (Union, types.UnionType):
        others = [one for one in get_args(kind) if one is not type(None)]
        return others[0] if len(others) == 1 else kind
    return kind
