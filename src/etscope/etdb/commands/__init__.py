"""The commands, by what they are about; a module's import puts its commands into the registry."""

from __future__ import annotations

import importlib

# In the order of `help`.
_MODULES = (
    "walk", "breaks", "source", "values", "numerics", "times", "program", "graph",
    "info", "files", "targets", "script",
)  # fmt: skip


def load() -> None:
    """Fill the registry."""
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}")
