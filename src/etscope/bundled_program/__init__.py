"""Upstream's `executorch.devtools.bundled_program`: programs with test cases in one file.

It works without torch: a .pte file and numpy arrays are enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.bundled_program.config import MethodTestCase, MethodTestSuite
    from etscope.bundled_program.core import BundledProgram, bundle_cases

__all__ = ["BundledProgram", "MethodTestCase", "MethodTestSuite", "bundle_cases"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "BundledProgram": "etscope.bundled_program.core",
        "MethodTestCase": "etscope.bundled_program.config",
        "MethodTestSuite": "etscope.bundled_program.config",
        "bundle_cases": "etscope.bundled_program.core",
    },
)
