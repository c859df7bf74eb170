"""ExecuTorch's tensor element types: the numbers that ETDump, .pte and .bpte files share.

The numbering is that of `scalar_type.fbs` (ExecuTorch 1.5), which follows PyTorch's; the numbers
that are missing here (complex, 8-bit bags and so on) are in none of these files.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

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
        """How many values a storage unit packs: 2 for QUINT4X2, 4 for QUINT2X4, else 1."""
        return _PACKED.get(self, 1)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of a storage unit, from ml_dtypes where numpy has none of its own."""
        name = _TYPES[self][2]
        if name.startswith(("bfloat", "float8")):
            import ml_dtypes

            name = getattr(ml_dtypes, name)
        dtype: np.dtype[Any] = np.dtype(name)
        return dtype

    def nbytes(self, numel: int) -> int:
        """Bytes that `numel` values take, the last unit rounded up."""
        return -(-numel // self.values_per_unit) * self.itemsize


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


# Types that are more than their storage are not meant by numpy's names.
_BY_NAME = {name: kind for kind, (name, _, stored_as) in _TYPES.items() if name == stored_as}


def scalar_type_of(dtype: np.dtype[Any] | str) -> ScalarType:
    """The type of a numpy (or ml_dtypes) dtype, or of its name in numpy and torch: "bfloat16".

    Raises `UsageError` for a dtype that ExecuTorch's files cannot hold, such as "complex64".
    """
    name = dtype if isinstance(dtype, str) else dtype.name
    if name not in _BY_NAME:
        raise UsageError(f"ExecuTorch has no scalar type for {name}")
    return _BY_NAME[name]
