"""Compare the weights of two programs by content.

Weights are paired in this order:

1. The same content at the same place: *unchanged*. The place is the weight's name in the record if
  both sides have one, else its position among the program's weights, aligned as sequences. 2. The
  same content elsewhere: *moved*. Tensors of equal bytes (zeros) do not count as moved. 3. The same
  place with other content: *changed*. The place is then the name; or the module, operator and
  position of its reader; or, without records, the reader and its position in the sequence.

A pair, or two weights that are left, with the same elements in another order is *reordered*, as
when a backend stores a convolution by channels. The rest was *removed* or *added*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.stored import WEIGHTS, StoredTensor, parameter_name
from etscope.analysis.program.source_location import common_module
from etscope.errors import UsageError
from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.program.ptd import ExternalData
from etscope.formats.program.pte import Program
from etscope.formats.program.scalar_type import scalar_type_of
from etscope.model.common_subsequence import matched_anywhere, matched_in_turn
from etscope.model.graph import stem
from etscope.units import format_float

Bytes = memoryview | npt.NDArray[np.uint8]
WeightStatus = Literal["unchanged", "moved", "reordered", "changed", "added", "removed"]

OPAQUE = "bytes"  # the type of data in a .ptd file in a backend's format
_SAMPLES = 256  # bytes of a tensor: enough to separate most tensors
_CHUNK = 1 << 18  # bytes compared at a time: they fit the processor's cache


@dataclass(frozen=True)
class Weight:
    """A tensor in a program's file or in its .ptd file. Several values may share it; `tensor` is
    the first of them.

    held_in: the file with the bytes `tensor.span`. name: the weight's name in the record
    ("head.weight"), None if unknown. module: the module that reads it; "" is the root, None
    unknown.
    """

    held_in: Program | ExternalData
    tensor: StoredTensor
    name: str | None
    module: str | None

    @cached_property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes in the file, without a copy."""
        buffer, span = self.held_in.source.buffer, self.tensor.span
        return np.frombuffer(buffer[span.offset : span.offset + span.size], np.uint8)

    @property
    def operator(self) -> str | None:
        """The operator that reads it: in the record's graph, else in the program."""
        nodes = self.tensor.nodes
        return stem(nodes[0].op) if nodes else self.tensor.operator

    @property
    def part(self) -> str:
        """Return the position among the weights of its reader: "[0]" is the first weight, "[0]
        scales" are the scales of the first weight.
        """
        return f"[{self.tensor.slot}]" + (" scales" if self.tensor.label == "scales" else "")

    @property
    def place(self) -> str:
        """The name, else the reader: "head linear[0]", "forward #3 convolution[0]"."""
        if self.name is not None:
            return self.name
        if self.module is not None:
            return f"{self.module or '(root)'} {self.operator}{self.part}"
        at = "" if self.tensor.instruction is None else f"#{self.tensor.instruction} "
        return f"{self.tensor.method} {at}{self.operator or 'unread'}{self.part}"

    @cached_property
    def elements(self) -> npt.NDArray[Any] | None:
        """The stored elements, flat; None for types that pack several elements in a byte."""
        try:
            dtype = scalar_type_of(self.tensor.dtype)
        except UsageError:
            return None
        whole = len(self.data) // dtype.itemsize * dtype.itemsize
        return self.data[:whole].view(dtype.numpy_dtype)

    @property
    def is_float(self) -> bool:
        return self.tensor.dtype.startswith(("float", "bfloat"))

    @cached_property
    def dequantized(self) -> npt.NDArray[Any] | None:
        """The numbers behind the integers, flat; None if unknown."""
        quantized, elements, shape = self.tensor.quantized, self.elements, self.tensor.shape
        if quantized is None or elements is None or math.prod(shape) != len(elements):
            return None
        along: tuple[int, ...] = (1,)
        channels = 1
        if quantized.axis is not None:
            if not 0 <= quantized.axis < len(shape):
                return None
            channels = shape[quantized.axis]
            along = tuple(-1 if n == quantized.axis else 1 for n in range(len(shape)))
        scales = self._scales(quantized.scales)
        if len(scales) != channels:
            return None
        numbers = (elements.astype(np.float64) - quantized.zero_point).reshape(shape)
        numbers *= scales.reshape(along)
        return numbers.reshape(-1)

    def _scales(self, given: tuple[float, ...] | Span) -> npt.NDArray[Any]:
        if not isinstance(given, Span):
            return np.array(given, np.float32)
        if isinstance(self.held_in, ExternalData):
            return np.array([], np.float32)  # the place is one of the program
        data = self.held_in.source.buffer[given.offset : given.offset + given.size]
        return np.frombuffer(data, np.float32, len(data) // 4)

    @property
    def shape(self) -> str:
        """The shape as text: "2, 3]"."""
        return self.tensor.label.partition("[")[2]

    @property
    def layout(self) -> Hashable:
        """The order of dimensions, None in a delegate's data."""
        value = self.tensor.value
        return None if value is None else value.dim_order


# Keys to align weights without a module: type, shape and reader; then fewer of these.
_BY_READER: tuple[Callable[[Weight], Hashable], ...] = (
    lambda weight: (weight.operator, weight.part, weight.tensor.label),
    lambda weight: (weight.operator, weight.part, weight.shape),
    lambda weight: (weight.operator, weight.part),
)


@dataclass(frozen=True, slots=True)
class WeightChange:
    """A weight before and after; a side is None where the weight is missing.

    differing: the number of elements that differ; None if they cannot be compared, because the
    shapes differ, one side has integers and the other floats, or a type is packed. largest: the
    largest absolute difference of floats. relative: the norm of the difference divided by the norm
    of the earlier weight. sqnr: the SQNR in dB, where one side is a float weight and the other is
    the same weight quantized; None if unknown.
    """

    status: WeightStatus
    before: Weight | None
    after: Weight | None
    differing: int | None = None
    largest: float | None = None
    relative: float | None = None
    sqnr: float | None = None

    @property
    def is_quantized(self) -> bool:
        """True for floats on one side, and integers on the other."""
        sides = [one for one in (self.before, self.after) if one and one.tensor.dtype != OPAQUE]
        return {one.is_float for one in sides} == {True, False}

    @property
    def sqnr_text(self) -> str | None:
        """ "SQNR 40.1 dB", "exact" or "scale not known"; None if it was not quantized."""
        if not self.is_quantized:
            return None
        if self.sqnr is None:
            return "scale not known"
        return "exact" if self.sqnr == math.inf else f"SQNR {self.sqnr:.1f} dB"

    @property
    def shown(self) -> Weight:
        """The later side, or the earlier one if it was removed; a side with a name comes first."""
        sides = [side for side in (self.after, self.before) if side is not None]
        return next((side for side in sides if side.name is not None), sides[0])


def weight_sentence(change: WeightChange) -> str:
    """Describe a change: "weight head.bias: 2 of 10 elements differ, by at most 0.1"."""
    place = change.shown.place
    if change.before is None or change.after is None:
        return f"weight {place}: {change.status}, {change.shown.tensor.label}"
    labels = [side.tensor.label for side in (change.before, change.after)]
    if change.sqnr_text is not None:
        return f"weight {place}: {labels[0]} → {labels[1]}, quantized: {change.sqnr_text}"
    if change.differing is None or change.largest is None:
        if labels[0] != labels[1]:
            return f"weight {place}: {labels[0]} → {labels[1]}"
        counted = "" if change.differing is None else f", {change.differing:,} elements differ"
        return f"weight {place}: {change.status}{counted}"
    elements = change.shown.elements
    total = f" of {len(elements):,}" if elements is not None else ""
    relative = "" if change.relative is None else f", relative error {change.relative:.2%}"
    return (
        f"weight {place}: {change.differing:,}{total} elements differ, by at most "
        f"{format_float(change.largest)}{relative}"
    )


def weights_of(export: Export, stored: Sequence[StoredTensor]) -> tuple[Weight, ...]:
    """The weights of a program, each place once, by its first reader; not of missing .ptd files."""
    holders = {key: one for one in export.data for key in one.entries}
    places: dict[tuple[int, Span], tuple[Program | ExternalData, StoredTensor]] = {}
    for tensor in stored:
        held_in: Program | ExternalData = export.needed_program
        if tensor.key is not None and tensor.key in holders:
            held_in = holders[tensor.key]
            tensor = replace(tensor, span=held_in.entries[tensor.key].blob)
        if tensor.span.size:
            places.setdefault((id(held_in), tensor.span), (held_in, tensor))
    return tuple(
        Weight(
            held_in=held_in,
            tensor=tensor,
            name=parameter_name(tensor, export.edge_nodes(tensor.method).symbols.graph),
            module=common_module(tensor.nodes),
        )
        for held_in, tensor in places.values()
    )


def external_weights(data: ExternalData) -> tuple[Weight, ...]:
    """The data of a .ptd file as weights, named by their keys."""
    found = []
    for key, entry in data.entries.items():
        label = str(entry) or OPAQUE
        if entry.dim_order != tuple(range(len(entry.sizes))):
            label = f"{entry} in order {', '.join(map(str, entry.dim_order))}"
        tensor = StoredTensor(
            method="",
            span=entry.blob,
            kind=WEIGHTS,
            dtype=OPAQUE if entry.scalar_type is None else entry.scalar_type.torch_name,
            label=label,
            instruction=None,
            operator=None,
            slot=0,
            shape=entry.sizes,
            key=key,
        )
        found.append(Weight(held_in=data, tensor=tensor, name=key, module=None))
    return tuple(found)


def compare_by_name(before: Sequence[Weight], after: Sequence[Weight]) -> list[WeightChange]:
    """Pair weights by name, then the rest by content: these *moved* to another name. In the order
    of the later side, removed ones last."""
    return _Pairing(before, after).by_name()


def compare_weights(before: Sequence[Weight], after: Sequence[Weight]) -> list[WeightChange]:
    """Pair the weights of two programs, in the order of the later side, removed ones last."""
    return _Pairing(before, after).changes()


class _Pairing:
    """The pairs found so far, and the weights of both sides that are left."""

    def __init__(self, before: Sequence[Weight], after: Sequence[Weight]) -> None:
        self._sides = before, after
        self._left = list(range(len(before))), list(range(len(after)))
        self._pairs: dict[int, tuple[int, WeightStatus]] = {}  # by position on the later side
        self._content = self._numbered()

    def changes(self) -> list[WeightChange]:
        located = all(any(weight.module is not None for weight in side) for side in self._sides)
        self._pair("unchanged", self._equal(lambda w: w.name, with_content=True))
        self._pair("unchanged", self._equal(_by_reader, with_content=True))
        self._pair("unchanged", self._aligned((self._content_of,), located))
        self._pair("moved", self._moved())
        self._pair("changed", self._equal(lambda w: w.name))
        self._pair("changed", self._equal(_by_reader))
        self._pair("changed", self._aligned(_BY_READER, located))
        self._pair("reordered", self._reordered())
        return self._changes()

    def by_name(self) -> list[WeightChange]:
        self._pair("changed", self._equal(lambda w: w.name))
        self._pair("moved", self._moved())
        return self._changes()

    def _changes(self) -> list[WeightChange]:
        before, after = self._sides
        found = [
            self._change(before[self._pairs[j][0]], after[j], self._pairs[j][1])
            if j in self._pairs
            else WeightChange("added", None, after[j])
            for j in range(len(after))
        ]
        return found + [WeightChange("removed", before[i], None) for i in self._left[0]]

    def _pair(self, status: WeightStatus, found: Sequence[tuple[int, int]]) -> None:
        self._pairs.update((j, (i, status)) for i, j in found)
        for side, taken in enumerate(zip(*found, strict=True)):
            gone = set(taken)
            self._left[side][:] = [one for one in self._left[side] if one not in gone]

    def _content_of(self, weight: Weight) -> Hashable:
        return self._content[id(weight)]

    def _equal(
        self, place: Callable[[Weight], Hashable | None], *, with_content: bool = False
    ) -> list[tuple[int, int]]:
        """Pair weights of the same known place, in order. with_content: only with equal content."""

        def key(weight: Weight) -> Hashable | None:
            where = place(weight)
            content = self._content_of(weight) if with_content else None
            return None if where is None else (where, content)

        return self._same(key)

    def _moved(self) -> list[tuple[int, int]]:
        return self._same(
            lambda w: None if not len(w.data) or _is_uniform(w.data) else self._content_of(w)
        )

    def _reordered(self) -> list[tuple[int, int]]:
        counts = [
            {(w.tensor.dtype, w.tensor.span.size) for w in (side[i] for i in left)}
            for left, side in zip(self._left, self._sides, strict=True)
        ]

        def key(weight: Weight) -> Hashable | None:
            kind = weight.tensor.dtype, weight.tensor.span.size
            elements = weight.elements if kind in counts[0] & counts[1] else None
            if elements is None or _is_uniform(weight.data):
                return None
            return kind, _moments(elements)

        return self._same(key)

    def _same(self, key: Callable[[Weight], Hashable | None]) -> list[tuple[int, int]]:
        """Pair weights of the same key, in order; None has no partner."""
        before, after = (
            {i: key(side[i]) for i in left}
            for left, side in zip(self._left, self._sides, strict=True)
        )
        return matched_anywhere(before, after)

    def _aligned(
        self, tokens: Sequence[Callable[[Weight], Hashable]], located: bool
    ) -> list[tuple[int, int]]:
        """Pair the rest, aligned as sequences. located: only weights of unknown modules."""
        left = [
            [i for i in mine if not (located and side[i].module is not None)]
            for mine, side in zip(self._left, self._sides, strict=True)
        ]
        before, after = (
            [side[i] for i in mine] for mine, side in zip(left, self._sides, strict=True)
        )
        found = matched_in_turn(before, after, tokens)
        return [(left[0][i], left[1][j]) for i, j in found]

    def _change(self, before: Weight, after: Weight, status: WeightStatus) -> WeightChange:
        if self._content_of(before) == self._content_of(after):
            if before.tensor.label != after.tensor.label:  # another shape of the same bytes
                return WeightChange("changed", before, after, 0)
            # Only their place can pair tensors of zeros.
            return WeightChange("unchanged" if status == "changed" else status, before, after, 0)
        one, other = before.elements, after.elements
        if one is None or other is None or len(one) != len(other):
            return WeightChange("changed", before, after)
        floats = before.is_float and after.is_float
        same_type = before.tensor.dtype == after.tensor.dtype
        if before.layout != after.layout or before.shape != after.shape:
            same = same_type and _moments(one) == _moments(other)
            return WeightChange("reordered" if same else "changed", before, after)
        if floats or same_type:
            return WeightChange("changed", before, after, *_difference(one, other, floats))
        sqnr = _sqnr(before, after) if before.is_float != after.is_float else None
        return WeightChange("changed", before, after, sqnr=sqnr)

    def _numbered(self) -> Mapping[int, int]:
        """Number the weights by content, by `id`: equal numbers are equal bytes of one type.
        Compares only weights of one size with the same sample: in most programs one other
        weight."""
        sizes = [{weight.tensor.span.size for weight in side} for side in self._sides]
        numbers: dict[int, int] = {}
        known: dict[Hashable, list[tuple[npt.NDArray[np.uint8], int]]] = {}
        for side in self._sides:
            for weight in side:
                data, number = weight.data, len(numbers)
                if len(data) in sizes[0] & sizes[-1]:
                    sample = data[:: max(1, len(data) // _SAMPLES)].tobytes()
                    alike = known.setdefault((weight.tensor.dtype, len(data), sample), [])
                    found = next((n for other, n in alike if same_bytes(data, other)), None)
                    if found is None:
                        alike.append((data, number))
                    number = number if found is None else found
                numbers[id(weight)] = number
        return numbers


def _by_reader(weight: Weight) -> Hashable | None:
    return None if weight.module is None else (weight.module, weight.operator, weight.part)


def same_bytes(one: Bytes, other: Bytes) -> bool:
    """Return True for equal bytes; memoryviews compare element by element, bytes all at once."""
    return len(one) == len(other) and all(
        bytes(one[at : at + _CHUNK]) == bytes(other[at : at + _CHUNK])
        for at in range(0, len(one), _CHUNK)
    )


def _is_uniform(data: npt.NDArray[np.uint8]) -> bool:
    sample = data[:: max(1, len(data) // _SAMPLES)]
    return bool((sample == sample[0]).all() and (data == data[0]).all())


def _moments(elements: npt.NDArray[Any]) -> tuple[int, int]:
    """Sums of the bits and of their squares, modulo 2**64: equal for reordered elements."""
    bits = elements.view(f"u{elements.itemsize}")
    first = second = 0
    for at in range(0, len(bits), _CHUNK):
        words = bits[at : at + _CHUNK].astype(np.uint64)
        first += int(words.sum())
        second += int((words * words).sum())
    return first % 2**64, second % 2**64


def _difference(
    before: npt.NDArray[Any], after: npt.NDArray[Any], floats: bool
) -> tuple[int, float | None, float | None]:
    """Return the number of elements that differ; for floats also the largest absolute difference,
    and the norm of the difference by the norm of `before`. NaN equals NaN."""
    if not floats:
        return int(np.count_nonzero(before != after)), None, None
    differing, largest, squares, scale = 0, 0.0, 0.0, 0.0
    step = _CHUNK // before.itemsize
    for at in range(0, len(before), step):
        sums = _sums(before[at : at + step], after[at : at + step], np.float32)
        if not np.isfinite(sums).all():  # large values, infinities or NaN
            sums = _sums(before[at : at + step], after[at : at + step], np.float64)
        differing += int(sums[0])
        largest = max(largest, sums[1])
        squares += sums[2]
        scale += sums[3]
    return differing, largest, (squares / scale) ** 0.5 if scale else None


def _sqnr(before: Weight, after: Weight) -> float | None:
    """Return the signal-to-quantization-noise ratio of a float weight and a quantized one, in dB;
    None if the numbers behind the integers are unknown, or either is not finite."""
    exact, rounded = (before, after) if before.is_float else (after, before)
    reference, numbers = exact.elements, rounded.dequantized
    if reference is None or numbers is None or len(reference) != len(numbers):
        return None
    wide = reference.astype(np.float64)
    noise = float(np.linalg.norm(wide - numbers))
    signal = float(np.linalg.norm(wide))
    if not math.isfinite(noise):
        return None
    if not noise:
        return math.inf
    return 20 * math.log10(signal / noise) if signal else -math.inf


def _sums(
    before: npt.NDArray[Any], after: npt.NDArray[Any], dtype: type[np.floating[Any]]
) -> tuple[int, float, float, float]:
    """Count the elements that differ, and return the largest difference and the sums of squares of
    the difference and of `before`, computed in `dtype` at least. Equal infinities and NaN on both
    sides are equal; NaN on one side differs by no number."""
    wide = np.result_type(before.dtype if before.dtype.kind == "f" else dtype, dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        one, other = before.astype(wide, copy=False), after.astype(wide, copy=False)
        delta = other - one
        if dtype is np.float64:
            delta[(one == other) | (np.isnan(one) & np.isnan(other))] = 0
        differing = int(np.count_nonzero(delta))
        if dtype is np.float64:
            delta = np.nan_to_num(delta, nan=0.0, posinf=np.inf, neginf=-np.inf)
        largest = max(float(delta.max()), -float(delta.min()))
        return differing, largest, float(delta @ delta), float(one @ one)
