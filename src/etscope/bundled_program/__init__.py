"""Upstream's `executorch.devtools.bundled_program`: programs with test cases in one file.

Nothing here needs torch: a .pte file and numpy arrays will do.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etscope.bundled_program.config import MethodTestCase, MethodTestSuite
    from etscope.bundled_program.core import BundledProgram, bundle_cases

__all__ = ["BundledProgram", "MethodTestCase", "MethodTestSuite", "bundle_cases"]

_HOMES = {
    "BundledProgram": "etscope.bundled_program.core",
    "MethodTestCase": "etscope.bundled_program.config",
    "MethodTestSuite": "etscope.bundled_program.config",
    "bundle_cases": "etscope.bundled_program.core",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'etscope.bundled_program' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
