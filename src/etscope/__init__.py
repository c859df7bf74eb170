"""Developer tools for models that run on ExecuTorch: profile, debug and compare them.

The names below are loaded when first used, so that `import etscope` costs next to nothing and
needs neither torch nor executorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from etscope._version import __version__

if TYPE_CHECKING:
    from etscope import inspector
    from etscope.bundled_program import BundledProgram
    from etscope.etrecord import ETRecord, generate_etrecord, parse_etrecord
    from etscope.inspector import (
        Event,
        EventBlock,
        Inspector,
        PerfData,
        TimeScale,
        compare_results,
    )

__all__ = [
    "BundledProgram",
    "ETRecord",
    "Event",
    "EventBlock",
    "Inspector",
    "PerfData",
    "TimeScale",
    "__version__",
    "compare_results",
    "generate_etrecord",
    "inspector",
    "parse_etrecord",
]

_HOMES = {
    "BundledProgram": "etscope.bundled_program",
    "ETRecord": "etscope.etrecord",
    "Event": "etscope.inspector",
    "EventBlock": "etscope.inspector",
    "Inspector": "etscope.inspector",
    "PerfData": "etscope.inspector",
    "TimeScale": "etscope.inspector",
    "compare_results": "etscope.inspector",
    "generate_etrecord": "etscope.etrecord",
    "parse_etrecord": "etscope.etrecord",
}


def __getattr__(name: str) -> Any:
    if name == "inspector":
        return importlib.import_module("etscope.inspector")
    if name not in _HOMES:
        raise AttributeError(f"module 'etscope' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
