"""Upstream's `executorch.devtools.intermediate_output_tap`: values inside of a program, delegates
included, as outputs of it, whole or reduced to statistics.

For new code there is `etscope.export.export(taps=…)`, whose taps the ETRecord knows, and which the
other tools compare. torch and ExecuTorch are imported when a name of this module is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etscope._lazy import lazy_names
from etscope.optional import require

if TYPE_CHECKING:
    from etscope.bridge.taps.outputs import (
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

_HOMES = {
    "outputs": (
        "TapRule", "TapSpec", "find_tap_nodes", "is_tap_node", "strip_taps_",
        "tap_intermediate_outputs_", "compare_aot_runtime_dataframe", "tap_compare",
    ),
    "reducers": ("FULL_TENSOR", "STATS", "StatReducer", "get_reducer"),
    "selectors": (
        "NodeSelector", "select_all", "select_all_call_function", "select_any",
        "select_by_module_class", "select_by_module_path", "select_by_op_type", "select_not",
    ),
}  # fmt: skip

_load, __dir__ = lazy_names(
    __name__,
    {name: f"etscope.bridge.taps.{home}" for home, names in _HOMES.items() for name in names},
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        require("torch", wanted_by="taps")
        require("executorch.exir", wanted_by="taps")
    return _load(name)
