"""The rules of `etscope explain`, one file each: those of the graph, and those of a run's times.

To add one: write a module with a `RULE`, add the module's name to `_MODULES`, and a section with
the rule's name to docs/findings.md, which a test compares with this list.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache

from etscope.analysis.explain.rule import Rule

_MODULES = (
    "graph.not_delegated",
    "graph.lost_fusion",
    "graph.runtime_constants",
    "graph.float_among_quantized",
    "graph.cancelling_quantization",
    "graph.rewritten_buffers",
    "graph.needless_copies",
    "graph.layout_conversions",
    "graph.untaken_types",
    "graph.outside_delegates",
    "run.portable_kernels",
    "run.first_run",
    "run.threads",
    "run.unsteady",
    "run.small_operators",
    "graph.unrolled_loops",
    "run.memory_bound",
    "run.float_weights",
    "graph.whole_caches",
    "run.outside_instructions",
    "run.delegate_rest",
    "run.unknown_work",
)


@cache
def rules() -> Mapping[str, Rule]:
    """Return all rules by name, in the order of the documentation."""
    modules = (importlib.import_module(f"{__name__}.{name}") for name in _MODULES)
    return {module.RULE.name: module.RULE for module in modules}
