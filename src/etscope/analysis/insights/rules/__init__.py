"""The rules of `etscope explain`, one file each: those of the graph, and those of a run's times.

To add one: write a module with a `RULE`, add the module's name to `_MODULES`, and a section with
the rule's name to docs/reference/findings.md, which a test compares with this list.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache

from etscope.analysis.insights.rule import Rule

_MODULES = (
    "not_delegated",
    "lost_fusion",
    "runtime_constants",
    "float_among_quantized",
    "cancelling_quantization",
    "rewritten_buffers",
    "needless_copies",
    "layout_conversions",
    "untaken_types",
    "outside_delegates",
    "portable_kernels",
    "first_run",
    "threads",
    "unsteady",
    "small_operators",
    "unrolled_loops",
    "memory_bound",
    "float_weights",
    "whole_caches",
    "outside_instructions",
    "delegate_rest",
    "unknown_work",
)


@cache
def rules() -> Mapping[str, Rule]:
    """Return all rules by name, in the order of the documentation."""
    modules = (importlib.import_module(f"{__name__}.{name}") for name in _MODULES)
    return {module.RULE.name: module.RULE for module in modules}
