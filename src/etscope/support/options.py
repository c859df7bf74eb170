"""Options: the fields of a dataclass as keywords of a function, and KEY=VALUE pairs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from etscope.errors import UsageError

__all__ = ["key_values"]

Function = TypeVar("Function", bound=Callable[..., Any])


def takes_fields(options: type[Any]) -> Callable[[Function], Function]:
    """Return a decorator that replaces `**changes` by the fields of `options` in the signature that
    help() shows."""

    def decorated(function: Function) -> Function:
        own = inspect.signature(function)
        kept = [
            one.replace(default=...) if one.name == "options" else one
            for one in own.parameters.values()
            if one.kind is not one.VAR_KEYWORD
        ]
        names = {one.name for one in kept}
        fields = inspect.signature(options).parameters.values()
        kept += [one.replace(kind=one.KEYWORD_ONLY) for one in fields if one.name not in names]
        function.__signature__ = own.replace(parameters=kept)  # type: ignore[attr-defined]
        return function

    return decorated


def key_values(texts: Iterable[str], what: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """Return the values by key; spaces around both are removed.

    what: the name in messages, "label" or "--label". form: the form of a pair in messages. Raises
    `UsageError` for a text without a key or "=", and for a key with two values.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not key:
            raise UsageError(f"{what} {text!r} is not {form}")
        if found.setdefault(key, value) != value:
            raise UsageError(f"{what} {key} is given twice: {found[key]} and {value}")
    return found
