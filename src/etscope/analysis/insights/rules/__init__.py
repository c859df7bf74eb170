"""The rules of insights, one file each.

To add one: write a module with a `RULE`, add the module's name to `_MODULES`, and, if it explains
anything, a section with the rule's name to docs/reference/findings.md, which a test compares with
this list.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache

from etscope.analysis.insights.rule import Rule

# The order is that of precedence: a rule is not about what one before it claims. Findings that are
# ranked alike are in this order, too.
_MODULES = (
    "generation",
    "slowest_parts",
    "not_delegated",
    "lost_fusion",
    "runtime_constants",
    "float_among_quantized",
    "cancelling_quantization",
    "whole_caches",
    "rewritten_buffers",
    "needless_copies",
    "layout_conversions",
    "untaken_types",
    "portable_kernels",
    "outside_delegates",
    "first_run",
    "threads",
    "unsteady",
    "small_operators",
    "unrolled_loops",
    "memory_bound",
    "float_weights",
    "outside_instructions",
    "delegate_rest",
    "inside_delegates",
    "unknown_work",
    "single_runs",
    "memory",
    "values",
    "files",
)


@cache
def rules() -> Mapping[str, Rule]:
    """Return all rules by name, in the order of precedence."""
    modules = (importlib.import_module(f"{__name__}.{name}") for name in _MODULES)
    return {module.RULE.name: module.RULE for module in modules}
