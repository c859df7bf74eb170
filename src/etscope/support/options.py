"""Functions that take the fields of an options dataclass as keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

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
