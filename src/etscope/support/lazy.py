"""Names of a package (PEP 562) and results of an object, made when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import Any, TypeVar


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` for a package.

    `modules` maps each of its names to the module that defines it; a name that is a module itself
    maps to that module.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(modules[name])
        value = module if modules[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names


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
