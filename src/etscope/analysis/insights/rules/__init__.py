"""The rules of insights, one file each.

To add one: write a module with a `RULE`, add the module's name and level to `_MODULES`, and, if it
explains anything, a section with the rule's name to docs/reference/findings.md, which a test
compares with this list.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from etscope.analysis.insights.facts import Level
from etscope.analysis.insights.rule import Rule

# Order of precedence: a rule ignores what an earlier rule claims. Findings of equal rank keep this
# order, too. The level is here, so that a summary imports its rules only.
_MODULES: Mapping[str, Level] = {
    "generation": Level.SUMMARY,
    "slowest_parts": Level.SUMMARY,
    "not_delegated": Level.ALL,
    "lost_fusion": Level.FULL,
    "runtime_constants": Level.FULL,
    "float_among_quantized": Level.FULL,
    "cancelling_quantization": Level.FULL,
    "whole_caches": Level.FULL,
    "rewritten_buffers": Level.FULL,
    "needless_copies": Level.FULL,
    "layout_conversions": Level.ALL,
    "untaken_types": Level.FULL,
    "portable_kernels": Level.FULL,
    "outside_delegates": Level.ALL,
    "first_run": Level.ALL,
    "threads": Level.FULL,
    "unsteady": Level.ALL,
    "small_operators": Level.FULL,
    "unrolled_loops": Level.FULL,
    "memory_bound": Level.FULL,
    "float_weights": Level.FULL,
    "outside_instructions": Level.ALL,
    "delegate_rest": Level.ALL,
    "inside_delegates": Level.SUMMARY,
    "unknown_work": Level.FULL,
    "single_runs": Level.SUMMARY,
    "memory": Level.SUMMARY,
    "values": Level.SUMMARY,
    "files": Level.SUMMARY,
}


@cache
def rules(level: Level = Level.ALL) -> Mapping[str, Rule]:
    """Return the rules of a level by name, in the order of precedence."""
    wanted = {name: one for name, one in _MODULES.items() if one & level}
    found = (
        replace(importlib.import_module(f"{__name__}.{name}").RULE, level=one)
        for name, one in wanted.items()
    )
    return {rule.name: rule for rule in found}
