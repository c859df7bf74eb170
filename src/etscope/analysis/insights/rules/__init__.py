"""The rules of insights, a module for each theme.

To add one: write a function with `@rule` in the module of its theme, add its name, module and level
to `_RULES`, and, if it explains anything, a section with the rule's name to
docs/reference/findings.md, which a test compares with this list.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from etscope.analysis.insights.facts import Level
from etscope.analysis.insights.rule import Rule

# The order of precedence: a rule is not about what one before it claims, and findings that rank
# alike keep this order. The level is here, so that a summary imports no module without its rules.
_RULES: Mapping[str, tuple[str, Level]] = {
    "generation": ("time", Level.SUMMARY),
    "slowest_parts": ("time", Level.SUMMARY),
    "not_delegated": ("delegation", Level.ALL),
    "lost_fusion": ("fusion", Level.FULL),
    "runtime_constants": ("state", Level.FULL),
    "float_among_quantized": ("quantization", Level.FULL),
    "cancelling_quantization": ("quantization", Level.FULL),
    "whole_caches": ("state", Level.FULL),
    "rewritten_buffers": ("state", Level.FULL),
    "needless_copies": ("copies", Level.FULL),
    "layout_conversions": ("layout", Level.ALL),
    "untaken_types": ("islands", Level.FULL),
    "portable_kernels": ("kernels", Level.FULL),
    "outside_delegates": ("delegation", Level.ALL),
    "first_run": ("runs", Level.ALL),
    "threads": ("runs", Level.FULL),
    "unsteady": ("runs", Level.ALL),
    "small_operators": ("overhead", Level.FULL),
    "unrolled_loops": ("overhead", Level.FULL),
    "memory_bound": ("kernels", Level.FULL),
    "float_weights": ("quantization", Level.FULL),
    "outside_instructions": ("overhead", Level.ALL),
    "delegate_rest": ("delegation", Level.ALL),
    "inside_delegates": ("delegation", Level.SUMMARY),
    "unknown_work": ("kernels", Level.FULL),
    "single_runs": ("runs", Level.SUMMARY),
    "memory": ("memory", Level.SUMMARY),
    "values": ("files", Level.SUMMARY),
    "files": ("files", Level.SUMMARY),
}


@cache
def rules(level: Level = Level.ALL) -> Mapping[str, Rule]:
    """Return the rules of a level by name, in the order of precedence."""
    found = (
        replace(getattr(importlib.import_module(f"{__name__}.{module}"), name), level=own_level)
        for name, (module, own_level) in _RULES.items()
        if own_level & level
    )
    return {rule.name: rule for rule in found}
