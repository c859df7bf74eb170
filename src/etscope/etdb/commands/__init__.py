"""The commands, one module per subject. Importing the package registers all of them."""

from __future__ import annotations

import importlib

# In the order of `help`, whichever module is imported first.
_MODULES = (
    "running", "checkpoints", "breaks", "source", "values", "numerics", "times", "graph", "targets",
    "info",
)  # fmt: skip
for _name in _MODULES:
    importlib.import_module(f"{__name__}.{_name}")
