"""Attribute the events of XNNPACK to its operators, and so to nodes of the graph.

XNNPACK logs private names, numbered from 1 in each run: "Convolution (NHWC, F32) IGEMM #2". The
record does not map them. But the delegate's data in the .pte lists the operators handed to XNNPACK,
each with a debug handle, and XNNPACK runs them in that order, with one event for each. It may drop
some of them (a product reads its input in transposed order, a convolution does the padding), run a
clamp apart from the operator that it belongs to, and pack a matrix for a product.

So events and operators are aligned as two sequences by kind. An event has an operator only if every
alignment gives it the same one.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from etscope.analysis.program.correlate import Attribution, MethodSymbols, handle_list
from etscope.analysis.program.program import InstructionRecord, unfolded
from etscope.analysis.program.source_location import innermost_lines_of
from etscope.errors import EtscopeWarning, FormatError
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import KernelCall, Method, TensorValue
from etscope.formats.program.scalar_type import ScalarType
from etscope.formats.program.xnnpack import XnnNode, is_xnnpack, read_xnnpack
from etscope.model.event_table import Block
from etscope.model.graph import Node

BACKEND = "XnnpackBackend"

Users = Callable[[Node], Iterable[Node]]

# Kind of operator -> the names of its events in XNNPACK, up to the bracket, and the edge operators
# (of aten, without overload) that it computes. A pointwise convolution is a matrix product. These
# decide where one line of Python was decomposed into several nodes with one debug handle.
_Names = tuple[tuple[str, ...], tuple[str, ...]]
_CONVOLUTION: _Names = (("Convolution", "Fully Connected"), ("convolution",))
_CONCATENATION: _Names = (("Copy",), ("cat",))
_PLAIN: dict[str, _Names] = {
    "ArgMaxPooling2d": (("ArgMax Pooling",), ()),
    "AvgPooling2d": (("Average Pooling",), ("avg_pool2d",)),
    "BatchMatrixMultiply": (("Batch Matrix Multiply",), ("bmm",)),
    "Concatenate2": _CONCATENATION,
    "Concatenate3": _CONCATENATION,
    "Concatenate4": _CONCATENATION,
    "Concatenate5": _CONCATENATION,
    "Conv2d": _CONVOLUTION,
    "ConvTranspose2d": (("Deconvolution",), ("convolution",)),
    "Convert": (("Convert",), ()),
    "Copy": (("Copy",), ()),
    "DepthwiseConv2d": _CONVOLUTION,
    "FullyConnected": (("Fully Connected", "Dynamic Fully Connected"), ("linear", "addmm", "mm")),
    "GlobalAvgPooling2d": (("Mean", "Global Average Pooling"), ("mean",)),
    "MaxPooling2d": (("Max Pooling",), ("max_pool2d",)),
    "Softmax": (("Softmax",), ("_softmax",)),
    "StaticConstantPad": (("Constant Pad",), ("constant_pad_nd",)),
    "StaticReshape": (("Static Reshape",), ("view_copy", "squeeze_copy", "unsqueeze_copy")),
    "StaticResizeBilinear2D": (("Resize Bilinear",), ("upsample_bilinear2d",)),
    "StaticSlice": (("Slice",), ("slice_copy",)),
    "StaticTranspose": (("Transpose",), ("permute_copy",)),
}
# Unary and binary operators. Unary ones on 8 bits run as a look-up table, without a name.
_UNARY: dict[str, _Names] = {
    "Abs": (("Abs",), ("abs",)),
    "Ceiling": (("Ceiling",), ("ceil",)),
    "Clamp": (("Clamp",), ("clamp", "hardtanh", "relu")),
    "Cos": (("Cosine",), ("cos",)),
    "ELU": (("ELU",), ("elu",)),
    "Exp": (("Exp",), ("exp",)),
    "Floor": (("Floor",), ("floor",)),
    "Gelu": (("GELU", "ApproxGELU"), ("gelu",)),
    "Hardswish": (("HardSwish",), ("hardswish",)),
    "LeakyReLU": (("LeakyReLU",), ("leaky_relu",)),
    "Log": (("Log",), ("log",)),
    "Negate": (("Negate",), ("neg",)),
    "ReciprocalSquareRoot": (("Reciprocal Square Root",), ("rsqrt",)),
    "Sigmoid": (("Sigmoid",), ("sigmoid",)),
    "Sin": (("Sine",), ("sin",)),
    "Square": (("Square",), ("pow",)),
    "SquareRoot": (("Square Root",), ("sqrt",)),
    "Tanh": (("TanH",), ("tanh",)),
}
_BINARY: dict[str, _Names] = {
    "Add": (("Add",), ("add",)),
    "Div": (("Divide",), ("div",)),
    "Maximum": (("Maximum",), ("maximum",)),
    "Minimum": (("Minimum",), ("minimum",)),
    "Multiply": (("Multiply", "Square"), ("mul",)),  # of a value with itself
    "PReLU": (("PReLU",), ("prelu",)),
    "Subtract": (("Subtract",), ("sub",)),
}
_EVENTS = {
    **{kind: names for kind, (names, _) in _PLAIN.items()},
    **{
        kind: (*names, "Invalid Unary Op", "Unary Elementwise")
        for kind, (names, _) in _UNARY.items()
    },
    **{kind: (*names, "Binary Elementwise") for kind, (names, _) in _BINARY.items()},
}
_OPS = {kind: ops for kind, (_, ops) in {**_PLAIN, **_UNARY, **_BINARY}.items()}
# Operators that XNNPACK may merge into another one.
_MAY_VANISH = frozenset(
    {"Clamp", "Convert", "Copy", "StaticConstantPad", "StaticReshape", "StaticTranspose"}
)
# Events that XNNPACK adds: packing a matrix for the kernel.
_ADDED = frozenset({"Pack LH"})

_EDGE_OPS = frozenset(name for names in _OPS.values() for name in names)
# Types that ExecuTorch's partitioner for XNNPACK takes by default (1.0 to 1.5,
# backends/xnnpack/partition/config/xnnpack_config.py). It takes 8 bits only as quantized floats.
_TAKEN = frozenset({ScalarType.FLOAT, ScalarType.HALF})


def takes(op: str) -> bool:
    """Return whether ExecuTorch's partitioner takes an edge operator ("aten.add.Tensor") for
    XNNPACK, if it takes the type and shape. The list may lack newer operators."""
    return op.split(".")[1] in _EDGE_OPS if op.startswith("aten.") else False


def untaken_types(method: Method) -> str | None:
    """Return a sentence on the types of most tensors, if they keep XNNPACK from taking the method's
    operators, or the operators outside its delegates. None if it takes these types, or another
    backend chose."""
    backends = {delegate.backend_id for delegate in method.delegates}
    if backends - {BACKEND}:
        return None
    called = [
        index
        for chain in method.chains
        for instruction in chain.instructions
        if isinstance(instruction, KernelCall)
        for index in unfolded(method.values, instruction.args)
    ]
    values = [method.values[index] for index in dict.fromkeys(called)]
    types = Counter(value.scalar_type for value in values if isinstance(value, TensorValue))
    # Between delegates, int8 tensors are XNNPACK's quantized values.
    taken = _TAKEN | {ScalarType.CHAR} if backends else _TAKEN
    others = {kind: count for kind, count in types.most_common() if kind not in taken}
    if sum(others.values()) * 2 <= types.total():
        return None
    listed = " and ".join(f"{kind.torch_name} ({n:,})" for kind, n in others.items())
    whose = "the tensors" if len(others) == len(types) else "most of their tensors"
    return f"XNNPACK takes float32, float16 and quantized int8, and {whose} are {listed}"


# The start of the names of operators that quantize.
QUANTIZATION = "quantized_decomposed."
# The backend fuses these into the operator before, which then clamps its output.
_ACTIVATIONS = frozenset({"aten.relu.default", "aten.hardtanh.default", "aten.clamp.default"})


@dataclass(frozen=True, slots=True)
class Pairing:
    """The operator of an event. `activation`: the event is the operator's fused clamp, which ran
    separately."""

    node: XnnNode
    activation: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    """An event that an operator may log, with one of `names`; or nothing, if `optional`."""

    of: Pairing
    names: tuple[str, ...]
    optional: bool


def pair(events: Sequence[str], nodes: Sequence[XnnNode]) -> list[Pairing | None]:
    """Return the operator of each event of one call, in the order they were logged."""
    steps: list[_Step] = []
    for node in nodes:
        # An unknown kind fits no event: all events of the call then stay without operators.
        own = _EVENTS.get(node.kind or "", ())
        steps.append(_Step(Pairing(node), own, node.kind in _MAY_VANISH))
        if node.clamped and node.kind != "Clamp":
            steps.append(_Step(Pairing(node, activation=True), ("Clamp",), optional=True))
    kinds = [event_kind(event) for event in events]
    before = _fits(kinds, steps)
    after = _fits(kinds[::-1], steps[::-1])[::-1]
    found: list[Pairing | None] = []
    for row, kind in enumerate(kinds):
        ways = [
            step.of
            for column, step in enumerate(steps)
            if kind in step.names and before[row][column] and after[row + 1][-column - 2]
        ]
        found.append(_common(ways))
    return found


def event_kind(event: str) -> str:
    """Return the operator's part of an event's name: "Softmax" of "Softmax (NC, F32) #1"."""
    return event.partition(" (")[0].partition(" #")[0]


def _common(ways: Sequence[Pairing]) -> Pairing | None:
    """Return the operator that all ways agree on, without values if these differ; else None."""
    if len(set(ways)) != 1:
        return None
    if len({(way.node.inputs, way.node.outputs) for way in ways}) == 1:
        return ways[0]
    return replace(ways[0], node=replace(ways[0].node, inputs=(), outputs=()))


def computed(pairing: Pairing, nodes: Sequence[Node], users: Users) -> tuple[Node, ...]:
    """Return the nodes that the event computes, among the nodes with its operator's debug handle.
    Empty if they belong to several lines.

    users: the nodes that take a node's value.
    """
    node = pairing.node
    plain = [one for one in nodes if not one.op.startswith(QUANTIZATION)]
    those = [one for one in nodes if may_compute(node, one)] or plain
    if pairing.activation:
        behind = {id(user): user for one in those for user in users(one)}
        those = [one for one in behind.values() if one.op in _ACTIVATIONS]
        those = those if len(behind) == 1 else []
    return tuple(those) if len({innermost_lines_of([one]) for one in those}) <= 1 else ()


def may_compute(operator: XnnNode, node: Node) -> bool:
    """Return True if an operator of this kind can compute a node of the edge program."""
    if operator.kind == "Convert":
        start = "quantize_" if operator.quantizes else "dequantize_"
        return node.op.startswith(QUANTIZATION + start)
    return node.op.split(".")[:2][-1] in _OPS.get(operator.kind or "", ())


def _fits(kinds: Sequence[str], steps: Sequence[_Step]) -> list[list[bool]]:
    """Return a table: whether the first `row` events can be those of the first `column` steps.

    The numbers of events and steps limit the skipped steps and added events, so only a band of the
    table needs to be filled.
    """
    added = sum(kind in _ADDED for kind in kinds)
    left_out = len(steps) - (len(kinds) - added)
    table = [[False] * (len(steps) + 1) for _ in range(len(kinds) + 1)]
    for row, line in enumerate(table):
        kind = kinds[row - 1] if row else ""
        for column in range(max(0, row - added), min(len(steps), row + left_out) + 1):
            line[column] = row == column == 0 or (kind in _ADDED and table[row - 1][column])
            if column:
                step = steps[column - 1]
                line[column] |= (step.optional and line[column - 1]) or (
                    row > 0 and kind in step.names and table[row - 1][column - 1]
                )
    return table


# -- The operators of events inside a delegate call, if the record does not map them.
#
# XNNPACK's data in the .pte has the debug handles of its operators; the record has maps for other
# backends.

# By instruction and name of the event.
InnerEvents = Mapping[tuple[int, int | str], Pairing]


def inner_events(
    blocks: Iterable[Block],
    program: Program,
    method: str,
    instructions: Sequence[InstructionRecord],
    symbols: MethodSymbols | None = None,
) -> InnerEvents:
    """Return the operators of the events inside the delegate calls of a method.

    blocks: its runs; an event with different operators in two runs is excluded. symbols: the
    record's, to exclude calls with other debug handles; None without a record.
    """
    operators: dict[int, tuple[XnnNode, ...]] = {}
    for record in instructions:
        handles: list[int] = []
        if symbols is not None:
            delegate = symbols.delegates.get(record.instruction_id)
            handles = handle_list(symbols.handles.get(record.instruction_id))
            if not handles or (delegate is not None and delegate.handles):
                continue  # unknown, or it has a map
        nodes = _nodes(program, method, record)
        is_own = all(node.debug_handle in (None, *handles) for node in nodes)
        if nodes and (symbols is None or is_own):
            operators[record.instruction_id] = nodes
    calls = {call for block in blocks for call in _calls(block, operators)}
    found: dict[tuple[int, int | str], list[Pairing | None]] = {}
    for instruction, names in calls:
        for name, pairing in zip(names, pair(names, operators[instruction]), strict=True):
            found.setdefault((instruction, name), []).append(pairing)
    return {
        key: pairing
        for key, pairings in found.items()
        if None not in pairings
        and (pairing := _common([one for one in pairings if one is not None])) is not None
    }


def unexplained(
    block: Block,
    program: Program | None,
    symbols: MethodSymbols,
    instructions: Sequence[InstructionRecord],
) -> int:
    """Count the events inside delegate calls that XNNPACK would not log for a method: the fewer,
    the likelier the block is a run of it.

    Without a program, any fitting node of the delegate in the record explains an event.
    """
    if program is not None:
        operators = {
            record.instruction_id: found
            for record in instructions
            if (found := _nodes(program, symbols.method, record))
        }
        return sum(
            pair(names, operators[call]).count(None) for call, names in _calls(block, operators)
        )
    unmapped = [
        instruction
        for instruction, delegate in symbols.delegates.items()
        if delegate.backend_id == BACKEND and not delegate.handles
    ]
    count = 0
    for call, names in _calls(block, dict.fromkeys(unmapped)):
        nodes = symbols.nodes_of(symbols.handles.get(call))
        stems = {node.op.split(".")[:2][-1] for node in nodes}
        if any(node.op.startswith(QUANTIZATION) for node in nodes):
            stems.add("convert")
        known = {
            name
            for kind, names_of_kind in _EVENTS.items()
            if not stems.isdisjoint(_OPS[kind] or (kind.lower(),))
            for name in names_of_kind
        }
        count += sum(event_kind(name) not in known | _ADDED for name in names) if nodes else 0
    return count


def attributed(found: Attribution, pairing: Pairing, symbols: MethodSymbols) -> Attribution:
    nodes = computed(pairing, symbols.nodes_of(pairing.node.debug_handle), symbols.users_of)
    if pairing.activation:
        handles = list(dict.fromkeys(n.debug_handle for n in nodes if n.debug_handle is not None))
    else:
        handles = handle_list(pairing.node.debug_handle)
    written = pairing.node.outputs
    read = written if pairing.activation else pairing.node.inputs
    return replace(
        found,
        debug_handles=handles or None,
        nodes=nodes,
        inputs=tuple(map(str, read)),
        outputs=tuple(map(str, written)),
    )


def _nodes(program: Program, method: str, call: InstructionRecord) -> tuple[XnnNode, ...]:
    """Return the operators in XNNPACK's data for an instruction; () for other instructions."""
    if call.delegate is None or call.backend_id != BACKEND:
        return ()
    data = program.delegate_blob(method, call.delegate)
    if not is_xnnpack(data):
        return ()
    try:
        return read_xnnpack(data)
    except FormatError as error:
        warnings.warn(
            f"cannot read XNNPACK's data for instruction {call.instruction_id}: {error}",
            EtscopeWarning,
            stacklevel=2,
        )
        return ()


def _calls(block: Block, instructions: Mapping[int, object]) -> set[tuple[int, tuple[str, ...]]]:
    """Return the instructions, each with the names of the events that one call logged."""
    calls: dict[tuple[int, int], list[str]] = {}
    for index in block.profiled:
        key = block.keys[index]
        number, name = key.instruction, key.delegate_id
        if number is not None and number in instructions and isinstance(name, str):
            calls.setdefault((number, key.occurrence), []).append(name)
    return {(instruction, tuple(names)) for (instruction, _), names in calls.items()}
