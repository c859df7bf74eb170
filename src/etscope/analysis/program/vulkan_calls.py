"""The nodes behind the calls of a Vulkan delegate.

The record's delegate map does not help: ExecuTorch's exporter writes the position of each call in
Vulkan's graph instead of a debug handle (1.5.1,
backends/vulkan/serialization/vulkan_graph_builder.py, `build_graph`). But the delegate's data lists
the calls in the order of their nodes. Vulkan's passes fuse nodes, fold quantize nodes, and add
copies between layouts.

The record also has the debug handles of all nodes of a delegate, in order. So calls and handles are
aligned as two sequences, with as many pairs as possible; in a pair a node of the handle has the
operator and the shape of the call. A call has a handle only if all such alignments agree.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from etscope.analysis.program.correlate import DelegateMap, MethodSymbols, handle_list
from etscope.errors import EtscopeWarning, FormatError
from etscope.formats.program.delegate_data import VulkanCall, read_vulkan
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import DelegateCall
from etscope.model.graph import Node, stem

BACKEND = "VulkanBackend"

_LINEAR = ("linear", "addmm", "mm")
_RESHAPES = ("view", "squeeze", "unsqueeze")
_COPIES = ("clone", "clone_dim_order")
# The start of the name of a Vulkan operator -> the node that does most of its work.
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
    """Return the symbols of a method with the known debug handles of its Vulkan calls. Warns about
    unreadable data, which has none."""
    method = next((one for one in program.methods if one.name == symbols.method), None)
    if method is None or all(one.backend_id != BACKEND for one in symbols.delegates.values()):
        return symbols
    found: dict[int, DelegateMap] = {}
    for number, instruction in enumerate(method.instructions):
        entry = symbols.delegates.get(number)
        if (
            entry is None
            or entry.backend_id != BACKEND
            or not isinstance(instruction, DelegateCall)
        ):
            continue
        handles = handle_list(symbols.handles.get(number))
        try:
            calls = read_vulkan(program.delegate_blob(method.name, instruction.delegate))
        except FormatError as error:
            warnings.warn(
                f"cannot read Vulkan's data for instruction {number}: {error}",
                EtscopeWarning,
                stacklevel=2,
            )
        else:
            found[number] = DelegateMap(
                BACKEND, handles_by_call(calls, handles, symbols.nodes_by_handle)
            )
    return replace(symbols, delegates={**symbols.delegates, **found})


def handles_by_call(
    calls: Sequence[VulkanCall], handles: Sequence[int], nodes: Mapping[int, Sequence[Node]]
) -> Mapping[str, tuple[int, ...]]:
    """Return the known debug handles of each call; the key is the id in the call's event, as
    text.

    handles: the handles of the delegate's nodes, in order. nodes: the nodes by handle.
    """
    handles = [handle for handle in handles if handle in nodes]
    same = _same(calls, handles, nodes)
    if not same.any():
        return {}
    before = _longest(same)
    after = _longest(same[::-1, ::-1])[::-1, ::-1]
    longest = int(before[-1, -1])
    found: dict[int, int] = {}  # by the call's number
    for row in range(len(calls)):
        ways = np.flatnonzero(same[row] & (before[row, :-1] + 1 + after[row + 1, 1:] == longest))
        without = int((before[row] + after[row + 1]).max())
        if len({handles[way] for way in ways}) == 1 and without < longest:
            found[row] = handles[ways[0]]
    reshapes = Counter(handle for row, handle in found.items() if _is_reshape(calls[row].name))
    taken = {
        handle
        for handle, count in reshapes.items()
        if count >= sum(_is_reshape(node.op) for node in nodes[handle])
    }
    # The call that made each value.
    makers = {call.arguments[-1]: number for number, call in enumerate(calls) if call.arguments}
    told: dict[str, tuple[int, ...]] = {}
    for row, handle in found.items():
        fused: tuple[int, ...] = ()
        if _is_reshape(calls[row].name):
            node = next(node for node in nodes[handle] if _fits(calls[row], node))
            fused, source = _before(node, nodes, taken)
            # Passes move reshapes past other operators: a call must follow the same maker as its
            # node.
            at: int | None = row
            while at is not None and (
                _is_reshape(calls[at].name) or stem(calls[at].name) in _COPIES
            ):
                at = makers.get(calls[at].arguments[0]) if calls[at].arguments else None
            if (None if at is None else found.get(at, -1)) != source:
                continue
        told[str(calls[row].node_id)] = (handle, *fused)
    return told


def _is_reshape(name: str) -> bool:
    return stem(name) in _RESHAPES


def _before(
    node: Node, nodes: Mapping[int, Sequence[Node]], taken: Set[int]
) -> tuple[tuple[int, ...], int | None]:
    """Return the handles of the reshapes directly before a reshape, since Vulkan joins several in a
    row, and the handle that made the value before them, None for an input.

    taken: handles with a separate call for each reshape.
    """
    made_by = {one.name: one for several in nodes.values() for one in several}
    found: list[int] = []
    is_fused = True
    at = node
    while True:
        before = [made_by[name] for name in at.inputs if name in made_by]
        if len(before) != 1:
            return tuple(found), None
        at = before[0]
        if not _is_reshape(at.op) and stem(at.op) not in _COPIES:
            return tuple(found), at.debug_handle
        is_fused &= at.debug_handle is not None and at.debug_handle not in taken
        if is_fused and at.debug_handle is not None and _is_reshape(at.op):
            found.append(at.debug_handle)


def _same(
    calls: Sequence[VulkanCall], handles: Sequence[int], nodes: Mapping[int, Sequence[Node]]
) -> npt.NDArray[np.bool_]:
    """Return for each call and handle whether one of the handle's nodes fits the call."""
    kinds: dict[tuple[str, Shape], VulkanCall] = {}
    for call in calls:
        kinds.setdefault((call.name, call.shape), call)
    row = {kind: at for at, kind in enumerate(kinds)}
    column = {handle: at for at, handle in enumerate(dict.fromkeys(handles))}
    fits = [
        [any(_fits(call, node) for node in nodes[handle]) for handle in column]
        for call in kinds.values()
    ]
    rows = [row[call.name, call.shape] for call in calls]
    columns = [column[handle] for handle in handles]
    return np.array(fits, np.bool_).reshape(len(row), len(column))[np.ix_(rows, columns)]


def _fits(call: VulkanCall, node: Node) -> bool:
    """Return whether operator and known output shape of call and node agree. Sizes of 1 do not
    count: Vulkan's passes drop some of them."""
    namespace, _, rest = call.name.partition(".")
    operators: Sequence[str] = (stem(call.name),)
    if namespace == "aten":
        operators = _ATEN.get(operators[0], operators)
    else:
        operators = next((of for start, of in _FUSED.items() if rest.startswith(start)), operators)
    if stem(node.op) not in operators:
        return False
    output = node.outputs[0].tensor if len(node.outputs) == 1 else None
    sizes = () if output is None else output.shape
    if call.shape is None or output is None or any(not isinstance(size, int) for size in sizes):
        return True
    return [size for size in call.shape if size != 1] == [size for size in sizes if size != 1]


def _longest(same: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Return a table: the most pairs, in order, of the first `row` calls and `column` nodes."""
    rows, columns = same.shape
    table = np.zeros((rows + 1, columns + 1), np.int32)
    for row in range(rows):
        best = np.maximum(table[row, 1:], table[row, :-1] + same[row])
        table[row + 1, 1:] = np.maximum.accumulate(best)
    return table
