"""FlatBuffers, programs and bundled programs written by hand: what no exporter would write."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etscope.formats.program import pte_schema as pte
from etscope.formats.program.scalar_type import ScalarType


@dataclass(frozen=True)
class Number:
    """A scalar field or the items of a vector, in a code of `struct`."""

    code: str
    value: Any


@dataclass(frozen=True)
class Raw:
    """The 32 bits of an offset, as they are."""

    offset: int


def build(root: Mapping[int, Any], identifier: bytes = b"TEST", header: bytes = b"") -> bytes:
    """A FlatBuffer. A table is a dict of slot -> field; a list of dicts or texts is a vector of
    tables or strings; a `Number` with a list a vector of numbers; bytes a vector of bytes. A dict
    that stands several times in one list is written once."""
    writer = _Writer(b"\0\0\0\0" + identifier + header)
    struct.pack_into("<I", writer.data, 0, writer.table(root))
    return bytes(writer.data)


class _Writer:
    def __init__(self, head: bytes) -> None:
        self.data = bytearray(head)
        self._tables: dict[int, int] = {}  # by identity

    def table(self, fields: Mapping[int, Any]) -> int:
        fields = {slot: field for slot, field in fields.items() if field is not None}
        offsets, size = {}, 4
        for slot, field in sorted(fields.items()):
            width = struct.calcsize("<" + field.code) if _is_scalar(field) else 4
            size += -size % width
            offsets[slot] = size
            size += width
        count = max(fields, default=-1) + 1
        self._align(8)
        vtable = len(self.data)
        self.data += struct.pack(
            f"<{count + 2}H", 4 + 2 * count, size, *(offsets.get(i, 0) for i in range(count))
        )
        self._align(8)
        position = len(self.data)
        self.data += struct.pack("<i", position - vtable) + bytes(size - 4)
        for slot, field in fields.items():
            at = position + offsets[slot]
            if _is_scalar(field):
                struct.pack_into("<" + field.code, self.data, at, field.value)
            else:
                self._refer(at, field)
        return position

    def _refer(self, at: int, field: Any) -> None:
        offset = field.offset if isinstance(field, Raw) else self._content(field, at) - at
        struct.pack_into("<I", self.data, at, offset)

    def _content(self, field: Any, at: int) -> int:
        if isinstance(field, Mapping):
            if self._tables.get(id(field), -1) < at:  # offsets only lead forward
                self._tables[id(field)] = self.table(field)
            return self._tables[id(field)]
        self._align(8)
        self.data += bytes(4)  # so that what follows the count is aligned to 8
        position = len(self.data)
        if isinstance(field, str):
            field = field.encode("utf-8", "surrogateescape") + b"\0"
            self.data += struct.pack("<I", len(field) - 1) + field
        elif isinstance(field, bytes):
            self.data += struct.pack("<I", len(field)) + field
        elif isinstance(field, Number):
            code = f"<{len(field.value)}{field.code}"
            self.data += struct.pack("<I", len(field.value)) + struct.pack(code, *field.value)
        else:
            self.data += struct.pack("<I", len(field)) + bytes(4 * len(field))
            for index, item in enumerate(field):
                self._refer(position + 4 + 4 * index, item)
        return position

    def _align(self, size: int) -> None:
        self.data += bytes(-len(self.data) % size)


def _is_scalar(field: Any) -> bool:
    return isinstance(field, Number) and not isinstance(field.value, (list, tuple))


def ints(*values: int) -> Number:
    return Number("i", values)


def pte_file(
    *methods: Mapping[int, Any],
    segments: Sequence[bytes] = (),
    header: bytes | None = None,
    more: Mapping[int, Any] | None = None,
) -> bytes:
    """A program. `more` are further fields of the root; segments follow the tables."""
    offset, spans = 0, []
    for segment in segments:
        spans.append({0: Number("Q", offset), 1: Number("Q", len(segment))})
        offset += len(segment)
    root = {0: Number("I", 0), 1: list(methods), 4: spans or None, **(more or {})}
    if not segments:
        return build(root, b"ET12", header or b"")
    size = len(build(root, b"ET12", bytes(32)))
    made = struct.pack("<4sIQQQ", b"eh00", 32, size, size, offset)
    return build(root, b"ET12", made if header is None else header) + b"".join(segments)


def method(
    values: Sequence[pte.Value],
    instructions: Sequence[pte.Instruction] = (),
    *,
    name: str = "forward",
    inputs: Sequence[int] = (),
    outputs: Sequence[int] = (),
    operators: Sequence[str] = (),
    delegates: Sequence[tuple[str, int, int]] = (),
    buffer_sizes: Sequence[int] = (0,),
    stacktrace: Sequence[Mapping[int, Any]] | None = None,
) -> dict[int, Any]:
    """A method. Operators are names ("aten::add.out"), delegates are (backend, location, index)."""
    chain = {2: [instruction(one) for one in instructions], 3: stacktrace}
    return {
        0: name,
        2: [value(one) for one in values],
        3: ints(*inputs),
        4: ints(*outputs),
        5: [chain],
        6: [{0: one.partition(".")[0], 1: one.partition(".")[2]} for one in operators],
        7: [
            {0: backend, 1: {0: Number("b", location), 1: Number("I", index)}}
            for backend, location, index in delegates
        ],
        8: Number("q", list(buffer_sizes)),
    }


def value(one: pte.Value) -> dict[int, Any]:
    number = list(pte.ValueKind).index(one.kind) + 1
    return {0: Number("B", number), 1: _content_of(one)}


def _content_of(one: pte.Value) -> dict[int, Any]:
    if isinstance(one, pte.TensorValue):
        place = one.allocation
        return {
            0: Number("b", one.scalar_type),
            2: ints(*one.sizes),
            3: bytes(one.dim_order),
            5: Number("I", one.data_index),
            6: place and {0: Number("I", place.memory_id), 1: Number("I", place.offset)},
            8: Number("b", one.dynamism),
            9: None if one.name is None else {1: one.name, 2: Number("b", one.external)},
        }
    if isinstance(one, pte.ListValue):
        code = {"IntList": "q", "DoubleList": "d", "BoolList": "?"}.get(one.kind.value, "i")
        return {0: Number(code, one.items)}
    if isinstance(one.value, str):
        return {0: one.value}
    codes = {pte.ValueKind.INT: "q", pte.ValueKind.BOOL: "?", pte.ValueKind.DOUBLE: "d"}
    return {0: Number(codes[one.kind], one.value)} if one.kind in codes else {}


def instruction(one: pte.Instruction) -> dict[int, Any]:
    match one:
        case pte.KernelCall(first, args):
            return {0: Number("B", 1), 1: {0: Number("i", first), 1: ints(*args)}}
        case pte.DelegateCall(first, args):
            return {0: Number("B", 2), 1: {0: Number("i", first), 1: ints(*args)}}
        case pte.MoveCall(first, second):
            return {0: Number("B", 3), 1: {0: Number("i", first), 1: Number("i", second)}}
        case pte.JumpFalseCall(first, second):
            return {0: Number("B", 4), 1: {0: Number("i", first), 1: Number("i", second)}}
        case pte.FreeCall(first):
            return {0: Number("B", 5), 1: {0: Number("i", first)}}


def tensor(*sizes: int, at: tuple[int, int] | None = None, **more: Any) -> pte.TensorValue:
    """A float32 tensor; `at` is (memory id, offset)."""
    return pte.TensorValue(
        scalar_type=more.pop("scalar_type", ScalarType.FLOAT),
        sizes=sizes,
        dim_order=more.pop("dim_order", tuple(range(len(sizes)))),
        allocation=pte.Allocation(*at) if at else None,
        **more,
    )


def integer(number: int) -> pte.ScalarValue:
    return pte.ScalarValue(pte.ValueKind.INT, number)


def tensor_list(*items: int) -> pte.ListValue:
    return pte.ListValue(pte.ValueKind.TENSOR_LIST, items)
