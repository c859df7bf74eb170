"""ExecuTorch programs (.pte): methods, instructions, memory plan, weights and delegate data.

A file is a FlatBuffer with the identifier "ET12". If it has segments (weights, delegate data), an
extended header follows the identifier and the segments follow the tables; older files have
everything inside the tables. The format is in ExecuTorch's `schema/program.fbs` and
`schema/extended_header.cpp`, versions 1.0 to 1.5.

The file is mapped, and weights, delegate data and stack traces are read on demand. The time to open
a file depends on the number of instructions and values, not on the size of the weights.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, MissingDataError, UsageError, reading
from etscope.formats.bytes.files import BytesLike, PathLike, Source, open_source
from etscope.formats.bytes.flatbuffer import (
    INT8,
    INT32,
    INT64,
    UINT32,
    UINT64,
    Extents,
    FlatBuffer,
    FlatBufferColumns,
    FlatTable,
    IntArray,
    Span,
)
from etscope.formats.identify import check_ends, check_identifier
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
from etscope.support.shown import Shown

__all__ = ["read_pte"]

KIND = "ExecuTorch program"
IDENTIFIER = b"ET12"

_HEADER = struct.Struct("<4sIQQQ")  # magic, length, program size, segment base, segment data size
_HEADER_AT = 8  # after the root's offset and the identifier
_HEADER_MAGIC = b"eh00"
_HEADER_WITHOUT_DATA_SIZE = 24  # length of older headers, without the last field

_Entry = TypeVar("_Entry")
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Subsegments:
    """Tensors inside a segment: tensor i begins `offsets[i]` bytes after the start of `blob`.
    Tensor 0 is a placeholder."""

    blob: Span
    offsets: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Program(Shown):
    """An ExecuTorch program.

    `segments` are the parts of the file behind the tables, as spans of the file. Constant tensors
    are in `constants`, or in `inline_constants` in older files. `header` is None for a file without
    segments.
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

    @property
    def tables_size(self) -> int:
        """The bytes from the start of the file to the end of the tables."""
        whole = self.source.size
        return whole if self.header is None else min(self.header.program_size, whole)

    def method(self, name: str) -> Method:
        """Return the method of that name. Raises `MissingDataError` for another name."""
        for method in self.methods:
            if method.name == name:
                return method
        raise MissingDataError(
            f"{self.source.name} does not have a method {name!r}",
            hint="methods are: " + ", ".join(method.name for method in self.methods),
        )

    def constant_span(self, tensor: TensorValue) -> Span:
        """Locate the content or initial state of `tensor` in the file.

        Raises `MissingDataError` if this file does not have it: an activation, an input, or a
        weight in a .ptd file. Raises `FormatError` if it exceeds its segment.
        """
        if tensor.external:
            raise MissingDataError(
                f"the data of {tensor.name!r} is in a .ptd file, not in {self.source.name}"
            )
        if not tensor.has_data:
            raise MissingDataError("this tensor gets its data when the program runs")
        size = tensor.nbytes or 0
        with reading(KIND, self.source.path):
            start = 0  # of the tensor, in the blob
            if tensor.is_constant and self.constants is None:
                blob = _entry(self.inline_constants, tensor.data_index, "constant")
            else:
                if tensor.is_constant and self.constants is not None:
                    stored = self.constants
                else:
                    stored = _entry(
                        self.mutable_data, tensor.mutable_segment, "mutable data segment"
                    )
                blob = stored.blob
                if tensor.data_index >= len(stored.offsets):
                    raise FormatError(
                        f"tensor data {tensor.data_index} does not exist: "
                        f"there are {len(stored.offsets):,}",
                        offset=blob.offset,
                    )
                start = int(stored.offsets[tensor.data_index])
            if start + size > blob.size:
                raise FormatError(
                    f"tensor {tensor} needs {size:,} bytes, but only "
                    f"{max(blob.size - start, 0):,} of its segment of {blob.size:,} bytes are left",
                    offset=blob.offset,
                )
        return Span(blob.offset + start, size)

    def constant(self, method: str, value: int) -> npt.NDArray[Any]:
        """Return the content of a tensor of `method`; for a mutable tensor, its initial state.

        The array is a read-only view of the file in the tensor's shape and order of dimensions.
        Types that numpy lacks come from ml_dtypes; packed types (quint4x2) are flat bytes. Raises
        the errors of `constant_span`, and `UsageError` if `value` is not a tensor.
        """
        values = self.method(method).values
        tensor = values[value] if 0 <= value < len(values) else None
        if not isinstance(tensor, TensorValue):
            raise UsageError(f"value {value} of method {method!r} is not a tensor")
        data = self.blob(self.constant_span(tensor))
        with reading(KIND, self.source.path):
            return dense_view(data, tensor.scalar_type, tensor.sizes, tensor.dim_order)

    def delegate_blob(self, method: str, delegate: int) -> memoryview:
        """Return the data of delegate number `delegate` of `method`."""
        delegates = self.method(method).delegates
        if not 0 <= delegate < len(delegates):
            raise UsageError(f"method {method!r} has {len(delegates)} delegates, not {delegate}")
        return self.blob(delegates[delegate].blob)

    def stack_traces(self, method: str) -> tuple[tuple[Frame, ...], ...]:
        """Return the stack traces of a method's instructions, each with the outermost call first;
        empty if the program does not have them.

        A program has them if it was emitted with `emit_stacktrace=True`.
        """
        chains = self.method(method).chains
        positions = chains[0].traces_at if chains else ()
        with reading(KIND, self.source.path):
            buffer = FlatBuffer(self.source.buffer)
            traces = {
                position: tuple(
                    Frame(
                        filename=frame.string(0) or "",
                        lineno=frame.integer(1, INT32),
                        name=frame.string(2) or "",
                        context=frame.string(3) or "",
                    )
                    for frame in FlatTable(buffer, position).tables(0)
                )
                for position in set(positions)
            }
        return tuple(traces[position] for position in positions)

    def blob(self, span: Span) -> memoryview:
        """Return the bytes of a span of this file, without a copy."""
        return self.source.buffer[span.offset : span.offset + span.size]


def read_pte(data_or_path: BytesLike | PathLike) -> Program:
    """Open a program: a path, or its bytes.

    Raises `FormatError` (`VersionError` for another version of the schema) for a damaged file and
    for another format, `MissingFileError` for a missing file.
    """
    return read_program(open_source(data_or_path, KIND))


def program_fingerprint(data_or_path: BytesLike | PathLike) -> str:
    """Return the SHA-256 of all bytes of a program, weights included, in hex.

    A program does not contain an identifier, so this one links a record to its program. For the
    program inside a bundle, call `program_fingerprint(bundle.program_bytes)`.
    """
    return hashlib.sha256(open_source(data_or_path, KIND).buffer).hexdigest()


def read_program(source: Source, *, member: str | None = None) -> Program:
    """Read the program that fills `source`. `member` names it in errors if it is part of a file."""
    with reading(KIND, source.path, member=member):
        header = _read_header(source)
        tables_end = source.size if header is None else header.program_size
        root = FlatBuffer(source.buffer[:tables_end]).root()
        segments = _read_segments(root, header, source.size)

        def subsegments(table: FlatTable) -> Subsegments:
            blob = _entry(segments, table.integer(0, UINT32), "segment")
            return Subsegments(blob, table.array(1, "u8"))

        inline_delegates = tuple(entry.blob(0) for entry in root.tables(3))
        constants = root.table(5)
        # Files from before 1.0 may have the table, but keep the data inline.
        segmented = constants is not None and len(constants.array(1, "u8")) > 0
        methods = tuple(_read_method(plan, inline_delegates, segments) for plan in root.tables(1))
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
            constants=subsegments(constants) if constants and segmented else None,
            mutable_data=tuple(map(subsegments, root.tables(6))),
            inline_constants=tuple(entry.blob(0) for entry in root.tables(2)),
            source=source,
        )


def _read_header(source: Source) -> ExtendedHeader | None:
    """Return the extended header; None without one."""
    buffer = source.buffer
    check_identifier(buffer, IDENTIFIER, "program", f"an {KIND} (.pte)")
    if bytes(buffer[_HEADER_AT : _HEADER_AT + 4]) != _HEADER_MAGIC:
        return None
    padded = bytes(buffer[_HEADER_AT : _HEADER_AT + _HEADER.size]).ljust(_HEADER.size, b"\0")
    _, length, program_size, segment_base, data_size = _HEADER.unpack(padded)
    if length < _HEADER_WITHOUT_DATA_SIZE:
        raise FormatError(f"an extended header of {length} bytes is too short", offset=_HEADER_AT)
    if length < _HEADER.size:
        data_size = 0
    check_ends(source.size, _HEADER_AT, tables=program_size, segments=segment_base + data_size)
    return ExtendedHeader(length, program_size, segment_base, data_size)


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
                f"segment {number} has data, but the extended header that locates it is missing",
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


def _entry(entries: Sequence[_Entry], index: int, what: str) -> _Entry:
    if index >= len(entries):
        raise FormatError(f"{what} {index} does not exist: the file has {len(entries):,}")
    return entries[index]


# --------------------------------------------------------------------------------------------
# Methods. Numbers of slots and union members come from ExecuTorch's `schema/program.fbs` (1.5). The
# schema grows only at the end of tables: older files lack later slots, and slots of newer files are
# ignored. Every index is checked here once, so later code does not check it.

_DEVICES = ("cpu", "cuda")
_MAX_RANK = 32  # numpy's; the runtime has 16
_SEGMENT = 1  # DataLocation
_DELEGATE_CALL = 2  # InstructionArguments
_EXTERNAL = 1  # TensorDataLocation


def _read_method(table: FlatTable, inline: tuple[Span, ...], segments: tuple[Span, ...]) -> Method:
    """Return the method of an `ExecutionPlan`. Delegate data is in `inline` or in `segments`, both
    spans of the file."""
    values = tuple(_read_value(value) for value in table.tables(2))
    for value in values:
        if isinstance(value, ListValue) and value.kind in BOXED_LISTS:
            lowest = -1 if value.kind is ValueKind.OPTIONAL_TENSOR_LIST else 0
            _check_indices(value.items, len(values), "a list names value", table, lowest=lowest)
    operators = tuple(Operator(one.string(0) or "", one.string(1) or "") for one in table.tables(6))
    delegates = tuple(_read_delegate(one, inline, segments) for one in table.tables(7))
    container = table.table(1)
    return Method(
        name=table.string(0) or "",
        values=values,
        inputs=_value_indices(table, 3, len(values)),
        outputs=_value_indices(table, 4, len(values)),
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


def _read_value(table: FlatTable) -> Value:
    """A value of the schema's union `KernelTypes`."""
    number, member = table.union(0)
    if member is None:
        if number > 1:
            raise FormatError("a value has a kind but no content", offset=table.position)
        return ScalarValue(ValueKind.NULL, None)
    match number:
        case 1:
            return ScalarValue(ValueKind.NULL, None)
        case 2:
            return ScalarValue(ValueKind.INT, member.integer(0, INT64))
        case 3:
            return ScalarValue(ValueKind.BOOL, member.flag(0))
        case 4:
            return ScalarValue(ValueKind.DOUBLE, member.double(0))
        case 5:
            return _read_tensor(member)
        case 6:
            return ScalarValue(ValueKind.STRING, member.string(0) or "")
    if number not in _LISTS:
        raise FormatError(f"unknown kind of value {number}", offset=table.position)
    kind, code = _LISTS[number]
    return ListValue(kind, member.numbers(0, code))


_INT, _DOUBLE, _TENSOR, _STRING = 2, 4, 5, 6  # members of the union by number
# Lists of the union by number, with the type of their items as `struct` names it.
_LISTS = {
    7: (ValueKind.INT_LIST, "q"),
    8: (ValueKind.DOUBLE_LIST, "d"),
    9: (ValueKind.BOOL_LIST, "?"),
    10: (ValueKind.TENSOR_LIST, "i"),
    11: (ValueKind.OPTIONAL_TENSOR_LIST, "i"),
}


def _read_tensor(table: FlatTable) -> TensorValue:
    sizes: tuple[int, ...] = table.numbers(2, "i")
    if len(sizes) > _MAX_RANK:
        raise FormatError(f"a tensor has {len(sizes):,} dimensions", offset=table.position)
    number = table.integer(8, INT8)
    try:
        dynamism = ShapeDynamism(number)
    except ValueError:
        raise FormatError(f"unknown shape dynamism {number}", offset=table.position) from None
    if sizes and min(sizes) < 0 and dynamism is not ShapeDynamism.DYNAMIC_UNBOUND:
        raise FormatError(f"a tensor has the negative size {list(sizes)}", offset=table.position)
    dim_order = checked_dim_order(table.numbers(3, "B"), len(sizes), offset=table.position)
    planned = table.table(6)
    allocation = None
    if planned is not None:
        low, high = planned.integer(1, UINT32), planned.integer(2, UINT32)
        allocation = Allocation(planned.integer(0, UINT32), high << 32 | low)
    extra = table.table(9)
    return TensorValue(
        scalar_type=scalar_type(table.integer(0, INT8), offset=table.position),
        sizes=sizes,
        dim_order=dim_order,
        dynamism=dynamism,
        data_index=table.integer(5, UINT32),
        allocation=allocation,
        name=extra.string(1) if extra else None,
        external=extra is not None and extra.integer(2, INT8) == _EXTERNAL,
        mutable_segment=extra.integer(0, UINT64) if extra else 0,
        device=_device(extra, 3, 4) if extra else "cpu",
        storage_offset=table.integer(1, INT32),
        requires_grad=table.flag(4),
        layout=table.integer(7, INT8),
    )


def _device(table: FlatTable, kind: int, index: int) -> str:
    """Return "cpu", or a name with an index ("cuda:1"); an unknown type is "device7:0"."""
    number = table.integer(kind, INT8)
    if number == 0:
        return "cpu"
    name = _DEVICES[number] if 0 < number < len(_DEVICES) else f"device{number}"
    return f"{name}:{table.integer(index, INT8)}"


def _read_delegate(
    table: FlatTable, inline: tuple[Span, ...], segments: tuple[Span, ...]
) -> Delegate:
    location = table.table(1)
    if location is None:
        raise FormatError("a delegate without data", offset=table.position)
    blobs = segments if location.integer(0, INT8) == _SEGMENT else inline
    index = location.integer(1, UINT32)
    _check_indices((index,), len(blobs), "a delegate names blob", location)
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
                _check_indices((operator,), operators, "an instruction names operator", one)
            case DelegateCall(delegate):
                _check_indices((delegate,), delegates, "an instruction names delegate", one)
            case JumpFalseCall(_, destination):
                # A jump may go to the end, one after the last instruction.
                _check_indices((destination,), len(tables) + 1, "a jump goes to instruction", one)
        if isinstance(instruction, (KernelCall, DelegateCall)):
            # A hostile file could name one list of thousands in thousands of calls. Count the items
            # of each list, so that code that expands all arguments works in proportion to the file.
            for index in instruction.args:
                value = values[index]
                if isinstance(value, ListValue):
                    one.spend(len(value.items))
    return Chain(
        inputs=_value_indices(table, 0, len(values)),
        outputs=_value_indices(table, 1, len(values)),
        instructions=instructions,
        traces_at=table.offsets(3),
    )


def _read_instruction(table: FlatTable, values: int) -> Instruction:
    """An instruction of the schema's union `InstructionArguments`."""
    number, member = table.union(0)
    if member is None:
        raise FormatError(f"unknown kind of instruction {number}", offset=table.position)
    match number:
        case 1:
            return KernelCall(member.integer(0, INT32), _value_indices(member, 1, values))
        case 2:
            return DelegateCall(member.integer(0, INT32), _value_indices(member, 1, values))
        case 3:
            return MoveCall(_value_index(member, 0, values), _value_index(member, 1, values))
        case 4:
            return JumpFalseCall(_value_index(member, 0, values), member.integer(1, INT32))
        case 5:
            return FreeCall(_value_index(member, 0, values))
    raise FormatError(f"unknown kind of instruction {number}", offset=table.position)


def _value_index(table: FlatTable, slot: int, values: int) -> int:
    index = table.integer(slot, INT32)
    _check_indices((index,), values, "an instruction names value", table)
    return index


def _value_indices(table: FlatTable, slot: int, values: int) -> tuple[int, ...]:
    indices: tuple[int, ...] = table.numbers(slot, "i")
    _check_indices(indices, values, "an index names value", table)
    return indices


def _check_indices(
    indices: Iterable[int | float], count: int, what: str, table: FlatTable, *, lowest: int = 0
) -> None:
    for index in indices:
        if not lowest <= index < count:
            raise FormatError(f"{what} {index}, but there are {count:,}", offset=table.position)


# --------------------------------------------------------------------------------------------
# What the bytes of the tables contain.

HEADER, SEGMENTS, NAMED_KEYS, INLINE_DATA, LAYOUTS = (
    "header", "segments", "keys of named data", "data", "table layouts"
)  # fmt: skip
SIGNATURE, OPERATORS, STACK_TRACES = "inputs and outputs", "operator names", "stack traces"
TENSORS, TENSOR_NAMES, OTHER_VALUES = "tensors", "tensor names", "numbers and lists"
UNREAD, INSTRUCTIONS, COMPILE_SPECS = "unread values", "instructions", "compile specs"

# Most methods and operators to list separately: a hostile file could have a million of each.
_MOST_METHODS, _MOST_OPERATORS = 256, 64
_UNREAD = -1


class TableKind(NamedTuple):
    """The owner of bytes in a program's tables: `content` names the part, and a method and an
    operator ("aten::add.out"; the backend for delegates) own it, if it has them.

    A value belongs to the first operator that names it.
    """

    content: str
    method: str | None = None
    operator: str | None = None


def table_extents(program: Program) -> Extents[TableKind]:
    """Visit all tables, vectors and strings of a program; the data of older files is `INLINE_DATA`.

    What several methods share belongs to the first. Raises `FormatError`.
    """
    with reading(KIND, program.source.path):
        buffer = FlatBufferColumns(program.source.buffer, 0, program.tables_size)
        walk = Extents(buffer, TableKind(LAYOUTS))
        header, segments, named = map(TableKind, (HEADER, SEGMENTS, NAMED_KEYS))
        length = 0 if program.header is None else program.header.length
        walk.add(header, np.zeros(1, np.int64), np.array([_HEADER_AT + length]))
        root = walk.tables(header, buffer.root(), 8)
        plans = walk.listed(header, root.reference(1))
        for number, method in enumerate(program.methods[:_MOST_METHODS]):
            _visit_method(walk, method.name, plans[number : number + 1], _Users.of(method))
        if len(plans) > _MOST_METHODS:
            nobody = _Users((None,), np.zeros(0, np.int64), np.zeros(0, np.int64))
            _visit_method(walk, "other methods", plans[_MOST_METHODS:], nobody)
        for slot in (2, 3):  # constants and delegates' data of older files
            held = walk.tables(segments, walk.listed(segments, root.reference(slot)), 1)
            walk.vectors(TableKind(INLINE_DATA), held.reference(0), 1)
        walk.tables(segments, walk.listed(segments, root.reference(4)), 2)
        subsegments = np.append(root.reference(5), walk.listed(segments, root.reference(6)))
        walk.vectors(segments, walk.tables(segments, subsegments, 2).reference(1), UINT64.size)
        entries = walk.tables(named, walk.listed(named, root.reference(7)), 2)
        walk.strings(named, entries.reference(0))
        return walk


@dataclass(frozen=True, slots=True)
class _Users:
    """The operators of a method: their names (None for no operator), and the index of the name for
    each instruction and each value; `_UNREAD` for a value that nothing names."""

    names: tuple[str | None, ...]
    of_instructions: IntArray
    of_values: IntArray

    @classmethod
    def of(cls, method: Method) -> _Users:
        known: dict[str | None, int] = {None: 0}
        instructions = [one for chain in method.chains for one in chain.instructions]
        users = np.zeros(len(instructions), np.int64)
        values = np.zeros(len(method.values), np.int64)
        for number, instruction in enumerate(instructions):
            operator = method.operator_of(instruction)
            user = known.get(operator, 0)
            if operator is not None and not user and len(known) <= _MOST_OPERATORS:
                user = known[operator] = len(known)
            users[number] = user
            for index in method.named(instruction):
                values[index] = values[index] or user
        values[list(method.unread())] = _UNREAD
        return cls(tuple(known), users, values)

    def split(self, users: IntArray, count: int) -> Iterator[tuple[str | None, BoolArray]]:
        """Yield each operator and the items that belong to it, by the `users` of the `count` items.
        No operator owns them if the numbers of users and items differ."""
        if len(users) != count:
            users = np.zeros(count, np.int64)
        for user, name in enumerate(self.names):
            is_own = users == user
            if is_own.any():
                yield name, is_own


def _visit_method(walk: Extents[TableKind], name: str, positions: IntArray, users: _Users) -> None:
    """Visit the `ExecutionPlan` of one method or of several."""
    about, specs = TableKind(SIGNATURE, name), TableKind(COMPILE_SPECS, name)
    calls, traces = TableKind(INSTRUCTIONS, name), TableKind(STACK_TRACES, name)
    names = TableKind(OPERATORS, name)
    plan = walk.tables(about, positions, 10)
    walk.strings(about, plan.reference(0))
    container = walk.tables(about, plan.reference(1), 2)
    for slot in (0, 1):
        walk.strings(about, container.reference(slot))
    for slot in (3, 4):
        walk.vectors(about, plan.reference(slot), INT32.size)
    walk.vectors(about, plan.reference(8), INT64.size)
    walk.tables(about, walk.listed(about, plan.reference(9)), 3)
    values = walk.listed(TableKind(OTHER_VALUES, name), plan.reference(2))
    for operator, is_own in users.split(users.of_values, len(values)):
        of_operator = (
            TableKind(what, name, operator) for what in (TENSORS, TENSOR_NAMES, OTHER_VALUES)
        )
        _visit_values(walk, values[is_own], *of_operator)
    if len(users.of_values) == len(values):
        unread = TableKind(UNREAD, name)
        _visit_values(walk, values[users.of_values == _UNREAD], unread, unread, unread)
    chains = walk.tables(calls, walk.listed(calls, plan.reference(5)), 4)
    for slot in (0, 1):
        walk.vectors(calls, chains.reference(slot), INT32.size)
    instructions = walk.listed(calls, chains.reference(2))
    for operator, is_own in users.split(users.of_instructions, len(instructions)):
        own = TableKind(INSTRUCTIONS, name, operator)
        made = walk.tables(own, instructions[is_own], 2)
        kinds, members = made.scalar(0, "u1"), made.reference(1)
        named = walk.tables(own, members[kinds <= _DELEGATE_CALL], 2)
        walk.vectors(own, named.reference(1), INT32.size)
        walk.tables(own, members[kinds > _DELEGATE_CALL], 2)
    lists = walk.tables(traces, walk.listed(traces, chains.reference(3)), 1)
    frames = walk.tables(traces, walk.listed(traces, lists.reference(0)), 4)
    for slot in (0, 2, 3):
        walk.strings(traces, frames.reference(slot))
    operators = walk.tables(names, walk.listed(names, plan.reference(6)), 2)
    for slot in (0, 1):
        walk.strings(names, operators.reference(slot))
    delegates = walk.tables(names, walk.listed(names, plan.reference(7)), 3)
    walk.strings(names, delegates.reference(0))
    walk.tables(names, delegates.reference(1), 2)
    options = walk.tables(specs, walk.listed(specs, delegates.reference(2)), 2)
    walk.strings(specs, options.reference(0))
    walk.vectors(specs, options.reference(1), 1)


def _visit_values(
    walk: Extents[TableKind],
    positions: IntArray,
    tensors: TableKind,
    names: TableKind,
    others: TableKind,
) -> None:
    """Visit values of a method: tensors, names of these, and all other values."""
    values = walk.buffer.tables(positions, 2)
    kinds, members = values.scalar(0, "u1"), values.reference(1)
    is_tensor = kinds == _TENSOR
    walk.tables(tensors, positions[is_tensor], 2)
    walk.tables(others, positions[~is_tensor], 2)
    found = walk.tables(tensors, members[is_tensor], 10)
    walk.vectors(tensors, found.reference(2), INT32.size)
    walk.vectors(tensors, found.reference(3), 1)
    walk.tables(tensors, found.reference(6), 3)
    walk.strings(names, walk.tables(tensors, found.reference(9), 5).reference(1))
    for number in np.unique(kinds[~is_tensor]).tolist():
        is_number = number in (_INT, _DOUBLE)
        held = walk.tables(others, members[kinds == number], 1, INT64.size if is_number else 0)
        if number == _STRING:
            walk.strings(others, held.reference(0))
        elif number in _LISTS:
            walk.vectors(others, held.reference(0), struct.calcsize(_LISTS[number][1]))
