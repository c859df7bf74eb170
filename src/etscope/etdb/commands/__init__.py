"""The commands, one module per subject. Importing the package registers all of them."""

from __future__ import annotations

import importlib

# In the order of `help`, whichever module is imported first.
for _name in ("running", "breaks", "source", "values", "times", "graph", "targets", "info"):
    importlib.import_module(f"{__name__}.{_name}")
