"""What is compared, as arrays: read without a copy, and gone through part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.formats.program.scalar_type import as_numpy

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

PART = 1 << 16  # elements at a time; the float64 copies of a part stay in the cache


@dataclass(frozen=True, slots=True)
class Quantization:
    """How codes stand for numbers: ``(code - zero_point) * scale``.

    With `axis`, scale and zero point have one entry for each index of that dimension; a single
    zero point is for all.
    """

    scale: Any
    zero_point: Any = 0
    axis: int | None = None

    def dequantized(self, codes: Array) -> Float64:
        """The numbers, in float64."""
        numbers: Float64 = codes.astype(np.float64)
        scale, zero_point = self._spread(codes, "scale"), self._spread(codes, "zero_point")
        numbers -= zero_point
        numbers *= scale
        return numbers

    def _spread(self, codes: Array, name: str) -> Float64:
        """A parameter in a shape in which each entry meets its own codes."""
        given: Float64 = np.asarray(getattr(self, name), np.float64)
        if given.ndim == 0 or (self.axis is None and given.shape == (1,)):
            return given.reshape(())
        if self.axis is None:
            raise UsageError(
                f"{name} has the shape {list(given.shape)}, and there is no axis",
                hint="name the dimension that the entries are for: axis=",
            )
        if not -codes.ndim <= self.axis < codes.ndim:
            raise UsageError(f"axis {self.axis} is none of {codes.ndim} dimensions")
        size = codes.shape[self.axis]
        if given.shape != (size,):
            raise UsageError(
                f"{name} has the shape {list(given.shape)}, dimension {self.axis} of the codes "
                f"{size} entries"
            )
        shape = [1] * codes.ndim
        shape[self.axis] = size
        return given.reshape(shape)


def as_array(value: Any) -> Array | None:
    """A tensor, an array or a number as an array, without a copy; None for what is not numeric.

    A quantised tensor of torch is taken as the numbers that it stands for.

    Raises `UsageError` for complex numbers, and for tensors that cannot be read.
    """
    if value is None or isinstance(value, (str, bytes, list, tuple, dict)):
        return None
    if getattr(value, "is_quantized", False) is True:  # of torch
        value = value.dequantize()
    if isinstance(value, complex) or "complex" in str(getattr(value, "dtype", "")):
        raise UsageError(
            "complex numbers cannot be compared", hint="compare their real and imaginary parts"
        )
    try:
        array = as_numpy(value) if hasattr(value, "detach") else np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # sparse, on no device, ...
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"a {type(value).__name__} cannot be read as an array: {error}") from error
    return _known(array)


def _known(array: Array) -> Array | None:
    """The array in a type that the metrics know; None if it does not hold numbers."""
    name = array.dtype.name
    if array.dtype.kind == "V":  # the types of ml_dtypes
        if name.startswith(("int", "uint")):  # 4 bits and less
            return array.astype(np.int8)
        return array if name.startswith(("bfloat", "float")) else None
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    return array if array.dtype.kind in "biuf" else None


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether it is a type of integers or of booleans."""
    return dtype.kind in "biu"


def parts(reference: Array, value: Array) -> Iterator[tuple[Array, Array]]:
    """The elements of both in the order of their indices, some at a time, in their own types.

    What is yielded may be a buffer that the next part is put in.
    """
    if reference.flags.c_contiguous and value.flags.c_contiguous:
        one, other = reference.reshape(-1), value.reshape(-1)
        for start in range(0, one.size, PART):
            yield one[start : start + PART], other[start : start + PART]
        return
    iterator = np.nditer(
        [reference, value],
        flags=["external_loop", "buffered", "zerosize_ok"],
        order="C",
        buffersize=PART,
    )
    yield from iterator
