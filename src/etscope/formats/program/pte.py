"""ExecuTorch programs (.pte): methods, instructions, memory plan, weights and delegates' data.

A file is a FlatBuffer with the identifier "ET12". When it has segments (weights, delegates' data),
an extended header stands behind the identifier and the segments behind the tables; older files
have all of it inside the tables. The format is that of ExecuTorch's `schema/program.fbs` and
`schema/extended_header.cpp`, versions 1.0 to 1.5.

The file is mapped, and weights, delegates' data and stack traces are read when asked for, so
opening takes time by the number of instructions and values and not by the size of the weights.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, MissingDataError, UsageError, VersionError, reading
from etscope.formats.bytes.flatbuffer import (
    INT8,
    INT32,
    INT64,
    UINT32,
    UINT64,
    FlatBuffer,
    FlatTable,
    Span,
)
from etscope.formats.bytes.source import BytesLike, PathLike, Source, open_source
from etscope.formats.identify import describe
from etscope.formats.program.pte_schema import (
    BOXED_LISTS,
    Allocation,
    Chain,
    CompileSpec,
    Delegate,
    DelegateCall,
    ExtendedHeader,
    Frame,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    ListValue,
    Method,
    MoveCall,
    NamedData,
    Operator,
    ScalarValue,
    ShapeDynamism,
    TensorValue,
    Value,
    ValueKind,
)
from etscope.formats.program.scalar_type import checked_dim_order, dense_view, scalar_type

# Tables of a .pte file into the values of `pte_schema`.
#
# The numbers of slots and union members are those of ExecuTorch's `schema/program.fbs` (1.5); the
# schema grows only at the end of tables, so older files lack the later slots and newer ones have
# slots that are not looked at. Every index is checked here, once, so that no later code has to.


_DEVICES = ("cpu", "cuda")
_MAX_RANK = 32  # numpy's; the runtime has 16
_SEGMENT = 1  # DataLocation
_EXTERNAL = 1  # TensorDataLocation


def read_method(table: FlatTable, inline: tuple[Span, ...], segments: tuple[Span, ...]) -> Method:
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
    traces = {position: _read_frames(FlatTable(buffer, position)) for position in set(positions)}
    return tuple(traces[position] for position in positions)


def _read_frames(table: FlatTable) -> tuple[Frame, ...]:
    return tuple(
        Frame(
            filename=frame.string(0) or "",
            lineno=frame.integer(1, INT32),
            name=frame.string(2) or "",
            context=frame.string(3) or "",
        )
        for frame in table.tables(0)
    )


def _read_value(table: FlatTable) -> Value:
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


def _read_tensor(table: FlatTable) -> TensorValue:
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


def _dynamism(table: FlatTable) -> ShapeDynamism:
    number = table.integer(8, INT8)
    try:
        return ShapeDynamism(number)
    except ValueError:
        raise FormatError(f"unknown shape dynamism {number}", offset=table.position) from None


def _read_allocation(table: FlatTable) -> Allocation:
    low, high = table.integer(1, UINT32), table.integer(2, UINT32)
    return Allocation(table.integer(0, UINT32), high << 32 | low)


def _device(table: FlatTable, kind: int, index: int) -> str:
    """ "cpu", or a name with an index ("cuda:1"); a type that we do not know is "device7:0"."""
    number = table.integer(kind, INT8)
    if number == 0:
        return "cpu"
    name = _DEVICES[number] if 0 < number < len(_DEVICES) else f"device{number}"
    return f"{name}:{table.integer(index, INT8)}"


def _list_of(kind: ValueKind, code: str) -> Callable[[FlatTable], ListValue]:
    return lambda table: ListValue(kind, table.numbers(0, code))


_NULL = ScalarValue(ValueKind.NULL, None)

# Members of the union KernelTypes, by number.
_VALUES: dict[int, Callable[[FlatTable], Value]] = {
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


def _read_delegate(
    table: FlatTable, inline: tuple[Span, ...], segments: tuple[Span, ...]
) -> Delegate:
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


def _read_chain(table: FlatTable, values: Sequence[Value], operators: int, delegates: int) -> Chain:
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


def _spend_on_lists(instruction: Instruction, values: Sequence[Value], table: FlatTable) -> None:
    """Count the items of the lists that are arguments, so that who unfolds them all does work in
    proportion to the file: thousands of calls could name one list of thousands."""
    if isinstance(instruction, (KernelCall, DelegateCall)):
        for index in instruction.args:
            value = values[index]
            if isinstance(value, ListValue):
                table.spend(len(value.items))


def _read_instruction(table: FlatTable, values: int) -> Instruction:
    number, member = table.union(0)
    if member is None or number not in _INSTRUCTIONS:
        raise FormatError(f"unknown kind of instruction {number}", offset=table.position)
    return _INSTRUCTIONS[number](member, values)


def _read_kernel_call(table: FlatTable, values: int) -> Instruction:
    return KernelCall(table.integer(0, INT32), _indices(table, 1, values))


def _read_delegate_call(table: FlatTable, values: int) -> Instruction:
    return DelegateCall(table.integer(0, INT32), _indices(table, 1, values))


def _read_move(table: FlatTable, values: int) -> Instruction:
    return MoveCall(_index(table, 0, values), _index(table, 1, values))


def _read_jump(table: FlatTable, values: int) -> Instruction:
    return JumpFalseCall(_index(table, 0, values), table.integer(1, INT32))


def _read_free(table: FlatTable, values: int) -> Instruction:
    return FreeCall(_index(table, 0, values))


# Members of the union InstructionArguments, by number.
_INSTRUCTIONS: dict[int, Callable[[FlatTable, int], Instruction]] = {
    1: _read_kernel_call,
    2: _read_delegate_call,
    3: _read_move,
    4: _read_jump,
    5: _read_free,
}


def _index(table: FlatTable, slot: int, values: int) -> int:
    index = table.integer(slot, INT32)
    _check((index,), values, "an instruction names value", table)
    return index


def _indices(table: FlatTable, slot: int, values: int) -> tuple[int, ...]:
    indices: tuple[int, ...] = table.numbers(slot, "i")
    _check(indices, values, "an index names value", table)
    return indices


def _check(
    indices: Iterable[int | float], count: int, what: str, table: FlatTable, *, lowest: int = 0
) -> None:
    for index in indices:
        if not lowest <= index < count:
            raise FormatError(f"{what} {index}, and there are {count:,}", offset=table.position)


KIND = "ExecuTorch program"
IDENTIFIER = b"ET12"

_HEADER = struct.Struct("<4sIQQQ")  # magic, length, program size, segment base, segment data size
_HEADER_AT = 8
_HEADER_MAGIC = b"eh00"
_HEADER_WITHOUT_DATA_SIZE = 24

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Subsegments:
    """Tensors inside of a segment: `offsets[i]` is where tensor i begins, from the first byte of
    `blob`. Number 0 is a placeholder."""

    blob: Span
    offsets: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """An ExecuTorch program.

    `segments` are the pieces of the file that stand behind the tables, as spans of the file.
    Constant tensors are in `constants`, or in `inline_constants` in older files. `header` is None
    for a file without segments.
    """

    version: int
    methods: tuple[Method, ...]
    segments: tuple[Span, ...]
    named_data: tuple[NamedData, ...]
    header: ExtendedHeader | None
    constants: Subsegments | None
    mutable_data: tuple[Subsegments, ...]
    inline_constants: tuple[Span, ...]
    source: Source

    def method(self, name: str) -> Method:
        """The method of that name, or `MissingDataError`."""
        for method in self.methods:
            if method.name == name:
                return method
        raise MissingDataError(
            f"{self.source.name} has no method {name!r}",
            hint="methods are: " + ", ".join(method.name for method in self.methods),
        )

    def constant_span(self, tensor: TensorValue) -> Span:
        """Where the content or initial state of `tensor` is in the file.

        Raises `MissingDataError` when it is not in this file: an activation, an input, or a weight
        that was stored beside the program. Raises `FormatError` when it lies outside of its place.
        """
        if tensor.external:
            raise MissingDataError(
                f"the data of {tensor.name!r} is not in {self.source.name} but in a .ptd file"
            )
        if not tensor.has_data:
            raise MissingDataError("this tensor gets its data when the program runs")
        size = tensor.nbytes or 0
        with reading(KIND, self.source.path):
            place, within = self._place(tensor)
            if within + size > place.size:
                raise FormatError(
                    f"tensor {tensor} needs {size:,} bytes where its place of {place.size:,} bytes "
                    f"has {max(place.size - within, 0):,}",
                    offset=place.offset,
                )
        return Span(place.offset + within, size)

    def constant(self, method: str, value: int) -> npt.NDArray[Any]:
        """The content (or, for a mutable tensor, the initial state) of a tensor of `method`.

        A read-only view of the file in the tensor's shape and order of dimensions. Types without
        a numpy type are those of ml_dtypes; packed types (quint4x2) are their bytes, flat. Raises
        as `constant_span` does, and `UsageError` when `value` is not a tensor.
        """
        values = self.method(method).values
        tensor = values[value] if 0 <= value < len(values) else None
        if not isinstance(tensor, TensorValue):
            raise UsageError(f"value {value} of method {method!r} is not a tensor")
        data = self.blob(self.constant_span(tensor))
        with reading(KIND, self.source.path):
            return dense_view(data, tensor.scalar_type, tensor.sizes, tensor.dim_order)

    def delegate_blob(self, method: str, delegate: int) -> memoryview:
        """The data that the backend of delegate number `delegate` of `method` is given."""
        delegates = self.method(method).delegates
        if not 0 <= delegate < len(delegates):
            raise UsageError(f"method {method!r} has {len(delegates)} delegates, not {delegate}")
        return self.blob(delegates[delegate].blob)

    def named_blob(self, key: str) -> memoryview:
        """The data stored under `key`, or `MissingDataError`."""
        for entry in self.named_data:
            if entry.key == key:
                return self.blob(entry.blob)
        raise MissingDataError(f"{self.source.name} has no data named {key!r}")

    def stack_traces(self, method: str) -> tuple[tuple[Frame, ...], ...]:
        """The stack traces stored with a method's instructions, each with the outermost call
        first; empty without.

        Programs have them when they were emitted with `emit_stacktrace=True`.
        """
        chains = self.method(method).chains
        with reading(KIND, self.source.path):
            return read_traces(
                FlatBuffer(self.source.buffer), chains[0].traces_at if chains else ()
            )

    def blob(self, span: Span) -> memoryview:
        """The bytes of a span of this file, without a copy."""
        return self.source.buffer[span.offset : span.offset + span.size]

    def _place(self, tensor: TensorValue) -> tuple[Span, int]:
        """The piece of the file that holds the tensor, and how far into it the tensor begins."""
        if not tensor.is_constant:
            table = _entry(self.mutable_data, tensor.mutable_segment, "mutable data segment")
        elif self.constants is not None:
            table = self.constants
        else:
            return _entry(self.inline_constants, tensor.data_index, "constant"), 0
        if tensor.data_index >= len(table.offsets):
            raise FormatError(
                f"there is no tensor data {tensor.data_index}: there are {len(table.offsets):,}",
                offset=table.blob.offset,
            )
        return table.blob, int(table.offsets[tensor.data_index])


def read_pte(data_or_path: BytesLike | PathLike) -> Program:
    """Open a program: a path, or the bytes of one.

    Raises `FormatError` (`VersionError` for another version of the schema) for what is not a
    program or is damaged, `MissingFileError` for a path that is not there.
    """
    return read_program(open_source(data_or_path, KIND))


def read_program(source: Source, *, member: str | None = None) -> Program:
    """The program in `source`, all of it; `member` names the part of the file that it is."""
    with reading(KIND, source.path, member=member):
        header, size = _read_header(source)
        buffer = FlatBuffer(source.buffer[:size])
        return _read_root(buffer.root(), header, source)


def program_fingerprint(data_or_path: BytesLike | PathLike) -> str:
    """The SHA-256 of all bytes of a program, in hex.

    Equal for two files if and only if they are the same, weights included. Programs hold no
    identifier of their own, so a record that carries this can be matched with its program. Also of
    the program inside of a bundle: `program_fingerprint(bundle.program_bytes)`.
    """
    return hashlib.sha256(open_source(data_or_path, KIND).buffer).hexdigest()


def _read_header(source: Source) -> tuple[ExtendedHeader | None, int]:
    """The extended header, if there is one, and the size of what the tables may use."""
    buffer = source.buffer
    magic = bytes(buffer[4:8])
    if magic != IDENTIFIER:
        if magic[:2] == b"ET" and magic[2:].isalnum():
            raise VersionError(
                f"a program of the schema {magic.decode()}; etscope reads {IDENTIFIER.decode()}",
                offset=4,
            )
        raise FormatError(f"not an {KIND} (.pte): {describe(buffer)}")
    if bytes(buffer[_HEADER_AT : _HEADER_AT + 4]) != _HEADER_MAGIC:
        return None, source.size
    padded = bytes(buffer[_HEADER_AT : _HEADER_AT + _HEADER.size]).ljust(_HEADER.size, b"\0")
    _, length, program_size, segment_base, data_size = _HEADER.unpack(padded)
    if length < _HEADER_WITHOUT_DATA_SIZE:
        raise FormatError(f"an extended header of {length} bytes is too short", offset=_HEADER_AT)
    if length < _HEADER.size:
        data_size = 0
    for end, what in ((program_size, "its tables"), (segment_base + data_size, "its segments")):
        if end > source.size:
            raise FormatError(
                f"{what} end at byte {end:,} and the file has {source.size:,} bytes",
                offset=_HEADER_AT,
                hint="the file is cut off; copy or export it again",
            )
    return ExtendedHeader(length, program_size, segment_base, data_size), program_size


def _read_root(root: FlatTable, header: ExtendedHeader | None, source: Source) -> Program:
    segments = _read_segments(root, header, source.size)
    inline_delegates = tuple(entry.blob(0) for entry in root.tables(3))
    constants = root.table(5)
    # Files of before 1.0 may have the table and keep the data inline.
    segmented = constants is not None and len(constants.array(1, "u8")) > 0
    methods = tuple(read_method(plan, inline_delegates, segments) for plan in root.tables(1))
    if not methods:
        raise FormatError("a program without methods", offset=root.position)
    return Program(
        version=root.integer(0, UINT32),
        methods=methods,
        segments=segments,
        named_data=tuple(
            NamedData(
                key=entry.string(0) or "",
                blob=_entry(segments, entry.integer(1, UINT32), "segment"),
            )
            for entry in root.tables(7)
        ),
        header=header,
        constants=_read_subsegments(constants, segments) if constants and segmented else None,
        mutable_data=tuple(_read_subsegments(one, segments) for one in root.tables(6)),
        inline_constants=tuple(entry.blob(0) for entry in root.tables(2)),
        source=source,
    )


def _read_segments(
    root: FlatTable, header: ExtendedHeader | None, file_size: int
) -> tuple[Span, ...]:
    base = header.segment_base_offset if header else 0
    segments = []
    for number, table in enumerate(root.tables(4)):
        span = Span(base + table.integer(0, UINT64), table.integer(1, UINT64))
        # Writers leave the header out when all segments are empty.
        if header is None and span.size:
            raise FormatError(
                f"segment {number} has data, and no extended header says where",
                offset=table.position,
            )
        if span.offset + span.size > file_size:
            raise FormatError(
                f"segment {number} is bytes {span.offset:,} to {span.offset + span.size:,} of a "
                f"file of {file_size:,}",
                offset=table.position,
                hint="the file may be cut off",
            )
        segments.append(span)
    return tuple(segments)


def _read_subsegments(table: FlatTable, segments: tuple[Span, ...]) -> Subsegments:
    return Subsegments(_entry(segments, table.integer(0, UINT32), "segment"), table.array(1, "u8"))


def _entry(entries: Sequence[_Entry], index: int, what: str) -> _Entry:
    if index >= len(entries):
        raise FormatError(f"there is no {what} {index}: the file has {len(entries):,}")
    return entries[index]
