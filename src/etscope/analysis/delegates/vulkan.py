"""The nodes behind the calls of a Vulkan delegate.

The record's delegate map does not tell: ExecuTorch's exporter writes the position of each call in
Vulkan's own graph where a debug handle belongs (1.5.1,
backends/vulkan/serialization/vulkan_graph_builder.py, `build_graph`). But the delegate's data lists
the calls in the order of the nodes that they were made from. Vulkan's passes fuse nodes, fold what
quantises, and add copies between layouts.

So calls and nodes are laid side by side in order, as many as possible of the same operator and
shape. A call has a node only if all such ways agree on it.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.correlate import DelegateMap, MethodSymbols, handle_list
from etscope.errors import EtscopeWarning, FormatError
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import DelegateCall
from etscope.formats.program.vulkan import VulkanCall, read_vulkan
from etscope.model.graph import Node, stem

BACKEND = "VulkanBackend"

_LINEAR = ("linear", "addmm", "mm")
_RESHAPES = ("view", "squeeze", "unsqueeze")
# What Vulkan's own operators are made of, by how their names begin: the node that has their work.
_FUSED = {
    "conv": ("convolution",),
    "q8ta_conv": ("convolution",),
    "linear": _LINEAR,
    "q8ta_linear": _LINEAR,
    "q8ta_add": ("add",),
    "q8ta_relu": ("relu", "clamp", "hardtanh"),
    "q8ta_pixel_shuffle": ("pixel_shuffle",),
    "embedding": ("embedding",),
    "select_as_symint": ("select",),
    "rms_norm": ("rms_norm",),
    "sdpa": ("scaled_dot_product_attention", "custom_sdpa"),
}
_ATEN = {"linear": _LINEAR, **dict.fromkeys(_RESHAPES, _RESHAPES)}

Shape = tuple[int, ...] | None


def with_vulkan_handles(symbols: MethodSymbols, program: Program) -> MethodSymbols:
    """Return the symbols of a method with the debug handles of its Vulkan calls, as far as they are
    known. Data that cannot be read has none, with a warning."""
    method = next((one for one in program.methods if one.name == symbols.method), None)
    if method is None or all(one.backend_id != BACKEND for one in symbols.delegates.values()):
        return symbols
    # Of the nodes with one handle, each is in one call.
    left = {handle: deque(nodes) for handle, nodes in symbols.nodes_by_handle.items()}
    found: dict[int, DelegateMap] = {}
    for number, instruction in enumerate(method.instructions):
        entry = symbols.delegates.get(number)
        if (
            entry is None
            or entry.backend_id != BACKEND
            or not isinstance(instruction, DelegateCall)
        ):
            continue
        # The record has the handle of each node of the call, in the call's order.
        handles = handle_list(symbols.handles.get(number))
        nodes = [left[handle].popleft() for handle in handles if left.get(handle)]
        try:
            calls = read_vulkan(program.delegate_blob(method.name, instruction.delegate))
        except FormatError as error:
            warnings.warn(
                f"what Vulkan runs for instruction {number} cannot be read: {error}",
                EtscopeWarning,
                stacklevel=2,
            )
        else:
            found[number] = DelegateMap(BACKEND, handles_by_call(calls, nodes))
    return replace(symbols, delegates={**symbols.delegates, **found})


def handles_by_call(
    calls: Sequence[VulkanCall], nodes: Sequence[Node]
) -> Mapping[str, tuple[int, ...]]:
    """Return the debug handle of each call whose node is known, by the id in its event, as text.

    nodes: those that the delegate was made from, in the order of the graph.
    """
    same = _same(calls, nodes)
    if not same.any():
        return {}
    before = _longest(same)
    after = _longest(same[::-1, ::-1])[::-1, ::-1]
    longest = int(before[-1, -1])
    found: dict[int, Node] = {}  # by the call's number
    for row in range(len(calls)):
        ways = np.flatnonzero(same[row] & (before[row, :-1] + 1 + after[row + 1, 1:] == longest))
        without = int((before[row] + after[row + 1]).max())
        if len(ways) == 1 and without < longest:
            found[row] = nodes[ways[0]]
    taken = {node.name for node in found.values()}
    by_name = {node.name: node for node in nodes}
    return {
        str(calls[row].node_id): tuple(
            dict.fromkeys(
                one.debug_handle
                for one in _with_fused(node, by_name, taken)
                if one.debug_handle is not None
            )
        )
        for row, node in found.items()
    }


def _with_fused(node: Node, by_name: Mapping[str, Node], taken: Set[str]) -> list[Node]:
    """Return the node, and the reshapes before it that have no call of their own: Vulkan makes one
    of several in a row."""
    found = [node]
    while stem(found[-1].op) in _RESHAPES:
        before = [by_name[name] for name in found[-1].inputs if name in by_name]
        if len(before) != 1 or before[0].name in taken or stem(before[0].op) not in _RESHAPES:
            break
        found.append(before[0])
    return found


def _same(calls: Sequence[VulkanCall], nodes: Sequence[Node]) -> npt.NDArray[np.bool_]:
    """Return for each call and node whether they are of the same operator and output."""
    wanted: dict[tuple[str, Shape], int] = {}
    rows = [wanted.setdefault((call.name, call.shape), len(wanted)) for call in calls]
    given: dict[tuple[str, Shape], int] = {}
    columns = [given.setdefault((stem(node.op), _shape(node)), len(given)) for node in nodes]
    kinds = [
        [operator in _operators(name) and _may_be(shape, other) for operator, other in given]
        for name, shape in wanted
    ]
    return np.array(kinds, np.bool_).reshape(len(wanted), len(given))[np.ix_(rows, columns)]


def _operators(name: str) -> Sequence[str]:
    """Return the operators of the graph that a call of that name may be made of."""
    namespace, _, rest = name.partition(".")
    operator = stem(name)
    if namespace == "aten":
        return _ATEN.get(operator, (operator,))
    return next((of for start, of in _FUSED.items() if rest.startswith(start)), (operator,))


def _shape(node: Node) -> Shape:
    """Return the shape of the node's output; None for several or symbolic sizes."""
    output = node.outputs[0].tensor if len(node.outputs) == 1 else None
    if output is None:
        return None
    sizes = tuple(size for size in output.shape if isinstance(size, int))
    return sizes if len(sizes) == len(output.shape) else None


def _may_be(shape: Shape, other: Shape) -> bool:
    """Return whether shapes are the same but for sizes of 1, some of which Vulkan's passes leave
    out; or one is not known."""
    if shape is None or other is None:
        return True
    return [size for size in shape if size != 1] == [size for size in other if size != 1]


def _longest(same: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Return the most pairs in order of the first `row` calls and the first `column` nodes."""
    rows, columns = same.shape
    table = np.zeros((rows + 1, columns + 1), np.int32)
    for row in range(rows):
        best = np.maximum(table[row, 1:], table[row, :-1] + same[row])
        table[row + 1, 1:] = np.maximum.accumulate(best)
    return table
