"""Values inside of a delegate's call, as the functions of `registry.values` take them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from etscope.formats.program.scalar_type import numpy_dtype
from etscope.model.graph import Graph, Node, TensorSpec, stem

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
_WHOLE = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)
_LARGEST_HALF = 65504.0


@dataclass(frozen=True, slots=True)
class Codes:
    """Integers that stand for numbers: a code stands for (code - zero_point) * scale.

    low, high: the smallest and the largest code.
    """

    scale: float
    zero_point: int
    low: int
    high: int

    @property
    def dtype(self) -> str:
        """The smallest type that holds all codes, which is what QNN stores (`deduce_dtype` of
        backends/qualcomm/builders/utils.py)."""
        sign = "u" if self.low >= 0 else ""
        bits = next((bits for bits in (8, 16) if self.high - self.low < 1 << bits), 32)
        return f"{sign}int{bits}" if bits < 32 else "int32"

    def numbers(self, codes: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
        """The numbers that codes stand for."""
        numbers = (codes.astype(np.float64) - self.zero_point) * self.scale
        return np.asarray(numbers, numpy_dtype(dtype))

    @classmethod
    def of(cls, node: Node) -> Codes | None:
        """The codes that an operator that quantises makes, or one that dequantises reads, by one
        scale; None for any other, and for a scale that is not written in the graph."""
        if not stem(node.op).startswith(("quantize_per_tensor", "dequantize_per_tensor")):
            return None
        known = dict(node.arguments)
        try:
            scale, zero, low, high = (
                float(known[name]) for name in ("scale", "zero_point", "quant_min", "quant_max")
            )
        except (KeyError, ValueError):
            return None
        if not (math.isfinite(scale) and scale > 0 and low < high):
            return None
        return cls(scale, int(zero), int(low), int(high))


@dataclass(frozen=True, slots=True)
class Form:
    """Steps from a logged array to the reference's.

    order: the dimensions in the order of the reference; None leaves them. shape: of the reference,
    which differs from what was logged by dimensions of 1 alone; None leaves it. codes: the array
    has these in place of numbers. dtype: the reference's, torch's name; None leaves it.
    """

    order: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None
    codes: Codes | None = None
    dtype: str | None = None

    def of(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array as the reference has it."""
        if self.order is not None:
            array = array.transpose(self.order)
        if self.shape is not None:
            array = array.reshape(self.shape)
        if self.codes is not None:
            return self.codes.numbers(array, self.dtype or "float32")
        return array if self.dtype is None else array.astype(numpy_dtype(self.dtype))


@dataclass(frozen=True, slots=True)
class InnerValue:
    """A logged tensor and the value of the graph that it is.

    identifier: as it was logged. dtype, shape: as they were logged. path: of the graph's node.
    spec: the graph's type. codes: of the value, if the model is quantised there.
    """

    identifier: int | str
    dtype: str
    shape: tuple[int, ...]
    path: str
    spec: TensorSpec
    codes: Codes | None = None

    @property
    def other_shape(self) -> str:
        """The reason of a shape that the graph's value does not have."""
        logged, expected = (
            f"[{', '.join(map(str, shape))}]" for shape in (self.shape, self.spec.shape)
        )
        return f"logged as {logged}, but {expected} in the reference ({self.path})"


@dataclass(frozen=True, slots=True)
class InnerCall:
    """Values that a delegate logged in one instruction.

    graph: the reference. inside: paths of the nodes that the call computes.
    """

    graph: Graph
    inside: Collection[str]
    values: Sequence[InnerValue]


class Types(NamedTuple):
    """The part of a form that is about types."""

    codes: Codes | None = None
    dtype: str | None = None

    def form(self, **steps: Any) -> Form:
        return Form(codes=self.codes, dtype=self.dtype, **steps)


def type_form(value: InnerValue) -> Types | str:
    """Return how the logged numbers become those of the graph's type, or why they cannot."""
    logged, expected = value.dtype, value.spec.dtype
    if logged == expected:
        return Types()
    if {logged, expected} <= _FLOATS or {logged, expected} <= _WHOLE:
        return Types(dtype=expected)
    if logged in _WHOLE and expected in _FLOATS:
        if value.codes is None:
            return (
                f"logged as {logged}, which is quantised, and the record does not say the scale "
                f"of {value.path}"
            )
        if value.codes.dtype != logged:
            return (
                f"logged as {logged}, but {value.path} is quantised to {value.codes.dtype} by "
                "the record"
            )
        return Types(value.codes, expected)
    return f"logged as {logged}, but {expected} in the reference ({value.path})"


def same_shape(logged: Sequence[int], expected: Sequence[int | str]) -> bool:
    """True if a logged shape may be the graph's, whose symbolic sizes may be any."""
    return len(logged) == len(expected) and all(
        isinstance(size, str) or size == given for given, size in zip(logged, expected, strict=True)
    )


def without_ones(shape: Sequence[int | str]) -> list[int | str]:
    """The sizes that are not 1."""
    return [size for size in shape if size != 1]


class Inside(NamedTuple):
    """The backend that computes a node in its call. in_halves: in float16, as far as the call's
    values tell, though they are float32."""

    backend: str
    in_halves: bool = False


def is_half(array: Any) -> bool:
    """True for float32 whose numbers are all of float16: computed in it, and widened."""
    if getattr(array, "dtype", None) != np.float32 or not array.size:
        return False
    with np.errstate(over="ignore"):
        return bool(np.array_equal(array, array.astype(np.float16), equal_nan=True))


def as_half(array: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """The array in float16; None if a number is too large for it."""
    finite = np.abs(array[np.isfinite(array)])
    if finite.size and finite.max() > _LARGEST_HALF:
        return None
    return array.astype(np.float16)
