"""The instructions of a program: names, arguments, shapes and bytes, without a record.

An ETDump names events by the index of their instruction, so the .pte alone gives a dump the names
and sizes of operators.

A .pte has no schemas, so the results among the arguments are found by rules of ExecuTorch's
emitter, which hold for all operators:

- The last argument of a kernel call is its result. An out-variant with one result has the same
  value just before it, as its `out` argument: ``[self, other, alpha, out, out]``.
- With several results the last argument is a TensorList of them, and the results stand before it
  as out arguments: ``[..., out0, out1, [out0, out1]]``. An operator that fills a list has the list
  before it: ``[..., [a, b], [a, b]]``.
- An in-place operator (``add_``) returns its first argument, which it reads; ``copy_`` does not
  read it.
- ``et_copy_index`` has no result and fills its first argument.
- A delegate call has its inputs, then its outputs. The outputs are emitted together, so their
  indices are consecutive, and nothing has written them: they are not inputs, weights or state. A
  view that costs no instruction is not written, either. When it stands just before the outputs in
  both orders, it is recognized by memory that was written and not read since; if it was read, it is
  taken for an output. If a record gives the number of outputs, that decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import (
    Allocation,
    DelegateCall,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    ListValue,
    Method,
    MoveCall,
    Operator,
    ShapeDynamism,
    TensorValue,
    Value,
    ValueKind,
)
from etscope.model.graph import SourceLine
from etscope.model.table import Column, Kind, Table

__all__ = ["is_of_one_length"]

_Place = tuple[Allocation, int | None]  # where a tensor is, and its bytes

# The names of the events that the runtime logs for an instruction.
_NATIVE_CALL = "native_call_"
_KINDS: Mapping[type[Instruction], str] = {
    KernelCall: "kernel",
    DelegateCall: "delegate",
    MoveCall: "move",
    JumpFalseCall: "jump",
    FreeCall: "free",
}
_CALLS = {
    "kernel": "OPERATOR_CALL",
    "delegate": "DELEGATE_CALL",
    "move": "MOVE_CALL",
    "jump": "JF_CALL",
    "free": "FREE_CALL",
}
_TENSOR_LISTS = (ValueKind.TENSOR_LIST, ValueKind.OPTIONAL_TENSOR_LIST)

# Operators of the runtime itself (`register_prim_ops.cpp`): these log no `native_call_` event.
_PRIM_NAMESPACES = ("executorch_prim", "et_prim")
_PRIM_OPERATORS = frozenset({"aten::sym_size", "aten::sym_numel", "aten::_local_scalar_dense"})

# Runtime operators that read a tensor's shape or place, but not its elements.
SHAPE_OPERATORS = frozenset({"aten::sym_size", "aten::sym_numel", "executorch_prim::et_view"})


# What registers the kernels of a namespace in an application: a target of ExecuTorch's package
# (`executorch-config.cmake`), else the folder of its sources.
_REGISTERED_BY = {
    "aten": "executorch::kernels_optimized",
    "dim_order_ops": "executorch::kernels_optimized",
    "quantized_decomposed": "executorch::kernels_quantized",
    "torchao": "executorch::kernels_torchao",
    "executorch_prim": "the runtime",
    "et_prim": "the runtime",
    "llama": "extension/llm/custom_ops",
    "cortex_m": "backends/cortex_m",
    "cadence": "backends/cadence",
}


@dataclass(frozen=True, slots=True)
class InstructionRecord:
    """One instruction of a method.

    kind: "kernel", "delegate", "move", "jump" or "free". event: the most specific event that the
    runtime logs for it: "native_call_add.out", "DELEGATE_CALL". label: a short name: "add",
    "XnnpackBackend". inputs, outputs: indices of the method's values. read, written: the tensors
    among them, lists unfolded.

    bytes_read, bytes_written: sizes of these tensors, each counted once: upper bounds of the
    traffic, not measurements. Bounds for dynamic shapes, None without a bound.
    """

    instruction_id: int
    kind: str
    event: str
    label: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    read: tuple[TensorValue, ...] = ()
    written: tuple[TensorValue, ...] = ()
    bytes_read: int | None = 0
    bytes_written: int | None = 0
    operator: str | None = None
    delegate: int | None = None
    backend_id: str | None = None
    destination: int | None = None
    stack: tuple[SourceLine, ...] = ()

    @property
    def writes_back(self) -> bool:
        """True for the `copy_` that writes a buffer or an input back at the end of a
        method."""
        return self.operator == "aten::copy_"

    @property
    def call(self) -> str:
        """The event that spans the instruction: "OPERATOR_CALL", "DELEGATE_CALL", ..."""
        return _CALLS[self.kind]


@dataclass(frozen=True, slots=True)
class MethodInstructions:
    """The instructions of a method, in order."""

    method: str
    records: tuple[InstructionRecord, ...]

    def table(self) -> Table:
        records = self.records
        return Table.of(
            {
                Column("instruction", Kind.INT): [record.instruction_id for record in records],
                Column("kind", priority=3): [record.kind for record in records],
                Column("op"): [record.label for record in records],
                Column("operator", priority=4): [record.operator for record in records],
                Column("inputs", Kind.LIST, priority=2): [
                    [str(tensor) for tensor in record.read] for record in records
                ],
                Column("outputs", Kind.LIST, priority=1): [
                    [str(tensor) for tensor in record.written] for record in records
                ],
                Column("bytes_read", Kind.BYTES, title="read", priority=2): [
                    record.bytes_read for record in records
                ],
                Column("bytes_written", Kind.BYTES, title="written", priority=2): [
                    record.bytes_written for record in records
                ],
                Column("source", priority=1): [
                    str(record.stack[-1]) if record.stack else None for record in records
                ],
            },
            title=f"Instructions of {self.method}",
        )


def instructions(
    program: Program, method: str, *, delegate_outputs: Mapping[int, int] | None = None
) -> MethodInstructions:
    """List the instructions of a method.

    delegate_outputs: by instruction, the number of outputs at the end of a delegate call's
    arguments, if known; an ETRecord has it as `instruction_id_to_num_outs`.
    """
    found = program.method(method)
    known = delegate_outputs or {}
    traces = program.stack_traces(method)
    shared: dict[int, tuple[SourceLine, ...]] = {}  # instructions may share a trace
    for trace in traces:
        if id(trace) not in shared:
            shared[id(trace)] = tuple(
                SourceLine(frame.filename, frame.lineno, frame.name, frame.context)
                for frame in trace
            )
    flow = _Flow(found)
    records = []
    for index, instruction in enumerate(found.instructions):
        inputs, outputs = flow.split(instruction, known.get(index))
        stack = shared[id(traces[index])] if index < len(traces) else ()
        records.append(_record(found, index, instruction, inputs, outputs, stack))
        flow.run(inputs, outputs)
    return MethodInstructions(method, tuple(records))


def is_prim(operator: Operator) -> bool:
    """True for operators built into the runtime, which log no `native_call_` event."""
    return operator.name.partition("::")[0] in _PRIM_NAMESPACES or operator.name in _PRIM_OPERATORS


def registered_by(operator: str) -> str | None:
    """Return the library that an application needs for an operator ("aten::add.out"); None if it is
    not one of ExecuTorch's."""
    return _REGISTERED_BY.get(operator.partition("::")[0])


def unfolded(values: Sequence[Value], indices: Iterable[int]) -> tuple[int, ...]:
    """The indices of the tensors among `indices` and in their lists, each once, in order."""
    found: dict[int, None] = {}
    for index in indices:
        value = values[index]
        if isinstance(value, TensorValue):
            found[index] = None
        elif isinstance(value, ListValue) and value.kind in _TENSOR_LISTS:
            for item in value.items:
                if item >= 0 and isinstance(values[int(item)], TensorValue):
                    found[int(item)] = None
    return tuple(found)


class _Flow:
    """Follows the values that hold data along the instructions, to separate inputs from outputs."""

    def __init__(self, method: Method) -> None:
        self._values = method.values
        self._operators = method.operators
        self._written = {
            index
            for index, value in enumerate(method.values)
            if isinstance(value, TensorValue) and (value.has_data or value.is_constant)
        }
        self._written.update(method.inputs)
        # Memory that was written and not read since, by place and size.
        self._unread: set[_Place | None] = set()

    def split(
        self, instruction: Instruction, delegate_outputs: int | None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Inputs and outputs of the next instruction."""
        match instruction:
            case KernelCall(operator, args):
                return _split_kernel(self._operators[operator], args, self._values)
            case DelegateCall(_, args):
                count = self._count_outputs(args) if delegate_outputs is None else delegate_outputs
                first = max(len(args) - count, 0)
                return args[:first], args[first:]
            case MoveCall(source, destination):
                return (source,), (destination,)
            case JumpFalseCall(condition, _):
                return (condition,), ()
            case FreeCall(value):
                return (value,), ()

    def run(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        """Record what the instruction read and wrote."""
        for index in unfolded(self._values, inputs):
            self._unread.discard(place(self._values[index]))
        self._written.update(outputs)
        for index in unfolded(self._values, outputs):
            self._written.add(index)
            self._unread.add(place(self._values[index]))

    def _count_outputs(self, args: tuple[int, ...]) -> int:
        count = 0
        for index in reversed(args):
            emitted_together = count == 0 or index + 1 == args[-count]
            if not emitted_together or self._holds_data(index):
                break
            count += 1
        return count

    def _holds_data(self, index: int) -> bool:
        where = place(self._values[index])
        return index in self._written or (where is not None and where in self._unread)


def place(value: Value) -> _Place | None:
    """The planned memory of a tensor, None for values without."""
    if not isinstance(value, TensorValue) or value.allocation is None:
        return None
    return value.allocation, value.nbytes


def _split_kernel(
    operator: Operator, args: tuple[int, ...], values: Sequence[Value]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Inputs and outputs of a kernel call, by the rules at the top of this module."""
    if operator.name == "executorch_prim::et_copy_index":
        return args[1:], args[:1]
    if operator.name == "aten::copy_":
        return args[1:-1], args[-1:]
    if len(args) < 2 or operator.name.endswith("_"):
        return args[:-1], args[-1:]
    result = values[args[-1]]
    if isinstance(result, ListValue) and result.kind in _TENSOR_LISTS:
        first = len(args) - 1 - len(result.items)
        if first >= 0 and args[first:-1] == result.items:
            return args[:first], args[first:-1]
        if values[args[-2]] == result:
            return args[:-2], args[-2:-1]
    if args[-2] == args[-1]:
        return args[:-2], args[-2:-1]
    return args[:-1], args[-1:]


def _record(
    method: Method,
    index: int,
    instruction: Instruction,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    stack: tuple[SourceLine, ...],
) -> InstructionRecord:
    read = tuple(_tensors(method.values, inputs))
    written = tuple(_tensors(method.values, outputs))
    delegate = instruction.delegate if isinstance(instruction, DelegateCall) else None
    kind, operator, touches = _KINDS[type(instruction)], None, delegate is not None
    label, event = kind, _CALLS[kind]
    match instruction:
        case KernelCall(number):
            operator = method.operators[number]
            touches = operator.name not in SHAPE_OPERATORS
            namespace, _, name = operator.name.rpartition("::")
            label = name if namespace in ("aten", "") else f"{namespace}.{name}"
            if not is_prim(operator):
                event = _NATIVE_CALL + operator.full_name.rpartition("::")[2]
        case DelegateCall(number):
            label = method.delegates[number].backend_id
        case JumpFalseCall(_, destination):
            label = f"jump to {destination} if false"
    return InstructionRecord(
        instruction_id=index,
        kind=kind,
        event=event,
        label=label,
        inputs=inputs,
        outputs=outputs,
        read=read,
        written=written,
        bytes_read=_total(read) if touches else 0,
        bytes_written=_total(written) if touches else 0,
        operator=None if operator is None else operator.full_name,
        delegate=delegate,
        backend_id=None if delegate is None else method.delegates[delegate].backend_id,
        destination=instruction.destination if isinstance(instruction, JumpFalseCall) else None,
        stack=stack,
    )


def _tensors(values: Sequence[Value], indices: Iterable[int]) -> Iterable[TensorValue]:
    for index in unfolded(values, indices):
        value = values[index]
        if isinstance(value, TensorValue):
            yield value


def _total(tensors: Iterable[TensorValue]) -> int | None:
    total = 0
    for tensor in tensors:
        if tensor.nbytes is None:
            return None
        total += tensor.nbytes
    return total


def quantizes_dynamically(program: Program, method: str) -> bool:
    """Return True if scales of quantized values are chosen while the method runs.

    On portable kernels an operator chooses them; inside XNNPACK the types of values show it.
    Delegates of other backends are not checked.
    """
    from etscope.formats.program.xnnpack import known_operators

    found = program.method(method)
    if any("choose_qparams" in operator.name for operator in found.operators):
        return True
    return any(
        value.is_dynamic
        for delegate in found.delegates
        for node in known_operators(program.blob(delegate.blob))
        for value in node.outputs
    )


def is_of_one_length(method: Method) -> bool:
    """Return True if every run of a method has inputs of the same shapes."""
    tensors = (method.values[index] for index in method.inputs)
    return all(
        value.dynamism is ShapeDynamism.STATIC
        for value in tensors
        if isinstance(value, TensorValue)
    )
