"""All values that a dump logged at once, as columns: how many of which type, and how large.

`ETDump.value` gives one; this answers for a hundred thousand without an object for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, reading
from etscope.formats.bytes.flatbuffer_columns import FlatBuffer, IntArray, Tables
from etscope.formats.etdump.debug_value import ValueType
from etscope.formats.etdump.reader import ETDump
from etscope.formats.program.scalar_type import scalar_type

_MOST_DIMENSIONS = 32  # as `debug_value` allows
_MOST_ELEMENTS = float(1 << 60)
_SIZE = np.dtype("<i8")


@dataclass(frozen=True, slots=True, eq=False)
class LoggedValues:
    """D values, and the T tensors among them and in their lists, in the order of the events.

    `offset` counts bytes of the debug buffer; -1 for a tensor without elements. `nbytes` is what
    the tensor takes there.
    """

    kind: npt.NDArray[np.int8]  # [D], a `ValueType`
    scalar_type: npt.NDArray[np.int8]  # [T], a `ScalarType`
    offset: npt.NDArray[np.int64]  # [T]
    nbytes: npt.NDArray[np.int64]  # [T]

    @property
    def buffer_size(self) -> int:
        """Bytes that the debug buffer must have to hold all tensors."""
        return int((self.offset + self.nbytes).max(initial=0))


def logged_values(dump: ETDump) -> LoggedValues:
    """The values of all debug events that have one. Raises `FormatError` for what is none."""
    with reading("ETDump", dump.path):
        buffer = FlatBuffer(dump.source.buffer, 0, dump.flatbuffer_end)
        positions = dump.debug_value_offset[dump.debug_value_offset >= 0]
        values = buffer.tables(positions, 8)
        kind = values.scalar(0, "<i1")
        tensors = _tensors(buffer, values, kind)
        types, elements = tensors.scalar(0, "<i1"), _elements(buffer, tensors)
        nbytes = np.zeros(len(tensors), np.int64)
        for number in np.unique(types).tolist():
            element = scalar_type(number)
            units = -(-elements[types == number] // element.values_per_unit)
            nbytes[types == number] = units * element.itemsize
        return LoggedValues(kind, types, tensors.scalar(3, "<i8"), nbytes)


def _tensors(buffer: FlatBuffer, values: Tables, kind: npt.NDArray[Any]) -> Tables:
    """The tables of the tensors that the values are or list."""
    single = values.reference(1)[kind == ValueType.TENSOR]
    lists = values.reference(2)[kind == ValueType.TENSOR_LIST]
    if (single < 0).any() or (lists < 0).any():
        raise FormatError("a debug value says that it is a tensor, and holds none")
    listed = buffer.elements(*buffer.vectors(buffer.tables(lists, 1).reference(0), 4))
    return buffer.tables(np.concatenate([single, listed]), 4)


def _elements(buffer: FlatBuffer, tensors: Tables) -> IntArray:
    """How many elements each tensor has: the product of its sizes."""
    starts, dimensions = buffer.vectors(tensors.reference(1), _SIZE.itemsize)
    most = int(dimensions.max(initial=0))
    if most > _MOST_DIMENSIONS:
        raise FormatError(f"a tensor has {most} sizes")
    sizes = np.ones((len(tensors), max(most, 1)), np.int64)
    for dimension in range(most):
        has = dimensions > dimension
        sizes[has, dimension] = buffer.gather(starts[has] + dimension * _SIZE.itemsize, _SIZE)
    if (sizes < 0).any():
        raise FormatError("a tensor has a negative size")
    product = sizes.astype(np.float64).prod(axis=1)
    empty = (sizes == 0).any(axis=1)
    if (product[~empty] > _MOST_ELEMENTS).any():
        raise FormatError("a tensor has more elements than any memory holds")
    elements: IntArray = np.where(empty, 0, sizes.prod(axis=1))
    return elements
