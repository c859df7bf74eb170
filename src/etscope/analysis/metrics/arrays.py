"""Arrays to compare, read without a copy, and a summary of two arrays from one pass over them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.formats.program.scalar_type import as_numpy

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

PART = 1 << 16  # elements at a time; the float64 copies of a part stay in the cache
_ROW = 1 << 13  # elements in a product by BLAS, which computes so few in one thread
_SMALL, _LARGE = 1e-200, 1e200  # sums of squares that are precise without a scale


@dataclass(frozen=True, slots=True)
class Quantization:
    """The quantization of integers (codes): a code represents ``(code - zero_point) * scale``.

    With `axis`, scale and zero point have one entry for each index of that dimension; a single zero
    point applies to all indices.
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
        """A parameter, reshaped to broadcast along `axis` of the codes."""
        given: Float64 = np.asarray(getattr(self, name), np.float64)
        if given.ndim == 0 or (self.axis is None and given.shape == (1,)):
            return given.reshape(())
        if self.axis is None:
            raise UsageError(
                f"{name} has the shape {list(given.shape)}, but axis= is missing",
                hint="name the dimension of the entries: axis=",
            )
        if not -codes.ndim <= self.axis < codes.ndim:
            raise UsageError(f"axis {self.axis} is not one of the {codes.ndim} dimensions")
        size = codes.shape[self.axis]
        if given.shape != (size,):
            raise UsageError(
                f"{name} has the shape {list(given.shape)}, but dimension {self.axis} of "
                f"the codes has {size} entries"
            )
        shape = [1] * codes.ndim
        shape[self.axis] = size
        return given.reshape(shape)


def as_array(value: Any) -> Array | None:
    """Return a tensor, an array or a number as an array, without a copy; None for anything that is
    not numeric.

    A quantized torch tensor is dequantized.

    Raises `UsageError` for complex numbers, and for tensors that cannot be read.
    """
    if type(value) is np.ndarray and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        return value
    if value is None or isinstance(value, (str, bytes, list, tuple, dict)):
        return None
    if getattr(value, "is_quantized", False) is True:  # of torch
        value = value.dequantize()
    if isinstance(value, complex) or "complex" in str(getattr(value, "dtype", "")):
        raise UsageError(
            "complex numbers cannot be compared",
            hint="compare the real and imaginary parts of complex numbers",
        )
    try:
        array = as_numpy(value) if hasattr(value, "detach") else np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # sparse, on no device, ...
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"a {type(value).__name__} cannot be read as an array: {error}") from error
    name = array.dtype.name
    if array.dtype.kind == "V":  # the types of ml_dtypes
        if name.startswith(("int", "uint")):  # 4 bits and less
            return array.astype(np.int8)
        return array if name.startswith(("bfloat", "float")) else None
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    return array if array.dtype.kind in "biuf" else None


def is_integer(dtype: np.dtype[Any]) -> bool:
    """True for integers and booleans."""
    return dtype.kind in "biu"


def parts(reference: Array, value: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the elements of both in the order of their indices, a part at a time.

    A yielded array may be a buffer that the next part overwrites.
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


# -- a summary of two arrays


class Need(IntEnum):
    """The sums of a `Summary` that a metric needs. Each level includes those before it."""

    ERRORS = 0  # `error`, without its largest
    SIGNAL = 1  # `r`, without its largest
    ALL = 2


@dataclass(slots=True)
class Squares:
    """A sum of squares, ``scale**2 * total``: numbers like 1e-200 do not vanish when squared.

    `scale` is 1, or the largest magnitude where squares would be too large or too small, as in
    BLAS's nrm2 (Blue, 1978). It is 0 only if all numbers are. `largest` is the largest magnitude.
    """

    scale: float = 0.0
    total: float = 0.0
    largest: float = 0.0

    def add_sum(self, total: float, largest: float) -> None:
        """Add numbers by the sum of their squares, which must be precise, and 0 only if all are."""
        self.largest = max(self.largest, largest)
        if total:
            scale = max(self.scale, 1.0)
            self.total = self.total * (self.scale / scale) ** 2 + total / scale / scale
            self.scale = scale

    def add(self, numbers: Float64) -> None:
        largest = float(np.max(np.abs(numbers), initial=0.0))
        self.largest = max(self.largest, largest)
        if largest > self.scale:
            self.total *= (self.scale / largest) ** 2
            self.scale = largest
        if self.scale:
            scaled = numbers / self.scale
            self.total += float(np.sum(scaled * scaled))  # pairwise; and no threads, as of BLAS

    @property
    def log10(self) -> float:
        """The decimal logarithm of the sum; -inf for 0."""
        return 2 * math.log10(self.scale) + math.log10(self.total) if self.scale else -math.inf


@dataclass(slots=True)
class Summary:
    """Sums and maxima over the elements of a reference r, a value v, and the errors ``|r - v|``.

    count: elements. nan: one of them is NaN; the other fields have no meaning then.
    infinite: an element is infinite on one side only, or on both with different signs.
    overflow: the difference of two finite elements is beyond float64.
    dot: the sum of r * v, in units of ``r.scale * v.scale``.

    Elements that are the same infinity in both have an error of 0, and count as 0 on both sides.

    need: what to compute in addition to `count` and the flags; the rest is 0.
    """

    need: Need = Need.ALL

    count: int = 0
    nan: bool = False
    infinite: bool = False
    overflow: bool = False
    r: Squares = field(default_factory=Squares)
    v: Squares = field(default_factory=Squares)
    error: Squares = field(default_factory=Squares)
    error_sum: float = 0.0
    error_max: float = 0.0
    relative_max: float = 0.0
    dot: float = 0.0
    # Memory for the numbers of a part: allocating it for each part takes longer than the work.
    room: Float64 = field(default_factory=lambda: np.empty((3, 0)), repr=False, compare=False)

    @property
    def equal(self) -> bool:
        """True if no element differs."""
        return not (self.nan or self.infinite or self.overflow or self.error.scale)

    def add(self, reference: Array, value: Array) -> None:
        self.count += reference.size
        if not self._add_plain(reference, value):
            self._add_any(reference, value)

    def _add_plain(self, reference: Array, value: Array) -> bool:
        """Add numbers of usual size, with few passes over them; False if they are not."""
        if _is_exact(reference.dtype) and _is_exact(value.dtype):
            return False
        with np.errstate(all="ignore"):
            if self.room.shape[1] < len(reference):
                self.room = np.empty((3, len(reference)))
            r, v, errors = self.room[:, : len(reference)]
            np.copyto(r, reference, casting="unsafe")
            np.copyto(v, value, casting="unsafe")
            np.subtract(r, v, out=errors)
            total = plain_sum(errors)
            if total is None:
                return False
            if self.need is Need.ERRORS:
                self.error.add_sum(total, 0.0)
                return True
            r_total = plain_sum(r)
            if r_total is None:
                return False
            if self.need is Need.SIGNAL:
                self.r.add_sum(r_total, 0.0)
                self.error.add_sum(total, 0.0)
                return True
            v_total, dot = plain_sum(v), _dot(r, v)
            if v_total is None:
                return False
            self._add_sums(r, v, r_total, v_total, dot)
            np.abs(errors, out=errors)
            largest = float(np.max(errors))
            self.error.add_sum(total, largest)
            self.error_sum += float(np.sum(errors))
            self.error_max = max(self.error_max, largest)
            if total:
                self._add_relative(errors, r)
        return True

    def _add_sums(self, r: Float64, v: Float64, r_total: float, v_total: float, dot: float) -> None:
        before = self.r.scale, self.v.scale
        self.r.add_sum(r_total, _largest(r))
        self.v.add_sum(v_total, _largest(v))
        if self.r.scale and self.v.scale:
            self.dot *= (before[0] / self.r.scale) * (before[1] / self.v.scale)
            self.dot += dot / self.r.scale / self.v.scale

    def _add_any(self, reference: Array, value: Array) -> None:
        r, v = reference.astype(np.float64), value.astype(np.float64)
        if is_integer(reference.dtype) and is_integer(value.dtype):
            error = integer_distance(reference, value)
        else:
            error = self._float_errors(r, v)
        if self.nan:
            return
        with np.errstate(over="ignore"):
            self.error_sum += float(np.sum(error))
        self.error_max = max(self.error_max, float(np.max(error, initial=0.0)))
        self.error.add(error)
        self._add_relative(error, r)
        self._add_dot(r, v)

    def _float_errors(self, r: Float64, v: Float64) -> Float64:
        """The errors; elements that are not finite are noted, and set to 0 in `r` and `v`."""
        finite = np.isfinite(r) & np.isfinite(v)
        if not finite.all():
            self.nan = self.nan or bool(np.isnan(r).any() or np.isnan(v).any())
            self.infinite = self.infinite or bool(np.any(r[~finite] != v[~finite]))
            r[~finite] = v[~finite] = 0.0
        with np.errstate(over="ignore"):
            error: Float64 = np.abs(r - v)
        beyond = np.isinf(error)
        if beyond.any():
            self.overflow = True
            error[beyond] = 0.0
        return error

    def _add_relative(self, error: Float64, r: Float64) -> None:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            ratios = np.abs(r)
            np.divide(error, ratios, out=ratios)  # 0 / 0 is NaN, which fmax leaves out
            largest = float(np.fmax.reduce(ratios, initial=0.0))
        self.relative_max = max(self.relative_max, largest)

    def _add_dot(self, r: Float64, v: Float64) -> None:
        before = self.r.scale, self.v.scale
        self.r.add(r)
        self.v.add(v)
        if self.r.scale and self.v.scale:
            self.dot *= (before[0] / self.r.scale) * (before[1] / self.v.scale)
            self.dot += float(np.sum((r / self.r.scale) * (v / self.v.scale)))


def _is_exact(dtype: np.dtype[Any]) -> bool:
    """True for integers that float64 does not hold exactly."""
    return is_integer(dtype) and dtype.itemsize == 8


def plain_sum(numbers: Float64) -> float | None:
    """The sum of squares; None if it is not precise: for numbers not finite, or far from 1."""
    total = _dot(numbers, numbers)
    if _SMALL < total < _LARGE:
        return total
    return 0.0 if total == 0 and not numbers.any() else None


def _dot(one: Float64, other: Float64) -> float:
    """The sum of products: row by row, as BLAS splits longer ones among threads, and the result
    would differ between runs."""
    whole = one.size - one.size % _ROW
    rest = float(np.dot(one[whole:], other[whole:]))
    if not whole:
        return rest
    rows, columns = one[:whole].reshape(-1, 1, _ROW), other[:whole].reshape(-1, _ROW, 1)
    return float(np.matmul(rows, columns).sum()) + rest


def _largest(numbers: Float64) -> float:
    return max(float(np.max(numbers)), -float(np.min(numbers)))


def summarize(reference: Array, value: Array, need: Need = Need.ALL) -> Summary:
    """The summary of two arrays of one shape; see `Summary` for `need`."""
    summary = Summary(need)
    for part in parts(reference, value):
        summary.add(*part)
        if summary.nan:
            break
    return summary


def integer_distance(a: Array, b: Array) -> Float64:
    """``|a - b|`` of integers or booleans, subtracted exactly and rounded to float64 once.

    64-bit integers are subtracted in uint64, which holds the difference of any two of one sign.
    """
    if a.dtype.itemsize < 8 and b.dtype.itemsize < 8:
        narrow: Float64 = np.abs(a.astype(np.float64) - b.astype(np.float64))
        return narrow
    (size_a, negative_a), (size_b, negative_b) = _magnitude(a), _magnitude(b)
    difference = np.maximum(size_a, size_b) - np.minimum(size_a, size_b)
    total = size_a.astype(np.float64) + size_b.astype(np.float64)
    distance: Float64 = np.where(negative_a == negative_b, difference.astype(np.float64), total)
    return distance


def _magnitude(array: Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    negative = array < 0
    bits = array.astype(np.uint64)
    return np.where(negative, np.uint64(0) - bits, bits), negative
