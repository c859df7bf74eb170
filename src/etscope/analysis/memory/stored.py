"""The tensors with data in a program's file, and the nodes that read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from etscope.analysis.matching.run_nodes import Nodes, RunNodes
from etscope.analysis.program.program import InstructionRecord, instructions, unfolded
from etscope.analysis.program.xnnpack_events import QUANTIZATION
from etscope.errors import FormatError
from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.program.delegate_data import delegate_parts
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import Delegate, DelegateCall, Method, TensorValue
from etscope.formats.program.xnnpack import XnnConstant, is_xnnpack, read_xnnpack
from etscope.model.graph import Graph, Node

WEIGHTS = "weights"
STATE = "initial state"
SCALES = "scales"  # the label of the scales of a quantized weight

_BIASES = ("bias", "weight_bias")  # the second: a convolution with its batch norm folded in
# torchao numbers quantized weights: such names do not come from the model.
_NUMBERED = ("_frozen_param", "_lifted_tensor_constant", "lifted_tensor_")

NodesOf = Callable[[str], RunNodes]


@dataclass(frozen=True, slots=True)
class Quantized:
    """The numbers (integer - zero_point) * scale, stored as integers.

    scales: numbers, or the bytes of float32 in the program's file. axis: the dimension with one
    scale for each channel; None: one scale for all.
    """

    scales: tuple[float, ...] | Span
    zero_point: int
    axis: int | None


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A weight, or the initial state of a buffer, that a method reads from a program's file.

    kind: "weights" or "initial state". dtype: of the elements, as torch calls it. label: type and
    shape ("int8[16, 8]"), or "scales". instruction, operator: the first reader: its index, and the
    kernel's label ("convolution") or the kind of XNNPACK's operator ("Conv2d"). slot: its position
    among the reader's stored tensors. nodes: of the record's graph, that read it. value: of the
    method, None inside a delegate's data. shape: in the order of the file. key: its key in a .ptd
    file; the span is then empty. is_unread: no instruction reads it. inside: the number of
    XNNPACK's operator that reads it, None for other readers. quantized: the numbers behind
    integers, None if unknown.
    """

    method: str
    span: Span
    kind: str
    dtype: str
    label: str
    instruction: int | None
    operator: str | None
    slot: int
    nodes: Nodes = ()
    value: TensorValue | None = None
    shape: tuple[int, ...] = ()
    key: str | None = None
    is_unread: bool = False
    inside: int | None = None
    quantized: Quantized | None = None


def parameter_name(tensor: StoredTensor, graph: Graph | None) -> str | None:
    """Return the weight's name in the record: the parameter that its reader has in that position.
    For a kernel's tensor in a .ptd file it is the key."""
    if tensor.key is not None and tensor.value is not None:
        return tensor.key
    # Data of other delegates does not say which node reads a weight.
    if graph is None or (tensor.value is None and tensor.inside is None):
        return None
    is_scale = tensor.label == SCALES
    # An operator of XNNPACK has several nodes when it is part of a decomposed one.
    nodes = tensor.nodes if tensor.value is None else tensor.nodes[:1]
    read = {
        parameter_at(node, graph, tensor.slot, None if is_scale else tensor.shape) for node in nodes
    }
    names = [name for name in read if name is not None]
    if len(names) != 1:
        return None
    return names[0] + (" scales" if is_scale else "")


def stored_tensors(program: Program, nodes_of: NodesOf | None = None) -> tuple[StoredTensor, ...]:
    """List the tensors with data in a program's file, in delegates' data and in .ptd files: by
    method, in the order in which instructions read them. A tensor with several values is listed
    once for each.

    nodes_of: returns the nodes of a method; None if unknown.
    """
    tensors: list[StoredTensor] = []
    for method in program.methods:
        nodes = {} if nodes_of is None else nodes_of(method.name).nodes
        found = [*_in_values(program, method, nodes), *_in_delegates(program, method, nodes)]
        last = len(method.instructions)
        tensors += sorted(found, key=lambda t: last if t.instruction is None else t.instruction)
    return tuple(tensors)


def _in_values(
    program: Program, method: Method, nodes: Mapping[int, Nodes]
) -> Iterator[StoredTensor]:
    """Yield the tensors among a method's values, in the order of the arguments of its kernels."""
    data = {
        index: value
        for index, value in enumerate(method.values)
        if isinstance(value, TensorValue) and (value.has_data or value.external)
    }
    # By index of the value: the first instruction that reads it, the position there, all nodes.
    readers: dict[int, tuple[InstructionRecord | None, int, list[Node]]] = {}
    for listed in instructions(program, method.name).records:
        own = [index for index in unfolded(method.values, listed.inputs) if index in data]
        for slot, index in enumerate(own):
            reader = readers.setdefault(index, (listed, slot, []))
            reader[2].extend(nodes.get(listed.instruction_id, ()))
    unread = set(method.unread())
    for index in (*readers, *(index for index in data if index not in readers)):
        value, (first, slot, read_by) = data[index], readers.get(index, (None, 0, []))
        yield StoredTensor(
            method=method.name,
            span=Span(0, 0) if value.external else program.constant_span(value),
            kind=WEIGHTS if value.is_constant else "initial state",
            dtype=value.scalar_type.torch_name,
            label=str(value),
            instruction=None if first is None else first.instruction_id,
            operator=None if first is None else first.label,
            slot=slot,
            nodes=tuple(read_by),
            value=value,
            shape=value.sizes,
            key=(value.name or "") if value.external else None,
            is_unread=index in unread,
        )


def _in_delegates(
    program: Program, method: Method, nodes: Mapping[int, Nodes]
) -> Iterator[StoredTensor]:
    """Yield the weights in the data of a method's delegates, and in their named data."""
    named = {entry.key: entry.blob for entry in program.named_data}
    calls: dict[int, list[int]] = {}  # by delegate
    for number, instruction in enumerate(method.instructions):
        if isinstance(instruction, DelegateCall):
            calls.setdefault(instruction.delegate, []).append(number)
    for number, delegate in enumerate(method.delegates):
        called = [node for call in calls.get(number, ()) for node in nodes.get(call, ())]
        data = program.blob(delegate.blob)
        found = [*_xnnpack_constants(data, called)]
        for slot, part in enumerate(delegate_parts(delegate.backend_id, data)):
            if part.is_tensor:
                label = f"{part.dtype}[{', '.join(map(str, part.shape))}]"
                constant = XnnConstant(part.key, part.offset, part.size, part.dtype or "", label)
                found.append((None, part.name, slot, constant, part.shape, tuple(called)))
        for inside, operator, slot, constant, shape, read_by in found:
            key, place = constant.key, _place(constant, delegate, named)
            if place is None:
                continue
            yield StoredTensor(
                method=method.name,
                span=place,
                kind=WEIGHTS,
                dtype=constant.dtype,
                label=constant.label,
                instruction=calls[number][0] if number in calls else None,
                operator=operator,
                slot=slot,
                nodes=read_by,
                shape=shape,
                key=None if key is None or key in named else key,
                inside=inside,
                quantized=_quantized(constant, delegate, named),
            )


def _place(constant: XnnConstant, delegate: Delegate, named: Mapping[str, Span]) -> Span | None:
    """Return the span of a constant in the program's file: empty if it is in a .ptd, None if it
    lies beyond the delegate's data."""
    if constant.key is not None:
        return named.get(constant.key, Span(0, 0))
    if constant.offset + constant.size > delegate.blob.size:
        return None
    return Span(delegate.blob.offset + constant.offset, constant.size)


def _quantized(
    constant: XnnConstant, delegate: Delegate, named: Mapping[str, Span]
) -> Quantized | None:
    found = constant.quantized
    if found is None:
        return None
    scales = found.scales
    if isinstance(scales, XnnConstant):
        place = _place(scales, delegate, named)
        if place is None or not place.size:
            return None
        return Quantized(place, found.zero_point, found.axis)
    return Quantized(scales, found.zero_point, found.axis)


def _xnnpack_constants(
    data: memoryview, called: Sequence[Node]
) -> Iterator[tuple[int | None, str | None, int, XnnConstant, tuple[int, ...], Nodes]]:
    """Yield the constants in the data of an XNNPACK delegate: the number and kind of the reading
    operator, its position there, its shape, and the reading nodes. Unreadable data yields nothing:
    `info` reports the error."""
    try:
        operators = read_xnnpack(data) if is_xnnpack(data) else ()
    except FormatError:
        return
    for position, operator in enumerate(operators):
        handle = operator.debug_handle
        found = tuple(node for node in called if handle is not None and node.debug_handle == handle)
        # A quantize node shares its neighbor's handle, but belongs to the root module.
        read_by = tuple(one for one in found if not one.op.startswith(QUANTIZATION)) or found
        for slot, value in enumerate(value for value in operator.inputs if value.constants):
            for number, constant in enumerate(value.constants):
                shape = value.sizes if number == 0 else ()  # scales follow their weight
                yield position, operator.kind, slot, constant, shape, read_by


# -- the parameters that nodes read


def parameter_at(
    node: Node, graph: Graph, slot: int, sizes: Sequence[int] | None = None
) -> str | None:
    """Return the name of the parameter at a position among all parameters that a node reads,
    directly or dequantized; None if it has no name in the model. sizes: of the expected weight; a
    weight with another number of elements does not match."""
    around = graph.graph_of(node)
    read = []
    for value in node.inputs:
        source = around.by_name.get(value)
        if value not in around.parameters and source is not None and source.inputs:
            value = source.inputs[0] if source.op.startswith(QUANTIZATION) else value
        if value in around.parameters:
            read.append((around.parameters[value], _shape(around, value)))
    if slot >= len(read):
        return None
    name, shape = read[slot]
    if sizes is not None and math.prod(shape) != math.prod(sizes):
        return None
    if not name.startswith(_NUMBERED):
        return name
    # The bias of a quantized weight still has the module's name.
    if slot != 0 or len(read) != 2:
        return None
    module, dot, bias = read[1][0].rpartition(".")
    return f"{module}{dot}weight" if bias in _BIASES else None


def _shape(graph: Graph, parameter: str) -> tuple[int, ...]:
    source = graph.by_name[parameter]
    tensor = source.outputs[0].tensor if source.outputs else None
    return () if tensor is None else tuple(s for s in tensor.shape if isinstance(s, int))


def parameters_of(node: Node, graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters that a node reads, by qualified name: directly, or
    through nodes that read nothing else (a weight's transpose, its dequantization)."""
    around = graph.graph_of(node)
    found: dict[str, tuple[int, ...]] = {}
    waiting = list(node.inputs)
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        source = around.by_name.get(name)
        if source is None:
            continue
        if name in around.parameters:
            found[around.parameters[name]] = _shape(around, name)
        elif source.kind == "call_function" and all(
            one in around.parameters for one in source.inputs
        ):
            waiting += (one for one in source.inputs if one not in seen)
            seen.update(source.inputs)
    return found
