"""The work of a program's instructions, without a record: from its values, and from the operators
that XNNPACK's data lists. Of other delegates only the bytes at their borders are known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from etscope.analysis.memory.plan import planned_values
from etscope.analysis.program.program import (
    InstructionRecord,
    MethodInstructions,
    instructions,
    unfolded,
)
from etscope.analysis.work.formulas import (
    FLOATS,
    INT8_INT4,
    RULES,
    Flops,
    attention,
    each,
    none,
    product,
    work_of,
)
from etscope.analysis.work.operation import (
    ACTIVATION,
    NO_WORK,
    STATE,
    WEIGHT,
    Argument,
    Operand,
    Operation,
    Traffic,
    UnfitError,
    Work,
    every_tensor,
    operator_name,
    sum_of,
    unknown_work,
)
from etscope.formats.program.delegate_data import delegate_parts
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import (
    BOXED_LISTS,
    ListValue,
    ScalarValue,
    ShapeDynamism,
    TensorValue,
    ValueKind,
)
from etscope.formats.program.xnnpack import XnnNode, XnnTensor, known_operators
from etscope.model.table import Column, Kind, Table


class ProgramWork:
    """The work of the instructions of one method; with dynamic shapes, for the largest sizes.

    listing: its instructions, if these are known already.
    """

    def __init__(
        self, program: Program, method: str, listing: Sequence[InstructionRecord] | None = None
    ) -> None:
        self._program, self._method = program, program.method(method)
        self.records = instructions(program, method).records if listing is None else listing
        self._operands: dict[int, Operand] = {}
        self._operators: dict[int, tuple[XnnNode, ...]] = {}

    def of(self, instruction: int, position: float | None = None) -> Work:
        """Return the work of an instruction. position: for a language model, the position of the
        call's first token in its context, which decides the work of attention to a cache; None if
        unknown.
        """
        record = self.records[instruction]
        if record.kind == "delegate":
            found = self._call(record)
        elif record.kind == "kernel":
            found = self._kernel(record, position)
        else:
            return NO_WORK  # a move assigns a reference
        is_largest = not self.is_static(instruction) and bool(found.flops or found.traffic)
        return replace(found, is_bound=found.is_bound or is_largest)

    def is_static(self, instruction: int) -> bool:
        """Return True if each tensor of the instruction has the same shape in every run."""
        record = self.records[instruction]
        return all(
            value.dynamism is ShapeDynamism.STATIC for value in (*record.read, *record.written)
        )

    def operators(self, instruction: int) -> tuple[XnnNode, ...]:
        """XNNPACK's operators of a delegate's call; () for another backend, or unreadable data."""
        delegate = self.records[instruction].delegate
        if delegate is None:
            return ()
        if instruction not in self._operators:
            data = self._program.delegate_blob(self._method.name, delegate)
            self._operators[instruction] = known_operators(data)
        return self._operators[instruction]

    def weights(self, instruction: int) -> int | None:
        """Bytes of the weights in a delegate's data, by operator that reads them: as the file has
        them. The copy that XNNPACK packs when it loads has the same numbers, padded to its tiles.
        None if the backend's data does not say."""
        record = self.records[instruction]
        if operators := self.operators(instruction):
            return sum(
                constant.size
                for node in operators
                for tensor in node.inputs
                for constant in tensor.constants
            )
        if record.delegate is None or record.backend_id is None:
            return None
        data = self._program.delegate_blob(self._method.name, record.delegate)
        parts = delegate_parts(record.backend_id, data)
        named = {entry.key: entry.blob.size for entry in self._program.named_data}
        weights = [named.get(part.key or "", part.size) for part in parts if part.is_weight]
        return sum(weights) if parts and all(weights) else None  # 0: in a .ptd

    # -- kernels

    def _kernel(self, record: InstructionRecord, position: float | None) -> Work:
        name, own_name = operator_name(record.operator or "")
        values = self._method.values
        try:
            arguments = [("", self._argument(index)) for index in record.inputs]
            outputs = [self._operand(index) for index in unfolded(values, record.outputs)]
        except UnfitError:
            return unknown_work(name)
        is_cached = name.startswith("llama.") and position is not None and len(arguments) > 3
        if is_cached and isinstance(arguments[3][1], str):
            arguments[3] = "", position
        return work_of(Operation(name, own_name, tuple(arguments), tuple(outputs)))

    def _argument(self, index: int) -> Argument:
        value = self._method.values[index]
        if isinstance(value, TensorValue):
            return self._operand(index)
        if isinstance(value, ScalarValue):
            # A number that an instruction computes has a placeholder in the file.
            return f"value {index}" if index in self._computed else value.value
        if value.kind in (ValueKind.TENSOR_LIST, ValueKind.OPTIONAL_TENSOR_LIST):
            return tuple(self._operand(int(item)) if item >= 0 else None for item in value.items)
        return self._numbers(value)

    def _numbers(self, value: ListValue) -> list[int | str]:
        if value.kind not in BOXED_LISTS:
            return [int(item) for item in value.items]
        found: list[int | str] = []
        for index in map(int, value.items):
            item = self._method.values[index]
            known = isinstance(item, ScalarValue) and index not in self._computed
            number = item.value if known and isinstance(item, ScalarValue) else None
            found.append(number if isinstance(number, int) else f"value {index}")
        return found

    def _operand(self, index: int) -> Operand:
        if index not in self._operands:
            value = self._method.values[index]
            if not isinstance(value, TensorValue):
                raise UnfitError(f"value {index} is not a tensor")
            if value.dynamism is ShapeDynamism.DYNAMIC_UNBOUND:
                raise UnfitError(f"the size of value {index} is unknown")
            role = WEIGHT if value.is_constant else ACTIVATION
            role = STATE if index in self._state else role
            self._operands[index] = Operand(value.scalar_type.torch_name, value.sizes, role)
        return self._operands[index]

    @cached_property
    def _computed(self) -> frozenset[int]:
        """The values that instructions write."""
        return frozenset(index for record in self.records for index in record.outputs)

    @cached_property
    def _state(self) -> frozenset[int]:
        """The values that outlive a run."""
        listing = MethodInstructions(self._method.name, tuple(self.records))
        planned = planned_values(self._method, listing)
        return frozenset(value.value for value in planned if value.role == "state")

    # -- delegates

    def _call(self, record: InstructionRecord) -> Work:
        number, values = record.instruction_id, self._method.values
        try:
            read = [self._operand(index) for index in unfolded(values, record.inputs)]
            written = [self._operand(index) for index in unfolded(values, record.outputs)]
            border = Traffic.of(every_tensor(read), every_tensor(written))
        except UnfitError:
            return unknown_work(record.label)
        border += Traffic(weights=self.weights(number) or 0)
        operators = self.operators(number)
        if not operators:
            return Work(traffic=border, unknown=(record.label,))
        added = sum_of(map(operator_work, operators))
        inner = max(0, added.traffic.activations - border.activations - border.state)
        return replace(added, traffic=border, inner=inner)


def instruction_table(program: Program, method: str) -> Table:
    """A table with one row for each instruction of a method, with its FLOPs and weights."""
    listing = instructions(program, method)
    work = ProgramWork(program, method, listing.records)
    works = [work.of(record.instruction_id) for record in listing.records]
    table = listing.table()
    added: dict[Column, list[float | None]] = {
        Column("weight_bytes", Kind.BYTES, title="weights", priority=3): [
            None if one.known_bytes is None else one.traffic.weights for one in works
        ],
        Column("flops", Kind.COUNT, title="FLOPs", priority=2): [one.known_flops for one in works],
    }
    at = table.names.index("bytes_written") + 1
    columns = (*table.columns[:at], *added, *table.columns[at:])
    more = {column.name: values for column, values in added.items()}
    return replace(table, columns=columns, values={**table.values, **more})


# -- XNNPACK's operators: formulas of the same convention for its kinds and order of dimensions.


def operator_work(node: XnnNode, *, clamps: bool = True) -> Work:
    """The work of an operator of XNNPACK, with the clamp that was fused into it.

    clamps: False if the clamp is a separate operator.
    """
    name = f"xnnpack.{node.kind or 'operator'}"
    formula = _XNNPACK.get(node.kind or "")
    if formula is None or not node.outputs:
        return unknown_work(name)
    arguments: list[tuple[str, Argument]] = [("", _xnn_operand(one)) for one in node.inputs]
    arguments.append(("kernel_size", node.window))
    outputs = tuple(map(_xnn_operand, node.outputs))
    operation = Operation(name, name, tuple(arguments), outputs)
    try:
        flops = formula(operation)
        moved = Traffic.of(every_tensor(operation.inputs), every_tensor(outputs))
    except UnfitError:
        return unknown_work(name)
    if node.kind == "Convert":
        # As quantize_per_tensor and dequantize_per_tensor; with the extremes of what is quantized,
        # if its scale is chosen as the program runs.
        each_in = 2 if any(tensor.is_quantized for tensor in node.inputs) else 0
        if node.quantizes:
            each_in = 7 if any(tensor.is_dynamic for tensor in node.outputs) else 5
        flops = each_in * outputs[0].elements
    if clamps and node.clamped and node.kind != "Clamp":
        flops += clamp_work(node).flops
    return Work(flops, moved).in_dtype(_xnn_dtype(node))


def clamp_work(node: XnnNode) -> Work:
    """The work of an operator's clamp: one for each of its bounds, for each element."""
    bounds = node.bounds or (0.0, math.inf)
    count = max(1, sum(map(math.isfinite, bounds)))
    outputs = tuple(map(_xnn_operand, node.outputs[:1]))
    try:
        traffic = Traffic.of(every_tensor(outputs), every_tensor(outputs))
        flops = count * sum(one.elements for one in outputs)
        return Work(flops, traffic).in_dtype(_xnn_dtype(node))
    except UnfitError:
        return unknown_work("xnnpack.Clamp")


def _xnn_operand(tensor: XnnTensor) -> Operand:
    if not tensor.constants:
        return Operand(tensor.dtype, tensor.sizes)
    stored = sum(constant.size for constant in tensor.constants)
    return Operand(tensor.dtype, tensor.sizes, WEIGHT, stored)


def _xnn_dtype(node: XnnNode) -> str:
    """Return the type of numbers that an operator computes in: its activations' type. A conversion
    has floats on one side."""
    types = [one.dtype for one in (*node.inputs[:2], *node.outputs[:1])]
    if node.kind == "Convert":
        return next((dtype for dtype in types if dtype in FLOATS), types[0])
    return INT8_INT4 if types[:2] == ["int8", "int4"] else types[0]


def _xnn_filter(operation: Operation, dimension: int, around: Operand) -> float:
    weight = operation.tensor(1, "filter")
    return 2 * around.elements * weight.elements // max(1, weight.size(dimension))


def _xnn_pooling(each_out: int) -> Flops:
    def flops(operation: Operation) -> float:
        window = operation.argument(-1, "kernel_size")
        if not isinstance(window, int):
            raise UnfitError("a pooling without its window")
        return (window + each_out) * operation.output.elements

    return flops


def _names(kinds: str, flops: Flops) -> dict[str, Flops]:
    return dict.fromkeys(kinds.split(), flops)


# Operators of ATen that compute the same.
_AS_ATEN = {
    "Abs": "abs", "Ceiling": "ceil", "Cos": "cos", "Div": "div", "ELU": "elu", "Exp": "exp",
    "Floor": "floor", "Gelu": "gelu", "Hardswish": "hardswish", "LeakyReLU": "leaky_relu",
    "Log": "log", "Maximum": "maximum", "Minimum": "minimum", "Multiply": "mul", "Negate": "neg",
    "PReLU": "prelu", "ReciprocalSquareRoot": "rsqrt", "Sigmoid": "sigmoid", "Sin": "sin",
    "Softmax": "softmax", "Square": "square", "SquareRoot": "sqrt",
    "StaticResizeBilinear2D": "upsample_bilinear2d", "Tanh": "tanh",
}  # fmt: skip
_XNNPACK: Mapping[str, Flops] = {
    **_names("FullyConnected BatchMatrixMultiply", product(0, "input")),
    # filter: [out, height, width, in / groups], of a depthwise one [1, height, width, out].
    "Conv2d": lambda operation: _xnn_filter(operation, 0, operation.output),
    "DepthwiseConv2d": lambda operation: _xnn_filter(operation, -1, operation.output),
    # filter: [out, height, width, in / groups], for each element of the input.
    "ConvTranspose2d": lambda op: (
        2 * op.input.elements * op.tensor(1, "filter").elements // max(1, op.input.size(-1))
    ),
    "ScaledDotProductAttention": attention(),
    "AvgPooling2d": _xnn_pooling(1),
    "MaxPooling2d": _xnn_pooling(0),
    "GlobalAvgPooling2d": lambda op: op.input.elements + op.output.elements,
    **_names(
        "StaticTranspose StaticConstantPad StaticReshape StaticSlice Copy Concatenate2 "
        "Concatenate3 Concatenate4 Concatenate5 Convert",
        none,
    ),
    **_names("Add Subtract Clamp", each(1)),
    **{
        kind: flops
        for kind, name in _AS_ATEN.items()
        if (flops := RULES[f"aten.{name}"].flops) is not None
    },
}
