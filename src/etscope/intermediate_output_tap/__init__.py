"""Upstream's `executorch.devtools.intermediate_output_tap`: intermediate values of a program, also
those inside delegates, as further outputs, whole or reduced to statistics.

New code had better use `etscope.export.export(taps=…)`: the ETRecord lists its taps, and the other
tools compare them. torch and ExecuTorch are imported when a name of this module is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etscope.support.lazy import lazy_names
from etscope.support.optional import require

if TYPE_CHECKING:
    from etscope.bridge.upstream_taps import (
        FULL_TENSOR,
        STATS,
        NodeSelector,
        StatReducer,
        TapRule,
        TapSpec,
        compare_aot_runtime_dataframe,
        find_tap_nodes,
        get_reducer,
        is_tap_node,
        select_all,
        select_all_call_function,
        select_any,
        select_by_module_class,
        select_by_module_path,
        select_by_op_type,
        select_not,
        strip_taps_,
        tap_compare,
        tap_intermediate_outputs_,
    )

__all__ = [
    "FULL_TENSOR",
    "STATS",
    "NodeSelector",
    "StatReducer",
    "TapRule",
    "TapSpec",
    "compare_aot_runtime_dataframe",
    "find_tap_nodes",
    "get_reducer",
    "is_tap_node",
    "select_all",
    "select_all_call_function",
    "select_any",
    "select_by_module_class",
    "select_by_module_path",
    "select_by_op_type",
    "select_not",
    "strip_taps_",
    "tap_compare",
    "tap_intermediate_outputs_",
]

_load, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "etscope.bridge.upstream_taps"))


def __getattr__(name: str) -> Any:
    if name in __all__:
        require("torch", wanted_by="taps")
        require("executorch.exir", wanted_by="taps")
    return _load(name)
