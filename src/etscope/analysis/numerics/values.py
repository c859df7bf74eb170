"""The values behind a verdict: a device's value and the expected one.

`compare_values` takes two arrays and returns what is to be seen of them in bounded space: the
distribution of both, the error by channel, the worst elements, and where they were quantized how
many stand at an end of the range. NaN and infinities are counted, and take no part in the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Quantization
from etscope.analysis.metrics.arrays import as_array, is_integer
from etscope.analysis.numerics.limits import BEYOND, tolerance_of
from etscope.errors import UsageError
from etscope.model.graph import Graph, Node, stem

BINS = 32  # of a histogram on a page; a text shows half of them
MOST_CHANNELS = 8  # in full, the worst; all others are in the profile
PROFILE = 128  # channels side by side, each the worst of its neighbours where there are more
MOST_ELEMENTS = 8  # in the table of the worst ones
QUANTILES = (0.5, 0.9, 0.99)

_NEARLY_ALL = 0.99  # of the error, in a part that is to be named
_MOST_NAMED = 4  # indices of a dimension
_CONTRAST = 20.0  # between the relative errors of the part that is named and of the rest
_INNER = (0.001, 0.999)  # quantiles; elements far outside of them do not stretch the histogram
_STRETCH = 8.0  # times the inner range: a wider one leaves most bins empty
_SAMPLE = 1 << 13  # elements that the quantiles are taken of
_LARGEST = 8e307  # an end of the histogram: the width between two ends must be finite, too

_Float64 = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Spread:
    """The finite numbers of an array, and the count of all others.

    min, max, mean, std: None without finite numbers.
    """

    dtype: str
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    nan: int
    infinite: int

    @classmethod
    def of(cls, numbers: _Float64, finite: _Float64, dtype: str) -> Spread:
        """Describe an array; `finite` are its finite numbers."""
        nan = int(np.count_nonzero(np.isnan(numbers))) if finite.size < numbers.size else 0
        infinite = numbers.size - finite.size - nan
        if not finite.size:
            return cls(dtype, None, None, None, None, nan, infinite)
        size = float(np.abs(finite).max()) or 1.0
        scaled = finite / size  # sums of the largest floats would overflow
        return cls(
            dtype=dtype,
            min=float(finite.min()),
            max=float(finite.max()),
            mean=float(scaled.mean()) * size,
            std=float(scaled.std()) * size,
            nan=nan,
            infinite=infinite,
        )


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of both arrays in the same bins of one width, from `low` to `high`.

    reference, device: finite elements by bin. reference_clipped, device_clipped: counts of far
    elements (below, above) that have no bin. With bins for them, all other elements would share
    one.
    """

    low: float
    high: float
    reference: tuple[int, ...]
    device: tuple[int, ...]
    reference_clipped: tuple[int, int] = (0, 0)
    device_clipped: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, reference: _Float64, device: _Float64, *, whole: bool) -> Histogram | None:
        """Count finite numbers of both in the same bins; None without any. whole: a bin for each
        integer, if there are few."""
        filled = [array for array in (reference, device) if array.size]
        if not filled:
            return None
        low = min(float(array.min()) for array in filled)
        high = max(float(array.max()) for array in filled)
        bins = BINS
        if whole and high - low < BINS:
            bins, low, high = int(high - low) + 1, low - 0.5, high + 0.5
        else:
            low, high = _without_far(filled, low, high)
            if not high - low > max(abs(low) * 1e-12, 1e-300):  # a single number, or as good as one
                room = max(abs(low) * 1e-3, 1e-290) if low else 0.5
                low, high = low - room, high + room
            low, high = max(low, -_LARGEST), min(high, _LARGEST)
        counts, clipped = [], []
        for array in (reference, device):
            counts.append(tuple(np.histogram(array, bins, (low, high))[0].tolist()))
            below, above = np.count_nonzero(array < low), np.count_nonzero(array > high)
            clipped.append((int(below), int(above)))
        return cls(low, high, counts[0], counts[1], clipped[0], clipped[1])

    @property
    def clipped_share(self) -> float:
        """Share of the finite elements of both that are outside of the bins."""
        outside = sum(self.reference_clipped) + sum(self.device_clipped)
        total = outside + sum(self.reference) + sum(self.device)
        return outside / total if total else 0.0


@dataclass(frozen=True, slots=True)
class ChannelError:
    """The error at one index of the channel dimension.

    rms, max_abs: NaN if only one side has a NaN, infinite if only one side has an infinity. sqnr:
    in dB. share: the share of all channels' squared errors; if errors are NaN or infinite, the
    share of their number. beyond: how many elements are off by more than the tolerance.
    """

    channel: int
    rms: float
    max_abs: float
    sqnr: float
    share: float
    beyond: int


@dataclass(frozen=True, slots=True)
class Channels:
    """Errors by index of a dimension.

    axis: the dimension, `count` its size. worst: the channels with the most error, at most
    `MOST_CHANNELS`. profile: the root mean square errors of the channels in order; each entry is
    the worst of `per_entry` neighbours.
    """

    axis: int
    count: int
    worst: tuple[ChannelError, ...]
    profile: tuple[float, ...]
    per_entry: int = 1


@dataclass(frozen=True, slots=True)
class Element:
    """An element, on both sides. error: device minus reference; NaN if one of them is NaN."""

    index: tuple[int, ...]
    reference: float
    device: float
    error: float


@dataclass(frozen=True, slots=True)
class QuantizedRange:
    """The numbers that a value can have, from an operator of the graph that quantizes.

    node, op: the operator. scale, zero_point: None when they are computed at run time, or differ by
    channel. axis: the dimension with a scale of each index; None for one scale. codes: the value
    has the integer codes, otherwise the dequantized numbers. is_next: the value is quantized only
    by the operator that reads it.
    """

    node: str
    op: str
    scale: float | None
    zero_point: int | None
    quant_min: int
    quant_max: int
    axis: int | None = None
    codes: bool = False
    is_next: bool = False

    @property
    def step(self) -> float | None:
        """The distance of neighbouring numbers; None if it is not known."""
        return 1.0 if self.codes else self.scale

    @property
    def low(self) -> float | None:
        """The smallest number of the range; None if the scale is not known."""
        return self._number(self.quant_min)

    @property
    def high(self) -> float | None:
        """The largest number of the range."""
        return self._number(self.quant_max)

    def _number(self, code: int) -> float | None:
        if self.codes:
            return float(code)
        if self.scale is None or self.zero_point is None:
            return None
        known = Quantization(self.scale, self.zero_point)
        return float(known.dequantized(np.asarray(code)))


@dataclass(frozen=True, slots=True)
class Saturated:
    """Elements at the two ends of the quantized range, or beyond them."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Concentration:
    """A small part of a value that has nearly all of the error, while the rest is fine.

    axis: the dimension of the part; None for a single element. indices: the indices in that
    dimension, or the index of the element. size: the size of the dimension. share: the share of the
    error.
    """

    axis: int | None
    indices: tuple[int, ...]
    size: int
    share: float
    is_channel: bool = False

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.indices))
        part = "all" if self.share > 0.9995 else f"{100 * self.share:.1f} %"
        if self.axis is None:
            return f"element [{listed}] has {part} of the error"
        several = len(self.indices) > 1
        verb = "have" if several else "has"
        if self.is_channel:
            name = "channels" if several else "channel"
            return f"{name} {listed} of {self.size} {verb} {part} of the error"
        name = "indices" if several else "index"
        return f"{name} {listed} of {self.size} in dimension {self.axis} {verb} {part} of the error"


@dataclass(frozen=True, slots=True)
class ValueComparison:
    """A device's value compared with a reference of the same shape.

    error_quantiles: quantiles of the absolute errors, at `QUANTILES`; empty if no two numbers can
    be compared. max_abs: NaN if only one side has a NaN. tolerance: the largest acceptable error of
    an element; `beyond` elements have larger ones. worst: the elements with the largest errors, the
    worst first. reference_saturated, device_saturated: None unless the quantized range is known.
    """

    shape: tuple[int, ...]
    reference: Spread
    device: Spread
    histogram: Histogram | None
    error_quantiles: tuple[float, ...]
    max_abs: float
    tolerance: float
    beyond: int
    channels: Channels | None
    worst: tuple[Element, ...]
    concentration: Concentration | None
    quantized: QuantizedRange | None = None
    reference_saturated: Saturated | None = None
    device_saturated: Saturated | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def compare_values(
    reference: Any,
    value: Any,
    *,
    axis: int | None = None,
    quantized: QuantizedRange | None = None,
    tolerance: float | None = None,
) -> ValueComparison:
    """Compare a device's value with a reference, element by element.

    axis: the dimension of the channels, by default none; `quantized` overrides it.
    tolerance: the error that an element may have, by default one step of a quantized value, nothing
    for integers, and a hundredth of the reference's root mean square for other floats.

    Raises `UsageError` for different shapes, values that are not numeric, and an unknown axis.
    """
    expected, found = as_array(reference), as_array(value)
    if expected is None or found is None:
        raise UsageError("only numbers and numeric tensors can be compared; this value is neither")
    if expected.shape != found.shape:
        shapes = f"{list(expected.shape)} in the reference, {list(found.shape)} on the device"
        raise UsageError(f"the shapes differ: {shapes}")
    axis = quantized.axis if quantized is not None and quantized.axis is not None else axis
    if axis is not None:
        if not -found.ndim <= axis < found.ndim:
            raise UsageError(f"axis {axis} is not one of the {found.ndim} dimensions")
        axis %= found.ndim
    with np.errstate(over="ignore", invalid="ignore"):
        one, other = expected.astype(np.float64), found.astype(np.float64)
        errors = np.asarray(other - one)  # numpy makes a number of 0 dimensions a scalar
    if (odd := ~np.isfinite(errors)).any():  # no error where both are NaN, or the same infinity
        errors[odd & ((one == other) | (np.isnan(one) & np.isnan(other)))] = 0.0
    both = [array[np.isfinite(array)] for array in (one, other)]
    exact, spread = is_integer(expected.dtype), Spread.of(one, both[0], expected.dtype.name)
    size = math.hypot(spread.mean or 0.0, spread.std or 0.0)  # root mean square
    if tolerance is None:
        step = BEYOND * size if quantized is None or quantized.step is None else quantized.step
        tolerance = 0.0 if exact else step * (1 + 1e-6)  # rounded
    absolute = np.abs(errors)
    beyond, parts = ~(absolute <= tolerance), _Parts.of(one, absolute)
    pairs = absolute[np.isfinite(one) & np.isfinite(other)]
    quantiles = np.quantile(pairs, QUANTILES, method="inverted_cdf") if pairs.size else pairs
    worst = _worst_elements(one, other, errors, absolute)
    noise = 0.0 if exact else size * tolerance_of(expected.dtype)
    return ValueComparison(
        shape=tuple(found.shape),
        reference=spread,
        device=Spread.of(other, both[1], found.dtype.name),
        histogram=Histogram.of(*both, whole=exact and is_integer(found.dtype)),
        error_quantiles=tuple(quantiles.tolist()),
        max_abs=float(absolute.max()) if absolute.size else 0.0,
        tolerance=float(tolerance),
        beyond=int(np.count_nonzero(beyond)),
        channels=None if axis is None else parts.channels(absolute, beyond, axis),
        worst=worst,
        concentration=parts.concentration(worst, axis, noise),
        quantized=quantized,
        reference_saturated=_saturated(one, quantized),
        device_saturated=_saturated(other, quantized),
    )


# -- the histogram


def _without_far(filled: Sequence[_Float64], low: float, high: float) -> tuple[float, float]:
    """The range of nearly all elements, widened, if the range of all is many times as wide."""
    ends = []
    for array in filled:
        sample = array[:: max(array.size // _SAMPLE, 1)]
        ends.append(np.quantile(sample, _INNER, method="nearest"))
    inner_low, inner_high = min(e[0] for e in ends), max(e[1] for e in ends)
    width = float(inner_high) - float(inner_low)
    if not width or not math.isfinite(width) or (high - low) <= _STRETCH * width:
        return low, high
    return max(low, float(inner_low - width / 2)), min(high, float(inner_high + width / 2))


# -- where the error is


@dataclass(frozen=True, slots=True)
class _Parts:
    """Addends of the sums over parts of a value, in the value's shape.

    errors, numbers: squares of the finite errors and reference numbers, in units of the squares of
    the largest ones, `error_unit` and `number_unit`. broken: errors that are NaN or infinite; None
    if there are none. weights: the part that each element has in the error: its square, or, if some
    are broken, these alone.
    """

    errors: _Float64
    error_unit: float
    numbers: _Float64
    number_unit: float
    broken: _Mask | None

    @classmethod
    def of(cls, reference: _Float64, absolute: _Float64) -> _Parts:
        broken = ~np.isfinite(absolute)
        squares = [_squares(array) for array in (absolute, reference)]
        return cls(*squares[0], *squares[1], broken if broken.any() else None)

    @property
    def weights(self) -> _Float64:
        return self.errors if self.broken is None else self.broken.astype(np.float64)

    def along(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Sums of all elements with one index of a dimension."""
        others = tuple(at for at in range(array.ndim) if at != axis)
        sums: npt.NDArray[Any] = array.sum(axis=others)
        return sums

    def channels(self, absolute: _Float64, beyond: _Mask, axis: int) -> Channels:
        """Errors by index of a dimension. beyond: the elements off by more than the tolerance."""
        count = absolute.shape[axis]
        each = absolute.size // count if count else 0
        shares = self.along(self.weights, axis)
        shares = shares / (shares.sum() or 1.0)
        noise, signal = (
            unit * np.sqrt(self.along(squares, axis) / max(each, 1))
            for squares, unit in (
                (self.errors, self.error_unit),
                (self.numbers, self.number_unit),
            )
        )
        others = tuple(at for at in range(absolute.ndim) if at != axis)
        largest = absolute.max(axis=others, initial=0.0)
        if self.broken is not None:  # of these, the largest is NaN or infinite, and so is the mean
            noise = np.where(np.isfinite(largest), noise, largest)
        with np.errstate(divide="ignore", invalid="ignore"):
            decibels = 20 * (np.log10(signal) - np.log10(noise))
        order = np.lexsort((-np.nan_to_num(noise, nan=math.inf, posinf=math.inf), -shares))
        off = self.along(beyond, axis)
        worst = tuple(
            ChannelError(
                channel=int(at),
                rms=float(noise[at]),
                max_abs=float(largest[at]),
                sqnr=float(decibels[at]),
                share=float(shares[at]),
                beyond=int(off[at]),
            )
            for at in order[:MOST_CHANNELS]
            if noise[at] != 0.0
        )
        per_entry = max(-(-count // PROFILE), 1)
        profile = tuple(
            float(noise[at : at + per_entry].max()) for at in range(0, count, per_entry)
        )
        return Channels(axis, count, worst, profile, per_entry)

    def concentration(
        self, worst: Sequence[Element], axis: int | None, noise: float
    ) -> Concentration | None:
        """Find the smallest part with nearly all of the error: an element, or indices of a
        dimension.

        A part with large numbers has large errors, too: its error must also be much larger than
        the rest's, relative to the numbers there. noise: the largest error must exceed it.
        """
        weights, numbers = self.weights, self.numbers
        if weights.size < 2 or not worst or abs(worst[0].error) <= noise:
            return None
        first = worst[0].index
        total, whole = float(weights.sum()), float(numbers.sum())

        def stands_out(share: float, size: float) -> bool:
            if share == 1.0 or self.broken is not None:
                return share == 1.0
            rest = max(whole - size, 0.0)
            return share >= _NEARLY_ALL and share * rest > _CONTRAST**2 * (1 - share) * size

        share = float(weights[first]) / total
        if stands_out(share, float(numbers[first])):
            return Concentration(None, first, weights.size, share)
        found: list[tuple[float, bool, Concentration]] = []
        for dimension, size in enumerate(weights.shape):
            if size < 4:
                continue
            sums = self.along(weights, dimension)
            order = np.argsort(-sums, kind="stable")[: min(max(size // 8, 1), _MOST_NAMED)]
            sizes = np.cumsum(self.along(numbers, dimension)[order])
            shares = np.cumsum(sums[order]) / total
            if np.count_nonzero(sums) <= len(order):
                shares[np.count_nonzero(sums) - 1 :] = 1.0
            for at, share in enumerate(shares.tolist()):
                if stands_out(share, float(sizes[at])):
                    indices = tuple(sorted(order[: at + 1].tolist()))
                    part = Concentration(dimension, indices, size, share, dimension == axis)
                    found.append(((at + 1) / size, dimension != axis, part))
                    break
        return min(found, key=lambda one: one[:2])[2] if found else None


def _squares(numbers: _Float64) -> tuple[_Float64, float]:
    """The squares in units of the largest one, 0 for NaN and infinities; and the root of that."""
    known = np.isfinite(numbers)
    if not known.all():
        numbers = np.where(known, numbers, 0.0)
    unit = float(np.abs(numbers).max(initial=0.0)) or 1.0
    scaled = numbers / unit
    scaled *= scaled
    return scaled, unit


def _worst_elements(
    reference: _Float64, device: _Float64, errors: _Float64, absolute: _Float64
) -> tuple[Element, ...]:
    """The largest errors, those with the smallest index first among equals."""
    keys = np.where(np.isnan(absolute), math.inf, absolute).reshape(-1)
    count = min(MOST_ELEMENTS, keys.size)
    if not count:
        return ()
    bound = np.partition(keys, keys.size - count)[keys.size - count]
    above, at_bound = np.flatnonzero(keys > bound), np.flatnonzero(keys == bound)
    chosen = [*above[np.argsort(-keys[above], kind="stable")], *at_bound[: count - above.size]]
    flat = [array.reshape(-1) for array in (reference, device, errors)]
    return tuple(
        Element(
            index=tuple(int(i) for i in np.unravel_index(at, reference.shape)),
            reference=float(flat[0][at]),
            device=float(flat[1][at]),
            error=float(flat[2][at]),
        )
        for at in chosen
        if keys[at] > 0
    )


# -- quantized values


def _saturated(numbers: _Float64, quantized: QuantizedRange | None) -> Saturated | None:
    if quantized is None:
        return None
    low, high, step = quantized.low, quantized.high, quantized.step
    if low is None or high is None or step is None:
        return None
    half = 0.5 * step  # what is nearer to an end than to the next step is rounded to the end
    return Saturated(
        int(np.count_nonzero(numbers <= low + half)), int(np.count_nonzero(numbers >= high - half))
    )


def quantized_range(graph: Graph, path: str) -> QuantizedRange | None:
    """Find the range of a node's value from the operator that fixes it: the node itself, the source
    of its codes through views and copies, or its only reader. None without such an operator."""
    node = graph.calls.get(path)
    if node is None:
        return None
    inside = graph.graph_of(node)
    source = inside.seen_through(node)
    kind = stem(source.op)
    if kind.startswith(("quantize_per_", "dequantize_per_")):
        return _range_of(source, codes=kind.startswith("quantize"))
    readers = [inside.by_name[name] for name in inside.users.get(node.name, ())]
    ranges = [_range_of(one) for one in readers if stem(one.op).startswith("quantize_per_")]
    found = {(one.scale, one.zero_point, one.quant_min) for one in ranges if one is not None}
    if len(ranges) < len(readers) or len(found) != 1:
        return None
    return _range_of(readers[0], is_next=True)


def _range_of(node: Node, *, codes: bool = False, is_next: bool = False) -> QuantizedRange | None:
    """Read the arguments of an operator of `quantized_decomposed`; None for other arguments."""
    known = dict(node.arguments)
    ends = [_number(known.get(name)) for name in ("quant_min", "quant_max")]
    if ends[0] is None or ends[1] is None:
        return None
    scale, zero_point = _number(known.get("scale")), _number(known.get("zero_point"))
    axis = _number(known.get("axis"))
    return QuantizedRange(
        node=node.name,
        op=node.op,
        scale=scale,
        zero_point=None if zero_point is None else int(zero_point),
        quant_min=int(ends[0]),
        quant_max=int(ends[1]),
        axis=None if axis is None else int(axis),
        codes=codes,
        is_next=is_next,
    )


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:  # the name of a value that is computed
        return None
    return number if math.isfinite(number) else None


_CHANNELS_SECOND = ("conv", "batch_norm", "pool", "upsample", "pixel_shuffle")


def channel_axis(op: str, dimensions: int) -> int | None:
    """The dimension of an operator's result that counts channels: the second of images and of
    whatever a convolution makes, otherwise the last. None for a scalar.

    op: as of a node ("aten.convolution.default").
    """
    if dimensions == 0:
        return None
    convolved = dimensions == 3 and any(word in stem(op) for word in _CHANNELS_SECOND)
    return 1 if dimensions in (4, 5) or convolved else dimensions - 1
