"""Derive the state of a model before a run from the values that the run logged.

A cache is changed by operators that write some elements of a buffer and leave the others as they
were. The value that such an operator logged has them all, so it shows what was in the buffer
before, where it was not written to.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from etscope.bridge.reference.local_reference import DeviceValues, Memory
from etscope.bridge.reference.reference import NamedProgram, ReferenceGraph

# Operators that write elements of their first argument, functionally.
_WRITE_ELEMENTS = frozenset(
    {
        "aten.index_put.default",
        "aten.index_copy.default",
        "aten.slice_scatter.default",
        "aten.select_scatter.default",
        "aten.scatter.src",
        "aten.scatter.value",
    }
)


def updated_buffers(graph: ReferenceGraph) -> dict[str, str]:
    """Return the buffers of a graph that an operator updates in part, by the operator's node."""
    if not isinstance(graph, NamedProgram):
        return {}
    buffers = {
        graph.names.get(name, name): buffer
        for name, buffer in graph.program.graph_signature.inputs_to_buffers.items()
    }
    found = {}
    for node in graph.nodes():
        source = getattr(node.args[0], "name", None) if node.args else None
        if node.operator in _WRITE_ELEMENTS and source in buffers:
            found[node.name] = buffers[source]
    return found


def take_logged_state(graph: ReferenceGraph, device: DeviceValues, memory: Memory) -> None:
    """Correct the device's state before a run by the buffers that the run logged. Elements that the
    run itself writes do not matter: it writes them again.
    """
    for node, buffer in updated_buffers(graph).items():
        for element, value in device(node, 0):
            known = memory.local.get(buffer)
            if element is None and (known is None or tuple(known.shape) == np.shape(value)):
                memory.take_device_state({buffer: value})


def state_errors(before: Mapping[str, torch.Tensor], memory: Memory) -> dict[str, float]:
    """Return how far the device's buffers are from the reference's where a run did not write to
    them, by buffer: SQNR in dB.

    before: the reference's state before the run; memory: after it.
    """
    errors = {}
    for name, own in memory.local.items():
        first, last = before.get(name), memory.reference.get(name)
        if first is None or last is None or not own.is_floating_point():
            continue
        if not first.shape == last.shape == own.shape:
            continue
        kept = first == last
        expected = first[kept].double()
        power = float(expected.square().sum())
        noise = float((own[kept].double() - expected).square().sum())
        if power:
            errors[name] = float("inf") if not noise else 10 * float(np.log10(power / noise))
    return errors
