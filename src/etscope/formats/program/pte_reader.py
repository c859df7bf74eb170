"""Tables of a .pte file into the values of `pte_schema`.

The numbers of slots and union members are those of ExecuTorch's `schema/program.fbs` (1.5); the
schema grows only at the end of tables, so older files lack the later slots and newer ones have
slots that are not looked at. Every index is checked here, once, so that no later code has to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from etscope.errors import FormatError
from etscope.formats.bytes.flatbuffer import (
    INT8,
    INT32,
    INT64,
    UINT32,
    UINT64,
    FlatBuffer,
    Span,
    Table,
)
from etscope.formats.program.dense_tensor import checked_dim_order
from etscope.formats.program.pte_schema import (
    BOXED_LISTS,
    Allocation,
    Chain,
    CompileSpec,
    Delegate,
    DelegateCall,
    Frame,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    ListValue,
    Method,
    MoveCall,
    Operator,
    ScalarValue,
    ShapeDynamism,
    TensorValue,
    Value,
    ValueKind,
)
from etscope.formats.program.scalar_type import scalar_type

_DEVICES = ("cpu", "cuda")
_MAX_RANK = 32  # numpy's; the runtime has 16
_SEGMENT = 1  # DataLocation
_EXTERNAL = 1  # TensorDataLocation


def read_method(table: Table, inline: tuple[Span, ...], segments: tuple[Span, ...]) -> Method:
    """The method of an `ExecutionPlan`. `inline` and `segments` are where delegates' data may be,
    as spans of the file."""
    values = tuple(_read_value(value) for value in table.tables(2))
    for value in values:
        if isinstance(value, ListValue) and value.kind in BOXED_LISTS:
            lowest = -1 if value.kind is ValueKind.OPTIONAL_TENSOR_LIST else 0
            _check(value.items, len(values), "a list names value", table, lowest=lowest)
    operators = tuple(Operator(one.string(0) or "", one.string(1) or "") for one in table.tables(6))
    delegates = tuple(_read_delegate(one, inline, segments) for one in table.tables(7))
    container = table.table(1)
    return Method(
        name=table.string(0) or "",
        values=values,
        inputs=_indices(table, 3, len(values)),
        outputs=_indices(table, 4, len(values)),
        chains=tuple(
            _read_chain(chain, values, len(operators), len(delegates)) for chain in table.tables(5)
        ),
        operators=operators,
        delegates=delegates,
        buffer_sizes=table.numbers(8, "q"),
        buffer_devices=tuple(
            (one.integer(0, INT32), _device(one, 1, 2)) for one in table.tables(9)
        ),
        input_tree=(container.string(0) if container else None) or "",
        output_tree=(container.string(1) if container else None) or "",
    )


def read_traces(buffer: FlatBuffer, positions: Sequence[int]) -> tuple[tuple[Frame, ...], ...]:
    """The stack traces in the `FrameList`s at `positions`, outermost call first."""
    traces = {position: _read_frames(Table(buffer, position)) for position in set(positions)}
    return tuple(traces[position] for position in positions)


def _read_frames(table: Table) -> tuple[Frame, ...]:
    return tuple(
        Frame(
            filename=frame.string(0) or "",
            lineno=frame.integer(1, INT32),
            name=frame.string(2) or "",
            context=frame.string(3) or "",
        )
        for frame in table.tables(0)
    )


def _read_value(table: Table) -> Value:
    number, member = table.union(0)
    if member is None:
        if number > 1:
            raise FormatError("a value has a kind and no content", offset=table.position)
        return _NULL
    try:
        read = _VALUES[number]
    except KeyError:
        raise FormatError(f"unknown kind of value {number}", offset=table.position) from None
    return read(member)


def _read_tensor(table: Table) -> TensorValue:
    sizes: tuple[int, ...] = table.numbers(2, "i")
    if len(sizes) > _MAX_RANK:
        raise FormatError(f"a tensor of {len(sizes):,} dimensions", offset=table.position)
    dynamism = _dynamism(table)
    if sizes and min(sizes) < 0 and dynamism is not ShapeDynamism.DYNAMIC_UNBOUND:
        raise FormatError(f"a tensor of size {list(sizes)}", offset=table.position)
    dim_order = checked_dim_order(table.numbers(3, "B"), len(sizes), offset=table.position)
    place = table.table(6)
    extra = table.table(9)
    return TensorValue(
        scalar_type=scalar_type(table.integer(0, INT8), offset=table.position),
        sizes=sizes,
        dim_order=dim_order,
        dynamism=dynamism,
        data_index=table.integer(5, UINT32),
        allocation=_read_allocation(place) if place else None,
        name=extra.string(1) if extra else None,
        external=extra is not None and extra.integer(2, INT8) == _EXTERNAL,
        mutable_segment=extra.integer(0, UINT64) if extra else 0,
        device=_device(extra, 3, 4) if extra else "cpu",
        storage_offset=table.integer(1, INT32),
        requires_grad=table.flag(4),
        layout=table.integer(7, INT8),
    )


def _dynamism(table: Table) -> ShapeDynamism:
    number = table.integer(8, INT8)
    try:
        return ShapeDynamism(number)
    except ValueError:
        raise FormatError(f"unknown shape dynamism {number}", offset=table.position) from None


def _read_allocation(table: Table) -> Allocation:
    low, high = table.integer(1, UINT32), table.integer(2, UINT32)
    return Allocation(table.integer(0, UINT32), high << 32 | low)


def _device(table: Table, kind: int, index: int) -> str:
    """ "cpu", or a name with an index ("cuda:1"); a type that we do not know is "device7:0"."""
    number = table.integer(kind, INT8)
    if number == 0:
        return "cpu"
    name = _DEVICES[number] if 0 < number < len(_DEVICES) else f"device{number}"
    return f"{name}:{table.integer(index, INT8)}"


def _list_of(kind: ValueKind, code: str) -> Callable[[Table], ListValue]:
    return lambda table: ListValue(kind, table.numbers(0, code))


_NULL = ScalarValue(ValueKind.NULL, None)

# Members of the union KernelTypes, by number.
_VALUES: dict[int, Callable[[Table], Value]] = {
    1: lambda table: _NULL,
    2: lambda table: ScalarValue(ValueKind.INT, table.integer(0, INT64)),
    3: lambda table: ScalarValue(ValueKind.BOOL, table.flag(0)),
    4: lambda table: ScalarValue(ValueKind.DOUBLE, table.double(0)),
    5: _read_tensor,
    6: lambda table: ScalarValue(ValueKind.STRING, table.string(0) or ""),
    7: _list_of(ValueKind.INT_LIST, "q"),
    8: _list_of(ValueKind.DOUBLE_LIST, "d"),
    9: _list_of(ValueKind.BOOL_LIST, "?"),
    10: _list_of(ValueKind.TENSOR_LIST, "i"),
    11: _list_of(ValueKind.OPTIONAL_TENSOR_LIST, "i"),
}


def _read_delegate(table: Table, inline: tuple[Span, ...], segments: tuple[Span, ...]) -> Delegate:
    place = table.table(1)
    if place is None:
        raise FormatError("a delegate without data", offset=table.position)
    blobs = segments if place.integer(0, INT8) == _SEGMENT else inline
    index = place.integer(1, UINT32)
    _check((index,), len(blobs), "a delegate names blob", place)
    return Delegate(
        backend_id=table.string(0) or "",
        blob=blobs[index],
        compile_specs=tuple(
            CompileSpec(spec.string(0) or "", bytes(spec.numbers(1, "B")))
            for spec in table.tables(2)
        ),
    )


def _read_chain(table: Table, values: Sequence[Value], operators: int, delegates: int) -> Chain:
    tables = table.tables(2)
    instructions = tuple(_read_instruction(one, len(values)) for one in tables)
    for one, instruction in zip(tables, instructions, strict=True):
        match instruction:
            case KernelCall(operator):
                _check((operator,), operators, "an instruction names operator", one)
            case DelegateCall(delegate):
                _check((delegate,), delegates, "an instruction names delegate", one)
            case JumpFalseCall(_, destination):
                # A jump may go just behind the last instruction.
                _check((destination,), len(tables) + 1, "a jump goes to instruction", one)
        _spend_on_lists(instruction, values, one)
    return Chain(
        inputs=_indices(table, 0, len(values)),
        outputs=_indices(table, 1, len(values)),
        instructions=instructions,
        traces_at=table.offsets(3),
    )


def _spend_on_lists(instruction: Instruction, values: Sequence[Value], table: Table) -> None:
    """Count the items of the lists that are arguments, so that who unfolds them all does work in
    proportion to the file: thousands of calls could name one list of thousands."""
    if isinstance(instruction, (KernelCall, DelegateCall)):
        for index in instruction.args:
            value = values[index]
            if isinstance(value, ListValue):
                table.spend(len(value.items))


def _read_instruction(table: Table, values: int) -> Instruction:
    number, member = table.union(0)
    if member is None or number not in _INSTRUCTIONS:
        raise FormatError(f"unknown kind of instruction {number}", offset=table.position)
    return _INSTRUCTIONS[number](member, values)


def _read_kernel_call(table: Table, values: int) -> Instruction:
    return KernelCall(table.integer(0, INT32), _indices(table, 1, values))


def _read_delegate_call(table: Table, values: int) -> Instruction:
    return DelegateCall(table.integer(0, INT32), _indices(table, 1, values))


def _read_move(table: Table, values: int) -> Instruction:
    return MoveCall(_index(table, 0, values), _index(table, 1, values))


def _read_jump(table: Table, values: int) -> Instruction:
    return JumpFalseCall(_index(table, 0, values), table.integer(1, INT32))


def _read_free(table: Table, values: int) -> Instruction:
    return FreeCall(_index(table, 0, values))


# Members of the union InstructionArguments, by number.
_INSTRUCTIONS: dict[int, Callable[[Table, int], Instruction]] = {
    1: _read_kernel_call,
    2: _read_delegate_call,
    3: _read_move,
    4: _read_jump,
    5: _read_free,
}


def _index(table: Table, slot: int, values: int) -> int:
    index = table.integer(slot, INT32)
    _check((index,), values, "an instruction names value", table)
    return index


def _indices(table: Table, slot: int, values: int) -> tuple[int, ...]:
    indices: tuple[int, ...] = table.numbers(slot, "i")
    _check(indices, values, "an index names value", table)
    return indices


def _check(
    indices: Iterable[int | float], count: int, what: str, table: Table, *, lowest: int = 0
) -> None:
    for index in indices:
        if not lowest <= index < count:
            raise FormatError(f"{what} {index}, and there are {count:,}", offset=table.position)
