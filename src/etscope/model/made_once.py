"""`MadeOnce`: results that belong to an object and are computed on first use."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, TypeVar

_T = TypeVar("_T")


class MadeOnce:
    """Base of immutable objects that keep results computed from them."""

    def once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return the result of `make`, computed once for each key."""
        if key not in self._made:
            self._made[key] = make()
        found: _T = self._made[key]
        return found

    @cached_property
    def _made(self) -> dict[Hashable, Any]:
        return {}
