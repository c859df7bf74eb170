"""Tensors in ExecuTorch's files: element types, and dense storage with an order of dimensions.

ETDump, .pte and .bpte files share the numbering of `scalar_type.fbs` (ExecuTorch 1.5), which
follows PyTorch's. The schema does not have complex types, but ExecuTorch writes them into .pte
files and has kernels for them. None of these files has the numbers missing here (complex32, 8-bit
bags and so on).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, UsageError


class ScalarType(IntEnum):
    """The element type of a tensor, numbered as in ExecuTorch's files.

    A quantized type is its integer storage: scale and zero point are not in these files.
    """

    BYTE = 0
    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    COMPLEX64 = 9
    COMPLEX128 = 10
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    QUINT4X2 = 16  # two values of 4 bits in a byte
    QUINT2X4 = 17  # four values of 2 bits in a byte
    BITS16 = 22
    FLOAT8E5M2 = 23
    FLOAT8E4M3FN = 24
    FLOAT8E5M2FNUZ = 25
    FLOAT8E4M3FNUZ = 26
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29

    @property
    def torch_name(self) -> str:
        """The dtype's name in torch without the prefix: "float32", "bfloat16", "quint4x2"."""
        return _TYPES[self][0]

    @property
    def itemsize(self) -> int:
        """Bytes of one storage unit. Where units hold several values, see `values_per_unit`."""
        return _TYPES[self][1]

    @property
    def values_per_unit(self) -> int:
        """Number of values that a storage unit packs: 2 for QUINT4X2, 4 for QUINT2X4, else 1."""
        return _PACKED.get(self, 1)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of a storage unit, from ml_dtypes if numpy does not have it."""
        return numpy_dtype(_TYPES[self][2])

    def nbytes(self, numel: int) -> int:
        """Bytes that `numel` values take, the last unit rounded up."""
        return -(-numel // self.values_per_unit) * self.itemsize


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of that name in numpy, or in ml_dtypes for bfloat16 and the float8 types."""
    if name.startswith(("bfloat", "float8")):
        import ml_dtypes

        name = getattr(ml_dtypes, name)
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


# type -> torch's name, bytes of a storage unit, name of the unit's type in numpy or ml_dtypes
_TYPES: dict[ScalarType, tuple[str, int, str]] = {
    ScalarType.BYTE: ("uint8", 1, "uint8"),
    ScalarType.CHAR: ("int8", 1, "int8"),
    ScalarType.SHORT: ("int16", 2, "int16"),
    ScalarType.INT: ("int32", 4, "int32"),
    ScalarType.LONG: ("int64", 8, "int64"),
    ScalarType.HALF: ("float16", 2, "float16"),
    ScalarType.FLOAT: ("float32", 4, "float32"),
    ScalarType.DOUBLE: ("float64", 8, "float64"),
    ScalarType.COMPLEX64: ("complex64", 8, "complex64"),
    ScalarType.COMPLEX128: ("complex128", 16, "complex128"),
    ScalarType.BOOL: ("bool", 1, "bool"),
    ScalarType.QINT8: ("qint8", 1, "int8"),
    ScalarType.QUINT8: ("quint8", 1, "uint8"),
    ScalarType.QINT32: ("qint32", 4, "int32"),
    ScalarType.BFLOAT16: ("bfloat16", 2, "bfloat16"),
    ScalarType.QUINT4X2: ("quint4x2", 1, "uint8"),
    ScalarType.QUINT2X4: ("quint2x4", 1, "uint8"),
    ScalarType.BITS16: ("bits16", 2, "uint16"),
    ScalarType.FLOAT8E5M2: ("float8_e5m2", 1, "float8_e5m2"),
    ScalarType.FLOAT8E4M3FN: ("float8_e4m3fn", 1, "float8_e4m3fn"),
    ScalarType.FLOAT8E5M2FNUZ: ("float8_e5m2fnuz", 1, "float8_e5m2fnuz"),
    ScalarType.FLOAT8E4M3FNUZ: ("float8_e4m3fnuz", 1, "float8_e4m3fnuz"),
    ScalarType.UINT16: ("uint16", 2, "uint16"),
    ScalarType.UINT32: ("uint32", 4, "uint32"),
    ScalarType.UINT64: ("uint64", 8, "uint64"),
}
_PACKED = {ScalarType.QUINT4X2: 2, ScalarType.QUINT2X4: 4}


def scalar_type(number: int, *, offset: int | None = None) -> ScalarType:
    """The type of that number, or `FormatError` (at `offset` of the file) if there is none."""
    try:
        return ScalarType(number)
    except ValueError as error:
        raise FormatError(f"unknown scalar type {number}", offset=offset) from error


# numpy's names never mean quantized types: these have the storage of another type.
_BY_NAME = {name: kind for kind, (name, _, stored_as) in _TYPES.items() if name == stored_as}


def scalar_type_of(dtype: np.dtype[Any] | str) -> ScalarType:
    """The type of a numpy (or ml_dtypes) dtype, or of its name in numpy and torch: "bfloat16".

    Raises `UsageError` for a dtype that ExecuTorch's files cannot hold, such as "complex32".
    """
    name = dtype if isinstance(dtype, str) else dtype.name
    if name not in _BY_NAME:
        raise UsageError(f"ExecuTorch does not have a scalar type for {name}")
    return _BY_NAME[name]


# --------------------------------------------------------------------------------------------
# Tensors as .pte and .bpte files store them.


def dense_view(
    data: memoryview, scalar_type: ScalarType, sizes: Sequence[int], dim_order: Sequence[int]
) -> npt.NDArray[Any]:
    """The tensor that starts at `data[0]`, as a read-only view.

    `dim_order` names the dimensions from the outermost in memory to the innermost, so (0, 2, 3, 1)
    is channels-last. Types that pack several values into a byte become flat bytes. Raises
    `FormatError` if `data` is too short.
    """
    numel = math.prod(sizes)
    size = scalar_type.nbytes(numel)
    if size > len(data):
        raise FormatError(
            f"a tensor of {size:,} bytes ({scalar_type.torch_name} {tuple(sizes)}) "
            f"has only {len(data):,} bytes of data"
        )
    flat = np.frombuffer(data[:size], scalar_type.numpy_dtype)
    if scalar_type.values_per_unit > 1:
        return flat
    stored = flat.reshape([sizes[dim] for dim in dim_order])
    view: npt.NDArray[Any] = stored.transpose(np.argsort(np.asarray(dim_order, dtype=np.intp)))
    return view


def checked_dim_order(dim_order: tuple[int, ...], rank: int, *, offset: int) -> tuple[int, ...]:
    """Return `dim_order`; raise `FormatError` if it is not an order of `rank` dimensions."""
    if sorted(dim_order) != list(range(rank)):
        raise FormatError(f"{list(dim_order)} is not an order of {rank} dimensions", offset=offset)
    return dim_order


def dim_order_of(array: npt.NDArray[Any]) -> tuple[int, ...]:
    """Return the dimensions from the outermost in memory to the innermost.

    Sizes of 1 make the order ambiguous. Try the order of the sizes first, then channels-last: the
    two orders that the runtime has names for. An array that is not dense gets the order of its
    sizes.
    """
    dims = tuple(range(array.ndim))
    # Strides of dimensions of size 1 are meaningless: put these first, in order.
    by_stride = sorted(dims, key=lambda d: -array.strides[d] if array.shape[d] > 1 else -math.inf)
    for order in (dims, (*dims[:1], *dims[2:], *dims[1:2]), tuple(by_stride)):
        if array.transpose(order).flags.c_contiguous:
            return order
    return dims


def in_dim_order(array: npt.NDArray[Any], dim_order: Sequence[int]) -> npt.NDArray[Any]:
    """Return the same values, dense in memory in that order of dimensions; copied only if
    needed.
    """
    sizes = [array.shape[d] for d in dim_order]  # ascontiguousarray makes a scalar a vector of one
    dense = np.ascontiguousarray(array.transpose(dim_order)).reshape(sizes)
    view: npt.NDArray[Any] = dense.transpose(np.argsort(np.asarray(dim_order, dtype=np.intp)))
    return view


def stored_tensor(
    value: Any,
) -> tuple[ScalarType, tuple[int, ...], tuple[int, ...], memoryview]:
    """Return the type, sizes, order of dimensions and dense bytes of an array or a torch tensor,
    which keeps the order that it has in memory. Raises the error of `as_numpy`."""
    array = as_numpy(value)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    order = dim_order_of(array)
    dense = in_dim_order(array, order).transpose(order)
    data = memoryview(dense.reshape(-1).view(np.uint8))
    return scalar_type_of(array.dtype), array.shape, order, data


def as_numpy(value: Any) -> npt.NDArray[Any]:
    """Convert an array, a torch tensor or an object with `__array__`; torch is not imported.

    Types that numpy lacks come from ml_dtypes. Raises `UsageError` for a type that ExecuTorch's
    files cannot hold.
    """
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach().cpu()
        kind = scalar_type_of(str(value.dtype).removeprefix("torch."))
        if kind.numpy_dtype.isbuiltin != 1:  # numpy does not know the type, only its bits
            empty = value.new_empty(0)
            bits = empty.short() if kind.itemsize == 2 else empty.char()
            return np.asarray(value.view(bits.dtype)).view(kind.numpy_dtype)
    array: npt.NDArray[Any] = np.asarray(value)
    scalar_type_of(array.dtype)
    return array
