"""`MadeOnce`: results that belong to an object and are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, TypeVar

_T = TypeVar("_T")


class MadeOnce:
    """Base of objects that never change, so that what is made of them need not be made again."""

    def once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returns, made once for each key."""
        if key not in self._made:
            self._made[key] = make()
        found: _T = self._made[key]
        return found

    @cached_property
    def _made(self) -> dict[Hashable, Any]:
        return {}
