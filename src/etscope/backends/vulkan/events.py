"""Decode what the Vulkan delegate logs.

The delegate logs nested phases of the call on the host's clock, which is the runtime's:
ETVK_EXECUTE holds the copies of inputs and outputs, ETVK_RESIZE and ETVK_COMPUTE_GRAPH_EXECUTE
(backends/vulkan/runtime/VulkanBackend.cpp). It also logs each dispatch, on the GPU's clock in ns.
The name of a dispatch is JSON: {"operator": {"name", "delegate_node_id", "args"}, "kernel_name",
"operator_id", "dispatch_id"} (backends/vulkan/runtime/graph/ops/DispatchNode.cpp). The record's
delegate map has the node by its `delegate_node_id`. Older versions write the kernel and the number
of the dispatch: "conv2d_clamp_half_163".
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from etscope.backends.common.logged import LoggedCall, parents
from etscope.model.event_table import Clock, Meaning

_PHASE = "ETVK_"
_NUMBERED = re.compile(r"(?P<kernel>.+)_(?P<dispatch>\d+)$", re.DOTALL)
_EXECUTE = "ETVK_COMPUTE_GRAPH_EXECUTE"  # its dispatches follow it in the log


def recognises(call: LoggedCall) -> bool:
    """True for the names of Vulkan's phases."""
    return any(name.startswith(_PHASE) for name in call.names)


def decode(call: LoggedCall) -> list[Meaning]:
    """Return phases, nested by time, and the GPU's dispatches."""
    inside = call.is_inside
    dispatches = {
        number: _Dispatch.of_json(name) or (None if inside[number] else _Dispatch.numbered(name))
        for number, name in enumerate(call.names)
    }
    phases = [number for number in range(len(call.names)) if dispatches[number] is None]
    around = parents(
        LoggedCall(
            [call.names[n] for n in phases],
            [call.identifiers[n] for n in phases],
            call.start[phases],
            call.ticks[phases],
        )
    )
    holders = {
        number: None if parent is None else phases[parent]
        for number, parent in zip(phases, around, strict=True)
    }
    found: list[Meaning] = []
    execute: int | None = None
    for number, (name, identifier) in enumerate(zip(call.names, call.identifiers, strict=True)):
        dispatch = dispatches[number]
        if dispatch is None:
            clock = Clock.RUNTIME if inside[number] else Clock.DEVICE
            known = None if name.startswith(_PHASE) else identifier
            found.append(Meaning(name, known, clock=clock, parent=holders[number]))
            execute = number if name == _EXECUTE else execute
        else:
            known = identifier if dispatch.node is None else dispatch.node
            found.append(
                Meaning(
                    dispatch.name,
                    known,
                    clock=Clock.DEVICE,
                    parent=execute,
                    columns=dispatch.columns,
                )
            )
    return found


class _Dispatch(NamedTuple):
    """A dispatch: its operator and kernel. node: id of its node in the delegate map."""

    name: str
    node: int | str | None
    columns: dict[str, str | float]

    @classmethod
    def numbered(cls, name: str) -> _Dispatch | None:
        """Return the dispatch of a name without JSON; None for the name of a phase."""
        parts = None if name.startswith(_PHASE) else _NUMBERED.fullmatch(name)
        if parts is None:
            return None
        kernel = parts["kernel"]
        return cls(f"{kernel} #{parts['dispatch']}", None, {"kernel_name": kernel})

    @classmethod
    def of_json(cls, name: str) -> _Dispatch | None:
        """Return the dispatch of a name in JSON; None for a phase and for broken JSON."""
        if not name.startswith("{"):
            return None
        try:
            content: Any = json.loads(name)
        except (ValueError, RecursionError):
            return None
        if not isinstance(content, dict) or "dispatch_id" not in content:
            return None
        operator = content.get("operator")
        operator = operator if isinstance(operator, dict) else {}
        kernel, of = content.get("kernel_name"), operator.get("name")
        parts = [part for part in (of, kernel) if isinstance(part, str) and part]
        node = operator.get("delegate_node_id")
        shown = f"{parts[0]} ({parts[1]})" if len(parts) == 2 else (parts or ["dispatch"])[0]
        is_known = isinstance(node, (int, str)) and not isinstance(node, bool)
        return cls(
            f"{shown} #{content['dispatch_id']}",
            node if is_known else None,
            {"kernel_name": kernel} if isinstance(kernel, str) and kernel else {},
        )
