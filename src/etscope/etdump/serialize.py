"""Bytes of an ETDump: upstream's `executorch.devtools.etdump.serialize`, without flatc."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import flatbuffers

from etscope.errors import FormatError, UsageError, reading
from etscope.etdump import schema_flatcc as flatcc
from etscope.formats.bytes.files import open_source
from etscope.formats.bytes.flatbuffer import FlatBuffer, FlatTable
from etscope.formats.etdump.reader import IDENTIFIER
from etscope.formats.program.scalar_type import scalar_type

__all__ = [
    "ETDUMP_FLATCC_SCHEMA_NAME",
    "SCALAR_TYPE_SCHEMA_NAME",
    "deserialize_from_etdump_flatcc",
    "serialize_to_etdump_flatcc",
]

ETDUMP_FLATCC_SCHEMA_NAME = "etdump_schema_flatcc"
SCALAR_TYPE_SCHEMA_NAME = "scalar_type"

# Table -> its fields by slot: name, type, default of a number. A type is a code of `struct`, a code
# in brackets for a vector of numbers, "text", a table, or a list with a table for a vector.
_ABSENT = -1
_Field = tuple[str, Any, Any]
_FIELDS: dict[type, tuple[_Field, ...]] = {
    flatcc.Tensor: (
        ("scalar_type", "b", 0),
        ("sizes", "[q]", None),
        ("strides", "[q]", None),
        ("offset", "q", 0),
    ),
    flatcc.TensorList: (("tensors", [flatcc.Tensor], None),),
    flatcc.Int: (("int_val", "q", 0),),
    flatcc.Bool: (("bool_val", "?", False),),
    flatcc.Float: (("float_val", "f", 0.0),),
    flatcc.Double: (("double_val", "d", 0.0),),
    flatcc.Value: (
        ("val", "b", 0),
        ("tensor", flatcc.Tensor, None),
        ("tensor_list", flatcc.TensorList, None),
        ("int_value", flatcc.Int, None),
        ("float_value", flatcc.Float, None),
        ("double_value", flatcc.Double, None),
        ("bool_value", flatcc.Bool, None),
        ("output", flatcc.Bool, None),
    ),
    flatcc.DebugEvent: (
        ("chain_index", "Q", 0),
        ("instruction_id", "i", _ABSENT),
        ("debug_entry", flatcc.Value, None),
        ("delegate_debug_id_int", "i", _ABSENT),
        ("delegate_debug_id_str", "text", None),
        ("name", "text", None),
    ),
    flatcc.AllocationEvent: (("allocator_id", "i", 0), ("allocation_size", "Q", 0)),
    flatcc.ProfileEvent: (
        ("name", "text", None),
        ("chain_index", "i", 0),
        ("instruction_id", "i", _ABSENT),
        ("delegate_debug_id_int", "i", _ABSENT),
        ("delegate_debug_id_str", "text", None),
        ("delegate_debug_metadata", "[B]", None),
        ("start_time", "Q", 0),
        ("end_time", "Q", 0),
    ),
    flatcc.Event: (
        ("profile_event", flatcc.ProfileEvent, None),
        ("allocation_event", flatcc.AllocationEvent, None),
        ("debug_event", flatcc.DebugEvent, None),
    ),
    flatcc.Allocator: (("name", "text", None),),
    flatcc.RunData: (
        ("name", "text", None),
        ("bundled_input_index", "i", _ABSENT),
        ("allocators", [flatcc.Allocator], None),
        ("events", [flatcc.Event], None),
    ),
    flatcc.ETDumpFlatCC: (("version", "I", 0), ("run_data", [flatcc.RunData], None)),
}
_VALUE_TYPES = tuple(kind.value for kind in flatcc.ValueType)  # by their numbers in a file


def serialize_to_etdump_flatcc(etdump: flatcc.ETDumpFlatCC) -> bytes:
    """Return the file of a dump, without its size in front.

    Raises `UsageError` for a field with a wrong type.
    """
    builder = flatbuffers.Builder(1024)
    try:
        builder.Finish(_write_table(builder, etdump), file_identifier=IDENTIFIER)
    except (AttributeError, KeyError, TypeError, ValueError, struct.error) as error:
        raise UsageError(f"this dump does not fit the schema of ETDump: {error}") from error
    return bytes(builder.Output())


def deserialize_from_etdump_flatcc(data: bytes, size_prefixed: bool = True) -> flatcc.ETDumpFlatCC:
    """Return the content of a dump as objects; absent texts, vectors and tables are None.

    size_prefixed: True for files of the runtime, which begin with their size. The bytes show the
    kind, so a wrong value is harmless.

    Raises `FormatError` for damaged bytes and for another format.
    """
    source = open_source(data, "ETDump")
    with reading("ETDump"):
        start = 4 if bytes(source.buffer[8:12]) == IDENTIFIER else 0
        if bytes(source.buffer[start + 4 : start + 8]) != IDENTIFIER:
            raise FormatError("not an ETDump: ED00 is missing at bytes 4 and 8")
        root = FlatBuffer(source.buffer[start:]).root()
        dump: flatcc.ETDumpFlatCC = _read_table(root, flatcc.ETDumpFlatCC)
        return dump


def _read_table(table: FlatTable, kind: type) -> Any:
    found = {
        name: _read_field(table, slot, of, default)
        for slot, (name, of, default) in enumerate(_FIELDS[kind])
    }
    if kind is flatcc.Tensor:
        found["scalar_type"] = scalar_type(found["scalar_type"], offset=table.position)
    elif kind is flatcc.Value:
        if not 0 <= found["val"] < len(_VALUE_TYPES):
            raise FormatError(f"a value has the type {found['val']}", offset=table.position)
        found["val"] = _VALUE_TYPES[found["val"]]
    return kind(**found)


def _read_field(table: FlatTable, slot: int, of: Any, default: Any) -> Any:
    if of == "text":
        return table.string(slot)
    if isinstance(of, list):
        return [_read_table(one, of[0]) for one in table.tables(slot)] if table.has(slot) else None
    if isinstance(of, type):
        inner = table.table(slot)
        return None if inner is None else _read_table(inner, of)
    if of == "[B]":
        return bytes(table.numbers(slot, "B")) if table.has(slot) else None
    if of == "[q]":
        return list(table.numbers(slot, "q"))
    if of == "?":
        return table.flag(slot)
    if of == "d":
        return table.double(slot)
    if of == "f":
        bits = table.integer(slot, struct.Struct("<I"))
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    return table.integer(slot, struct.Struct("<" + of), default)


def _write_table(builder: flatbuffers.Builder, value: Any) -> int:
    """Write an object after the parts that it refers to; return its place in the builder."""
    fields = _FIELDS[type(value)]
    written: list[tuple[Callable[..., None], Any, Any]] = []
    for name, of, default in fields:
        content = getattr(value, name)
        if isinstance(of, str) and len(of) == 1:
            if name == "val":
                content = _VALUE_TYPES.index(content)
            slot = getattr(builder, f"Prepend{_NUMBERS[of]}Slot")
            written.append((slot, default if content is None else content, default))
        else:
            place = 0 if content is None else _write_reference(builder, of, content)
            written.append((builder.PrependUOffsetTRelativeSlot, place, 0))
    builder.StartObject(len(fields))
    for index, (write, content, default) in enumerate(written):
        write(index, content, default)
    return int(builder.EndObject())


# Codes of `struct` -> the builder's names for the types.
_NUMBERS = {
    "b": "Int8",
    "?": "Bool",
    "i": "Int32",
    "I": "Uint32",
    "q": "Int64",
    "Q": "Uint64",
    "f": "Float32",
    "d": "Float64",
}


def _write_reference(builder: flatbuffers.Builder, of: Any, content: Any) -> int:
    if of == "text":
        return int(builder.CreateString(content))
    if of == "[B]":
        return int(builder.CreateByteVector(bytes(content)))
    if of == "[q]":
        builder.StartVector(8, len(content), 8)
        for number in reversed(content):
            builder.PrependInt64(number)
        return int(builder.EndVector())
    if isinstance(of, list):
        places = [_write_table(builder, one) for one in content]
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            builder.PrependUOffsetTRelative(place)
        return int(builder.EndVector())
    return _write_table(builder, content)
