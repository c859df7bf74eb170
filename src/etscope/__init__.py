"""Developer tools for models that run on ExecuTorch: profile, debug and compare them.

The names below are loaded when first used, so that `import etscope` costs next to nothing and
needs neither torch nor executorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope._version import __version__
from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope import inspector
    from etscope.bundled_program import BundledProgram
    from etscope.cli.magic import load_ipython_extension
    from etscope.etrecord import ETRecord, generate_etrecord, parse_etrecord
    from etscope.inspector import (
        Event,
        EventBlock,
        Inspector,
        PerfData,
        TimeScale,
        compare_results,
    )
    from etscope.search.matrix import matrix

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
    "load_ipython_extension",
    "matrix",
    "parse_etrecord",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "BundledProgram": "etscope.bundled_program",
        "ETRecord": "etscope.etrecord",
        "Event": "etscope.inspector",
        "EventBlock": "etscope.inspector",
        "Inspector": "etscope.inspector",
        "PerfData": "etscope.inspector",
        "TimeScale": "etscope.inspector",
        "compare_results": "etscope.inspector",
        "generate_etrecord": "etscope.etrecord",
        "matrix": "etscope.search.matrix",
        "parse_etrecord": "etscope.etrecord",
        "inspector": "etscope.inspector",
        "load_ipython_extension": "etscope.cli.magic",
    },
)
