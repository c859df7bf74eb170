"""Events and values that a delegate logs in a call: how events nest in time, and how values are
brought to the graph's form.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from etscope.formats.program.scalar_type import numpy_dtype
from etscope.model.event_table import Clock, Meaning
from etscope.model.graph import Graph, Node, TensorSpec, stem

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """All events that a delegate logged in one instruction, in the order of the log.

    names: event names, or their numbers as text. identifiers: the identifiers in the log. start,
    ticks: int64 [events, runs], in ticks of the dump's clock. call_start, call_ticks: the same for
    the call itself, int64 [runs]; None if it is not in the log. metadata: bytes that the delegate
    attached to each event in the first run; () if there are none.
    """

    names: Sequence[str]
    identifiers: Sequence[int | str]
    start: Ints
    ticks: Ints
    call_start: Ints | None = None
    call_ticks: Ints | None = None
    metadata: Sequence[bytes] = ()

    def metadata_of(self, number: int) -> bytes:
        """Return the bytes attached to an event; b"" for none."""
        return self.metadata[number] if self.metadata else b""

    @property
    def is_inside(self) -> npt.NDArray[np.bool_]:
        """Mask of the events inside the call in all runs: bool [events]."""
        if self.call_start is None or self.call_ticks is None:
            return np.ones(len(self.names), np.bool_)
        begins = self.call_start <= self.start
        ends = self.start + self.ticks <= self.call_start + self.call_ticks
        return np.asarray((begins & ends).all(axis=1), np.bool_)


def in_a_row(call: LoggedCall) -> list[Meaning]:
    """Return the events as times one after the other, without nesting."""
    # One event outside the call shows that all use another clock.
    clock = Clock.RUNTIME if call.is_inside.all() else Clock.DEVICE
    return [
        Meaning(name, identifier, clock=clock)
        for name, identifier in zip(call.names, call.identifiers, strict=True)
    ]


def nested(call: LoggedCall) -> list[Meaning]:
    """Return the events as times, each with the event around it as parent."""
    found = zip(in_a_row(call), parents(call), strict=True)
    return [replace(meaning, parent=parent) for meaning, parent in found]


def parents(call: LoggedCall) -> list[int | None]:
    """Return for each event the innermost event that holds it in all runs.

    If two have the same ends, the one logged later holds the other: a delegate logs an event when
    it ends. An event without length at the end of another one is not inside it.
    """
    if not call.start.size:
        return [None] * len(call.names)
    start, end = call.start, call.start + call.ticks

    def holds(outer: int, inner: int) -> bool:
        begins, ends = start[outer] - start[inner], end[outer] - end[inner]
        if (begins > 0).any() or (ends < 0).any():
            return False
        return bool((call.ticks[inner] > 0).any() or ((begins < 0) & (ends > 0)).any())

    first = zip(start[:, 0].tolist(), (-end[:, 0]).tolist(), range(len(start)), strict=True)
    order = [number for *_, number in sorted(first, key=lambda one: (one[0], one[1], -one[2]))]
    found: list[int | None] = [None] * len(start)
    around: list[int] = []
    for number in order:
        while around and not holds(around[-1], number):
            around.pop()
        found[number] = around[-1] if around else None
        around.append(number)
    return found


# -- values

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
_WHOLE = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)
_LARGEST_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class Codes:
    """Quantization of a value: a code (integer) means (code - zero_point) * scale.

    low, high: the smallest and the largest code.
    """

    scale: float
    zero_point: int
    low: int
    high: int

    @property
    def dtype(self) -> str:
        """The smallest type that holds all codes. QNN stores this type (`deduce_dtype` in
        backends/qualcomm/builders/utils.py)."""
        sign = "u" if self.low >= 0 else ""
        bits = next((bits for bits in (8, 16) if self.high - self.low < 1 << bits), 32)
        return f"{sign}int{bits}" if bits < 32 else "int32"

    def numbers(self, codes: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
        """Return the numbers that the codes mean, as `dtype`."""
        numbers = (codes.astype(np.float64) - self.zero_point) * self.scale
        return np.asarray(numbers, numpy_dtype(dtype))

    @classmethod
    def of(cls, node: Node) -> Codes | None:
        """Return the codes of a quantize or dequantize node with one scale. Return None for another
        node, and if the graph does not have the scale as a constant."""
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
    """Steps that convert a logged array to the reference's form. None skips a step.

    order: a permutation of the dimensions. shape: the reference's shape, if it differs only in
    dimensions of size 1. codes: the quantization of the array. dtype: the reference's type, by its
    name in torch.
    """

    order: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None
    codes: Codes | None = None
    dtype: str | None = None

    def of(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the array in the reference's form."""
        if self.order is not None:
            array = array.transpose(self.order)
        if self.shape is not None:
            array = array.reshape(self.shape)
        if self.codes is not None:
            return self.codes.numbers(array, self.dtype or "float32")
        return array if self.dtype is None else array.astype(numpy_dtype(self.dtype))


@dataclass(frozen=True, slots=True)
class InnerValue:
    """A logged tensor and its value in the graph.

    identifier, dtype, shape: as logged. path: the path of the graph's node. spec: the value's type
        in the graph.
    codes: the value's quantization, if the model quantizes it.
    """

    identifier: int | str
    dtype: str
    shape: tuple[int, ...]
    path: str
    spec: TensorSpec
    codes: Codes | None = None

    @property
    def other_shape(self) -> str:
        """The reason to skip the value if its shape does not fit the graph's."""
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
    """Steps of a form that change the type."""

    codes: Codes | None = None
    dtype: str | None = None

    def form(self, **steps: Any) -> Form:
        return Form(codes=self.codes, dtype=self.dtype, **steps)


def type_form(value: InnerValue) -> Types | str:
    """Return how to convert the logged numbers to the graph's type, or why that is impossible."""
    logged, expected = value.dtype, value.spec.dtype
    if logged == expected:
        return Types()
    if {logged, expected} <= _FLOATS or {logged, expected} <= _WHOLE:
        return Types(dtype=expected)
    if logged in _WHOLE and expected in _FLOATS:
        if value.codes is None:
            return (
                f"logged as {logged} (quantized), but the record does not have the scale of "
                f"{value.path}"
            )
        if value.codes.dtype != logged:
            return (
                f"logged as {logged}, but the record quantizes {value.path} to {value.codes.dtype}"
            )
        return Types(value.codes, expected)
    return f"logged as {logged}, but {expected} in the reference ({value.path})"


def same_shape(logged: Sequence[int], expected: Sequence[int | str]) -> bool:
    """True if a logged shape fits the graph's; a symbolic size fits any number."""
    return len(logged) == len(expected) and all(
        isinstance(size, str) or size == given for given, size in zip(logged, expected, strict=True)
    )


def without_ones(shape: Sequence[int | str]) -> list[int | str]:
    """Return the sizes other than 1."""
    return [size for size in shape if size != 1]


class Inside(NamedTuple):
    """The backend that computes a node inside a call. in_halves: it computes in float16, although
    it logs float32 (`is_half`)."""

    backend: str
    in_halves: bool = False


def is_half(array: Any) -> bool:
    """True for a float32 array that float16 holds exactly: computed in float16, then widened."""
    if getattr(array, "dtype", None) != np.float32 or not array.size:
        return False
    with np.errstate(over="ignore"):
        return bool(np.array_equal(array, array.astype(np.float16), equal_nan=True))


def as_half(array: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Return the array in float16; None if a number is too large for it."""
    finite = np.abs(array[np.isfinite(array)])
    if finite.size and finite.max() > _LARGEST_HALF:
        return None
    return array.astype(np.float16)
