"""NumPy's own format of one array (.npy, and each member of a .npz)."""

from __future__ import annotations

import io
import math
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from etscope.errors import FormatError, reading

KIND = "NumPy array (.npy)"
_HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
_MAX_HEADER = 10_000


def array_of_npy(data: memoryview) -> npt.NDArray[Any]:
    """The array in the bytes of a .npy file, as a read-only view of them.

    Raises `FormatError` for what is damaged or not an array of numbers.
    """
    with reading(KIND):
        # Long enough for the longest header that is read; the elements stay where they are.
        head = io.BytesIO(data[: _MAX_HEADER + 12])
        version = npy_format.read_magic(head)
        read_header = _HEADERS.get(version)
        if read_header is None:
            raise FormatError(f"version {version[0]}.{version[1]} of the format is not supported")
        try:
            shape, fortran, dtype = read_header(head, max_header_size=_MAX_HEADER)
        except (SyntaxError, TokenError) as error:  # the header is Python source
            raise FormatError(f"the header cannot be read: {error}") from error
        _check_type(dtype)
        count = math.prod(shape)
        content = data[head.tell() :]
        if min(shape, default=0) < 0 or count * dtype.itemsize > len(content):
            raise FormatError(
                f"an array {dtype.name}{list(shape)} has only {len(content):,} bytes of data",
                hint="the file may be cut off",
            )
        flat = np.frombuffer(content, dtype, count)
        return flat.reshape(shape, order="F" if fortran else "C")


def _check_type(dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        raise FormatError(
            "an array of Python objects is a pickle, which etscope never loads",
            hint="save arrays of one shape and of a type of numbers",
        )
    if dtype.kind == "V":
        raise FormatError(
            f"an array of the type {dtype.str}: NumPy's format has no bfloat16 or float8",
            hint="write these to a .safetensors or torch.save file",
        )
    if dtype.kind not in "biufc":
        raise FormatError(f"an array of the type {dtype.name} is not a tensor")


def npy_header(array: npt.NDArray[Any]) -> bytes:
    """What stands before the elements, in the order of the sizes, of a C-contiguous array."""
    head = io.BytesIO()
    description = npy_format.dtype_to_descr(array.dtype)
    npy_format.write_array_header_1_0(
        head, {"descr": description, "fortran_order": False, "shape": array.shape}
    )
    return head.getvalue()
