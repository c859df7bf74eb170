"""The bytes of a bundled program (.bpte): the inverse of `bundled`.

FlatBuffers are built from their end. The program is the last thing in the file, so it is not built
in: the tables end with the length of the program, its bytes follow, and nobody copies them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import flatbuffers
import numpy as np

from etscope.errors import BundleError
from etscope.formats.bytes.source import BytesLike
from etscope.formats.identify import describe
from etscope.formats.program import bpte_schema as schema
from etscope.formats.program import pte
from etscope.formats.program.bpte import IDENTIFIER, Suite
from etscope.formats.program.dense_tensor import as_numpy, dim_order_of, in_dim_order
from etscope.formats.program.scalar_type import ScalarType, scalar_type_of

SCHEMA_VERSION = 2
MAX_BYTES = (1 << 31) - 1  # what readers of FlatBuffers take

_PROGRAM_ALIGNMENT = 32
_TENSOR_ALIGNMENT = 16
_TENSOR, _INT, _BOOL, _DOUBLE = 1, 2, 3, 4  # members of the schema's union ValueUnion
_INT64 = range(-(1 << 63), 1 << 63)


def write_bundled(program: BytesLike, suites: Iterable[Suite]) -> bytes:
    """A bundled program: the bytes of a .pte file, and cases for its methods.

    Suites are written in the order of their methods' names. Tensors are arrays (types of ml_dtypes
    where numpy has none) and keep the order of dimensions that they have in memory.

    Raises `BundleError` for what the format has no place for. Whether the cases fit the program is
    not looked at; `etscope.bundled_program.BundledProgram` does.
    """
    return b"".join(bundled_parts(stored_suites(suites), program))


def stored_suites(suites: Iterable[Suite]) -> list[schema.BundledMethodTestSuite]:
    """The suites as a file has them, in the order of their methods' names."""
    return [
        schema.BundledMethodTestSuite(
            method_name=suite.method,
            test_cases=[
                schema.BundledMethodTestCase(
                    inputs=[stored_value(value) for value in case.inputs],
                    expected_outputs=[stored_value(value) for value in case.expected_outputs],
                )
                for case in suite.cases
            ],
        )
        for suite in sorted(suites, key=lambda suite: suite.method)
    ]


def stored_value(value: Any) -> schema.Value:
    """An array, a tensor of torch or a number as a file has it."""
    if isinstance(value, (bool, np.bool_)):
        return schema.Value(schema.Bool(bool(value)))
    if isinstance(value, (int, np.integer)):
        return schema.Value(schema.Int(int(value)))
    if isinstance(value, (float, np.floating)):
        return schema.Value(schema.Double(float(value)))
    if not hasattr(value, "__array__"):
        raise BundleError(
            f"a bundled program has no place for a value of type {type(value).__name__}",
            hint="its cases hold tensors, ints, floats and bools",
        )
    return schema.Value(_stored_tensor(value))


def _stored_tensor(value: Any) -> schema.Tensor:
    array = as_numpy(value)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    order = dim_order_of(array)
    dense = in_dim_order(array, order).transpose(order)
    return schema.Tensor(
        scalar_type=scalar_type_of(array.dtype),
        sizes=list(array.shape),
        data=memoryview(dense.reshape(-1).view(np.uint8)),
        dim_order=list(order),
    )


def bundled_parts(
    suites: Sequence[schema.BundledMethodTestSuite],
    program: BytesLike,
    version: int = SCHEMA_VERSION,
) -> tuple[memoryview, memoryview]:
    """The file in two pieces, the second being the program itself.

    Raises `BundleError` for what is not a program, for values that the format has no place for and
    for a file of more than 2 GiB.
    """
    program = memoryview(program).cast("B")
    if bytes(program[4:8]) != pte.IDENTIFIER:
        found = describe(program) if len(program) else "there are no bytes"
        raise BundleError(f"not an {pte.KIND} (.pte): {found}")
    size = len(program) + sum(map(_suite_bytes, suites))
    if size > MAX_BYTES:
        raise BundleError(
            f"a bundled program of {size:,} bytes is more than the 2 GiB that the format can have",
            hint="bundle fewer cases, or keep the weights beside the program (.ptd)",
        )
    builder = flatbuffers.Builder(1024 + size - len(program))
    # From here on the size of what is built ends up as a multiple of this.
    builder.Prep(_PROGRAM_ALIGNMENT, 0)
    builder.PrependUint32(len(program))
    program_at = builder.Offset()
    suites_at = _vector(builder, suites, _write_suite)
    builder.StartObject(3)
    builder.PrependUint32Slot(0, version, 0)
    builder.PrependUOffsetTRelativeSlot(1, suites_at, 0)
    builder.PrependUOffsetTRelativeSlot(2, program_at, 0)
    builder.Finish(builder.EndObject(), file_identifier=IDENTIFIER)
    return memoryview(builder.Bytes)[builder.Head() :], program


def _suite_bytes(suite: schema.BundledMethodTestSuite) -> int:
    values = [
        value.val for case in suite.test_cases for value in (*case.inputs, *case.expected_outputs)
    ]
    tensors = [value for value in values if isinstance(value, schema.Tensor)]
    return sum(len(tensor.data) + 128 for tensor in tensors) + 64 * len(values)


def _vector(builder: Any, items: Sequence[Any], write: Callable[[Any, Any], int]) -> int:
    """A vector of references to what `write` writes of each item."""
    places = [write(builder, item) for item in items]
    builder.StartVector(4, len(places), 4)
    for place in reversed(places):
        builder.PrependUOffsetTRelative(place)
    return int(builder.EndVector())


def _write_suite(builder: Any, suite: schema.BundledMethodTestSuite) -> int:
    try:
        name = builder.CreateString(suite.method_name.encode())
    except (AttributeError, UnicodeEncodeError):
        raise BundleError(f"{suite.method_name!r} is not the name of a method") from None
    cases = _vector(builder, suite.test_cases, _write_case)
    return _table(builder, name, cases)


def _write_case(builder: Any, case: schema.BundledMethodTestCase) -> int:
    inputs = _vector(builder, case.inputs, _write_value)
    outputs = _vector(builder, case.expected_outputs, _write_value)
    return _table(builder, inputs, outputs)


def _table(builder: Any, *references: int) -> int:
    builder.StartObject(len(references))
    for slot, reference in enumerate(references):
        builder.PrependUOffsetTRelativeSlot(slot, reference, 0)
    return int(builder.EndObject())


def _write_value(builder: Any, value: schema.Value) -> int:
    kind, member = _write_member(builder, value.val)
    builder.StartObject(2)
    builder.PrependUint8Slot(0, kind, 0)
    builder.PrependUOffsetTRelativeSlot(1, member, 0)
    return int(builder.EndObject())


def _write_member(builder: Any, value: schema.ValueUnion) -> tuple[int, int]:
    """The number of the union's member, and where it was written."""
    if isinstance(value, schema.Tensor):
        return _TENSOR, _write_tensor(builder, value)
    builder.StartObject(1)
    if isinstance(value, schema.Int):
        if value.int_val not in _INT64:
            raise BundleError(f"{value.int_val} does not fit in 64 bits")
        builder.PrependInt64Slot(0, value.int_val, 0)
        return _INT, int(builder.EndObject())
    if isinstance(value, schema.Bool):
        builder.PrependBoolSlot(0, value.bool_val, False)
        return _BOOL, int(builder.EndObject())
    builder.PrependFloat64Slot(0, value.double_val, 0.0)
    return _DOUBLE, int(builder.EndObject())


def _write_tensor(builder: Any, tensor: schema.Tensor) -> int:
    data = np.frombuffer(tensor.data, np.uint8)
    if sorted(tensor.dim_order) != list(range(len(tensor.sizes))):
        raise BundleError(f"{tensor.dim_order} is not an order of {len(tensor.sizes)} dimensions")
    size = ScalarType(tensor.scalar_type).nbytes(math.prod(tensor.sizes))
    if size != len(data):
        raise BundleError(
            f"a tensor of size {tensor.sizes} has {size:,} bytes, and is given {len(data):,}"
        )
    sizes = builder.CreateNumpyVector(np.array(tensor.sizes, "<i4"))
    order = builder.CreateNumpyVector(np.array(tensor.dim_order, np.uint8))
    builder.Prep(_TENSOR_ALIGNMENT, len(data))
    content = builder.CreateNumpyVector(data)
    builder.StartObject(4)
    builder.PrependInt8Slot(0, tensor.scalar_type, 0)
    builder.PrependUOffsetTRelativeSlot(1, sizes, 0)
    builder.PrependUOffsetTRelativeSlot(2, content, 0)
    builder.PrependUOffsetTRelativeSlot(3, order, 0)
    return int(builder.EndObject())
