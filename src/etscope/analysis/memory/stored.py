"""Bytes with an owner; the tensors with data in a program's file, and the nodes that read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from etscope.analysis.matching.run_nodes import Nodes, RunNodes
from etscope.analysis.program.program import InstructionRecord, instructions, unfolded
from etscope.analysis.program.xnnpack_events import QUANTIZATION
from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.program.delegate_data import delegate_parts
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import DelegateCall, Method, TensorValue
from etscope.formats.program.xnnpack import XnnConstant, known_operators
from etscope.model.graph import Graph, Node

# -- the one type of the bytes of files, planned memory and measured memory

FILE, PLAN, ESTIMATE, MEASURED, UNKNOWN = "the file", "the plan", "estimate", "a run", "not known"


@dataclass(frozen=True, slots=True)
class OwnedBytes:
    """Bytes with one owner.

    owner: "activations", "conv1.weight", "planned buffers". size: in bytes, None if unknown.
    known_by: where the size comes from: "the file", "the plan", "a run", "estimate" (packed weights
    are assumed to take as many bytes as the weights themselves) or "not known"; None for a total.
    planned: for measured bytes, the size that the program's file says; None if it says nothing.
    """

    owner: str
    size: int | None
    known_by: str | None = FILE
    planned: int | None = None


def with_total(
    owners: Sequence[OwnedBytes], name: str
) -> Iterator[tuple[OwnedBytes, float | None]]:
    """Yield each owner with its share of the known bytes, then their total under `name`."""
    total = sum(one.size or 0 for one in owners)
    for one in (*owners, OwnedBytes(name, total, None)):
        yield one, one.size / total if total and one.size is not None else None


# -- tensors in files

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

    kind: "weights" or "initial state". dtype: the type of the elements, as torch calls it. label:
    type and shape ("int8[16, 8]"), or "scales". instruction, operator: the first reader: the
    instruction's index, and the kernel's label ("convolution") or the kind of XNNPACK operator
    ("Conv2d"). slot: the position among the reader's stored tensors. nodes: the nodes of the
    record's graph that read it. value: the method's value, None inside a delegate's data. shape: in
    the order of the file. key: the key in a .ptd file; the span is then empty. is_unread: True if
    no instruction reads it. inside: the number of the XNNPACK operator that reads it, None for
    other readers. quantized: scales and zero points that turn the stored integers into real
    numbers, None if unknown.
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
    method, in the order that instructions read them. A tensor with several values is listed
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
            kind=WEIGHTS if value.is_constant else STATE,
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

        def place_of(constant: XnnConstant, blob: Span = delegate.blob) -> Span | None:
            """The span of a constant in the program's file: empty if it is in a .ptd, None if it
            lies beyond the delegate's data."""
            if constant.key is not None:
                return named.get(constant.key, Span(0, 0))
            is_beyond = constant.offset + constant.size > blob.size
            return None if is_beyond else Span(blob.offset + constant.offset, constant.size)

        for constant, read_by, operator, (inside, slot), shape in _constants(
            program.blob(delegate.blob), delegate.backend_id, called
        ):
            key, place = constant.key, place_of(constant)
            if place is None:
                continue
            found = constant.quantized
            given = None if found is None else found.scales
            scales = place_of(given) if isinstance(given, XnnConstant) else given
            if isinstance(scales, Span) and not scales.size:
                scales = None
            yield StoredTensor(
                method=method.name,
                span=place,
                kind=WEIGHTS,
                dtype=constant.dtype,
                label=constant.label,
                instruction=calls[number][0] if number in calls else None,
                key=None if key is None or key in named else key,
                quantized=None
                if found is None or scales is None
                else Quantized(scales, found.zero_point, found.axis),
                operator=operator,
                slot=slot,
                nodes=read_by,
                shape=shape,
                inside=inside,
            )


def _constants(
    data: memoryview, backend: str, called: Sequence[Node]
) -> Iterator[tuple[XnnConstant, Nodes, str | None, tuple[int | None, int], tuple[int, ...]]]:
    """Yield the constants in the data of a delegate: with the nodes that read it, the kind of
    XNNPACK's operator, its number and the position there, and the shape."""
    for position, operator in enumerate(known_operators(data)):
        handle = operator.debug_handle
        found = tuple(node for node in called if handle is not None and node.debug_handle == handle)
        # A quantize node shares its neighbor's handle, but belongs to the root module.
        read_by = tuple(one for one in found if not one.op.startswith(QUANTIZATION)) or found
        for slot, value in enumerate(value for value in operator.inputs if value.constants):
            for number, constant in enumerate(value.constants):
                shape = value.sizes if number == 0 else ()  # scales follow their weight
                yield constant, read_by, operator.kind, (position, slot), shape
    for slot, part in enumerate(delegate_parts(backend, data)):
        if part.is_tensor:
            label = f"{part.dtype}[{', '.join(map(str, part.shape))}]"
            constant = XnnConstant(part.key, part.offset, part.size, part.dtype or "", label)
            yield constant, tuple(called), part.name, (None, slot), part.shape


# -- the parameters that nodes read


def parameter_at(
    node: Node, graph: Graph, slot: int, sizes: Sequence[int] | None = None
) -> str | None:
    """Return the name of a parameter that a node reads, directly or dequantized, from its position
    among all of them; None if it has no name in the model. sizes: the shape that the weight should
    have; a weight with another number of elements is not returned.
    """
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
