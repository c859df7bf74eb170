"""Compared values: against naive definitions, with NaN, infinities and every dtype, and planted
faults in a channel, a row and an element."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from etscope.analysis.numerics.values import (
    BINS,
    MOST_CHANNELS,
    MOST_ELEMENTS,
    PROFILE,
    QuantizedRange,
    channel_axis,
    compare_values,
    quantized_range,
)
from etscope.errors import UsageError
from etscope.model.graph import Graph, Node, Value

SHAPES = arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=6)
NUMBERS = st.one_of(
    st.floats(-1e6, 1e6, width=32), st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
)
PAIRS = SHAPES.flatmap(
    lambda shape: st.tuples(
        *(arrays.arrays(np.float32, shape, elements=NUMBERS) for _ in range(2)),
        st.integers(0, len(shape) - 1),
    )
)


def naive_error(reference: float, device: float) -> float:
    if reference == device or (math.isnan(reference) and math.isnan(device)):
        return 0.0
    return device - reference


def size(error: float) -> float:
    """For sorting: NaN before all numbers."""
    return math.inf if math.isnan(error) else abs(error)


@given(PAIRS)
def test_errors_are_those_of_a_loop(pair: tuple[Any, Any, int]) -> None:
    reference, device, axis = pair
    found = compare_values(reference, device, axis=axis, tolerance=0.5)
    indices = list(product(*map(range, reference.shape)))
    errors = {i: naive_error(float(reference[i]), float(device[i])) for i in indices}
    assert found.beyond == sum(not abs(error) <= 0.5 for error in errors.values())
    largest = max(map(size, errors.values()))
    assert size(found.max_abs) == largest
    ranked = sorted((i for i in indices if errors[i] != 0.0), key=lambda i: -size(errors[i]))
    assert [one.index for one in found.worst] == ranked[:MOST_ELEMENTS]
    for one in found.worst:
        np.testing.assert_equal(
            (one.reference, one.device, one.error),
            (float(reference[one.index]), float(device[one.index]), errors[one.index]),
        )
    for side, array in ((found.reference, reference), (found.device, device)):
        assert side.nan == sum(math.isnan(x) for x in array.flat)
        assert side.infinite == sum(math.isinf(x) for x in array.flat)
        finite = [float(x) for x in array.flat if math.isfinite(x)]
        assert side.min == (min(finite) if finite else None)
        assert side.max == (max(finite) if finite else None)
        if side.mean is not None and side.std is not None:
            scale = max(map(abs, finite))
            assert side.mean == pytest.approx(math.fsum(finite) / len(finite), abs=1e-9 * scale)
            assert side.std == pytest.approx(np.std(finite), abs=1e-6 * scale)


@given(PAIRS)
def test_channels_are_those_of_a_loop(pair: tuple[Any, Any, int]) -> None:
    reference, device, axis = pair
    channels = compare_values(reference, device, axis=axis, tolerance=0.5).channels
    assert (channels.axis, channels.count) == (axis, reference.shape[axis])
    assert len(channels.profile) == channels.count  # few channels: each its own entry
    naive = []
    for channel in range(channels.count):
        pairs = zip(
            np.take(reference, channel, axis).flat, np.take(device, channel, axis).flat, strict=True
        )
        naive.append([naive_error(float(one), float(other)) for one, other in pairs])
    for errors, rms in zip(naive, channels.profile, strict=True):
        if all(map(math.isfinite, errors)):
            expected = math.sqrt(math.fsum(x * x for x in errors) / len(errors))
            assert rms == pytest.approx(expected, rel=1e-6, abs=1e-12)
        else:
            assert not math.isfinite(rms)
    is_broken = any(not math.isfinite(x) for errors in naive for x in errors)
    weights = [
        math.fsum(float(not math.isfinite(x)) if is_broken else x * x for x in errors)
        for errors in naive
    ]
    for one in channels.worst:
        errors = naive[one.channel]
        assert one.beyond == sum(not abs(x) <= 0.5 for x in errors)
        assert size(one.max_abs) == max(map(size, errors))
        share = weights[one.channel] / math.fsum(weights)
        assert one.share == pytest.approx(share, rel=1e-6, abs=1e-12)
    listed = {one.channel for one in channels.worst}
    least = min((one.share for one in channels.worst), default=0.0)
    for channel, weight in enumerate(weights):
        if channel not in listed and math.fsum(weights):
            assert weight / math.fsum(weights) <= least + 1e-9


@given(PAIRS)
def test_the_histogram_counts_every_finite_element_once(pair: tuple[Any, Any, int]) -> None:
    reference, device, _ = pair
    histogram = compare_values(reference, device).histogram
    finite = [[float(x) for x in array.flat if math.isfinite(x)] for array in (reference, device)]
    if histogram is None:
        assert not any(finite)
        return
    assert len(histogram.reference) == len(histogram.device)
    for numbers, counts, clipped in (
        (finite[0], histogram.reference, histogram.reference_clipped),
        (finite[1], histogram.device, histogram.device_clipped),
    ):
        assert sum(counts) + sum(clipped) == len(numbers)
        assert clipped[0] == sum(x < histogram.low for x in numbers)
        assert clipped[1] == sum(x > histogram.high for x in numbers)
    assert 0 <= histogram.clipped_share <= 1


def test_a_few_far_elements_do_not_stretch_the_histogram() -> None:
    reference = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    device = reference.copy()
    device[7] = 3e38
    found = compare_values(reference, device)
    assert found.histogram.high < 20
    assert found.histogram.device_clipped == (0, 1)
    assert 0 < found.histogram.clipped_share < 1e-4
    assert sum(count > 0 for count in found.histogram.reference) > BINS // 2


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64"])
def test_few_integers_have_a_bin_each(dtype: str) -> None:
    reference = np.array([0, 1, 1, 0, 1, 1], dtype)
    device = np.array([0, 1, 0, 0, 1, 1], dtype)
    found = compare_values(reference, device, axis=0)
    assert found.histogram.reference == (2, 4)
    assert found.histogram.device == (3, 3)
    assert (found.histogram.low, found.histogram.high) == (-0.5, 1.5)
    assert (found.tolerance, found.beyond) == (0.0, 1)
    assert found.worst[0].index == (2,)


def test_half_precision_is_compared_in_full() -> None:
    reference = np.array([1.0, 65504.0, 1e-7], np.float16)
    device = np.array([1.0, np.inf, 1e-7], np.float16)
    found = compare_values(reference, device, axis=0)
    assert (found.device.infinite, found.reference.dtype) == (1, "float16")
    assert found.max_abs == math.inf
    assert str(found.concentration) == "element [1] has all of the error"
    wide = np.array([[1.0, 2.0, 3.0, 4.0]], ml_dtypes.bfloat16)
    other = np.array([[1.0, 2.0, 3.5, 4.0]], ml_dtypes.bfloat16)
    found = compare_values(wide, other, axis=1)
    assert found.device.dtype == "bfloat16"
    assert [(one.index, one.error) for one in found.worst] == [((0, 2), 0.5)]


def test_a_scalar() -> None:
    found = compare_values(np.float32(1), np.float32(3), axis=channel_axis("aten.sum.default", 0))
    assert (found.shape, found.size, found.channels) == ((), 1, None)
    assert found.worst[0].index == ()
    assert found.worst[0].error == 2
    assert found.concentration is None  # there is no other element
    for number in (float("nan"), float("inf")):
        same = compare_values(np.float32(number), np.float32(number))
        assert same.max_abs == 0
        assert (same.device.nan, same.device.infinite) in ((1, 0), (0, 1))
    assert compare_values(np.float32(1.0), np.float32("nan")).beyond == 1


def test_nothing_but_nan_and_nothing_at_all() -> None:
    nan = np.full((2, 3), np.nan, np.float32)
    same = compare_values(nan, nan, axis=1)
    assert (same.beyond, same.worst, same.histogram) == (0, (), None)
    assert same.reference.min is None
    other = compare_values(np.ones((2, 3), np.float32), nan, axis=1)
    assert other.beyond == 6
    assert math.isnan(other.max_abs)
    assert other.concentration is None
    empty = compare_values(np.empty((0, 3)), np.empty((0, 3)), axis=1)
    assert (empty.size, empty.worst, empty.histogram, empty.max_abs) == (0, (), None, 0.0)
    assert empty.error_quantiles == empty.channels.worst == ()


@pytest.mark.parametrize("number", [5e-324, 1e-300, 1e300, 1.7e308])
def test_the_smallest_and_largest_floats(number: float) -> None:
    reference = np.array([[number, -number]])
    found = compare_values(reference, np.zeros((1, 2)), axis=1)
    assert found.max_abs == number
    assert found.reference.max == number
    assert sum(found.histogram.reference) + sum(found.histogram.reference_clipped) == 2
    assert sum(found.histogram.device) == 2


def test_bad_input_is_a_typed_error() -> None:
    one = np.zeros((2, 3))
    with pytest.raises(UsageError, match=r"\[2, 3\] in the reference, \[3, 2\] on the device"):
        compare_values(one, np.zeros((3, 2)))
    with pytest.raises(UsageError, match="numeric tensors can be compared"):
        compare_values(one, "text")
    with pytest.raises(UsageError, match="axis 2 is not one of the 2"):
        compare_values(one, one, axis=2)


def test_many_channels_keep_a_bounded_profile() -> None:
    reference = np.ones((1, 1000), np.float32)
    device = reference.copy()
    device[0, 777] = 5
    channels = compare_values(reference, device, axis=1).channels
    assert len(channels.profile) <= PROFILE
    assert channels.profile[777 // channels.per_entry] == 4
    assert len(channels.worst) <= MOST_CHANNELS
    assert channels.worst[0].channel == 777


# -- where the error is


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([8, 16, 64]),
    st.sampled_from([1e-3, 0.02, 0.5, 30.0]),
    st.booleans(),
)
def test_a_fault_in_one_channel_is_named(seed: int, count: int, factor: float, noisy: bool) -> None:
    random = np.random.default_rng(seed)
    reference = random.standard_normal((1, count, 6, 6)).astype(np.float32)
    device = reference.copy()
    if noisy:
        device *= 1 + 1e-6 * random.standard_normal(device.shape).astype(np.float32)
    channel = int(random.integers(count))
    device[:, channel] *= 1 + factor
    part = compare_values(reference, device, axis=1).concentration
    assert (part.axis, part.indices, part.is_channel) == (1, (channel,), True)
    assert str(part) == f"channel {channel} of {count} has all of the error"


@given(st.integers(0, 2**32 - 1))
def test_a_fault_everywhere_is_not_blamed_on_a_channel_of_large_numbers(seed: int) -> None:
    random = np.random.default_rng(seed)
    reference = random.standard_normal((1, 64, 6, 6)).astype(np.float32)
    reference[:, random.integers(64)] *= 30_000
    assert compare_values(reference, reference * 1.01, axis=1).concentration is None


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 0.3]))
def test_noise_everywhere_is_in_no_part(seed: int, noise: float) -> None:
    random = np.random.default_rng(seed)
    reference = random.standard_normal((2, 16, 5, 5)).astype(np.float32)
    device = reference + noise * random.standard_normal(reference.shape).astype(np.float32)
    assert compare_values(reference, device, axis=1).concentration is None
    rounded = reference.copy()  # which is not told of, even of one element
    rounded[1, 3, 2, 2] = np.nextafter(rounded[1, 3, 2, 2], np.float32(9))
    assert compare_values(reference, rounded, axis=1).concentration is None


@pytest.mark.parametrize(
    ("shape", "axis", "where", "factor", "text"),
    [
        ((1, 128, 96), 2, (0, 127), 1.002, "index 127 of 128 in dimension 1 has all of the error"),
        ((1, 64, 5, 5), 1, (0, [60, 3]), 1.1, "channels 3, 60 of 64 have all of the error"),
    ],
    ids=["a row by its dimension", "two channels together"],
)
def test_a_fault_in_a_part_is_named(
    shape: tuple[int, ...], axis: int, where: Any, factor: float, text: str
) -> None:
    reference = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    device = reference.copy()
    device[where] *= factor
    assert str(compare_values(reference, device, axis=axis).concentration) == text


def test_a_single_nan_is_named_by_its_element() -> None:
    reference = np.random.default_rng(0).standard_normal((1, 64, 5, 5)).astype(np.float32)
    device = reference.copy()
    device[0, 9, 4, 1] = np.nan
    device[0, 3] *= 2  # beside it, nothing else counts
    found = compare_values(reference, device, axis=1)
    assert str(found.concentration) == "element [0, 9, 4, 1] has all of the error"
    assert found.channels.worst[0].channel == 9
    assert math.isnan(found.channels.worst[0].rms)


# -- quantized values

INT8 = (("scale", "0.5"), ("zero_point", "-3"), ("quant_min", "-128"), ("quant_max", "127"))


def graph(*nodes: tuple[str, str, tuple[str, ...]], arguments: Any = INT8) -> Graph:
    made = [
        Node(name, "call_function", op, op, inputs=inputs, outputs=(Value(name),))
        for name, op, inputs in nodes
    ]
    quantizing = [
        replace(node, arguments=arguments) if "quant" in node.op else node for node in made
    ]
    return Graph("edge", tuple(quantizing))


QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"
CHAIN = graph(
    ("conv", "aten.convolution.default", ()),
    ("q", QUANTIZE, ("conv",)),
    ("d", DEQUANTIZE, ("q",)),
    ("view", "aten.view_copy.default", ("d",)),
    ("relu", "aten.relu.default", ("view",)),
    ("other", "aten.neg.default", ("relu",)),
)


@pytest.mark.parametrize(
    ("path", "node", "codes", "is_next"),
    [("conv", "q", False, True), ("q", "q", True, False), ("d", "d", False, False),
     ("view", "d", False, False)],
)  # fmt: skip
def test_the_graph_knows_the_range_of_a_value(
    path: str, node: str, codes: bool, is_next: bool
) -> None:
    found = quantized_range(CHAIN, path)
    assert (found.node, found.codes, found.is_next) == (node, codes, is_next)
    assert (found.scale, found.zero_point) == (0.5, -3)
    ends = (-128.0, 127.0) if codes else (-62.5, 65.0)
    assert (found.low, found.high) == ends


def test_other_values_have_no_range() -> None:
    assert quantized_range(CHAIN, "relu") is None
    assert quantized_range(CHAIN, "nothing") is None
    unread = graph(("d", DEQUANTIZE, ()), arguments=(("scale", "0.5"),))
    assert quantized_range(unread, "d") is None
    # One that is also read without rounding.
    neg = ("neg", "aten.neg.default", ("conv",))
    both = graph(("conv", "aten.convolution.default", ()), ("q", QUANTIZE, ("conv",)), neg)
    assert quantized_range(both, "conv") is None


def test_a_scale_of_each_channel_gives_the_axis() -> None:
    arguments = (("scales", "s"), ("zero_points", "z"), ("axis", "0"), *INT8[2:])
    op = "quantized_decomposed.dequantize_per_channel.default"
    found = quantized_range(graph(("w", op, ()), arguments=arguments), "w")
    assert (found.axis, found.scale, found.low) == (0, None, None)
    compared = compare_values(np.ones((4, 3)), np.ones((4, 3)), axis=1, quantized=found)
    assert compared.channels.axis == 0
    assert compared.device_saturated is None


def test_saturated_elements_are_counted() -> None:
    known = QuantizedRange("q", QUANTIZE, 0.5, 0, -4, 3)
    reference = np.array([-2.0, -1.8, -1.5, 0.0, 1.0, 1.5, 9.0], np.float32)
    device = np.array([-2.0, -2.0, -1.5, 0.0, 1.0, 1.5, 1.5], np.float32)
    found = compare_values(reference, device, quantized=known)
    ends = [(one.low, one.high) for one in (found.reference_saturated, found.device_saturated)]
    assert ends == [(2, 2), (2, 2)]
    assert (found.tolerance, found.beyond) == (pytest.approx(0.5), 1)  # one step is fine
    codes = QuantizedRange("q", QUANTIZE, 0.5, 0, -128, 127, codes=True)
    found = compare_values(
        np.array([-128, 0, 127], np.int8), np.array([-127, 0, 127], np.int8), quantized=codes
    )
    assert (found.reference_saturated.low, found.reference_saturated.high) == (1, 1)
    assert found.beyond == 1  # codes are integers


@pytest.mark.parametrize(
    ("op", "dimensions", "axis"),
    [
        ("aten.convolution.default", 4, 1),
        ("aten.convolution.default", 3, 1),
        ("aten.addmm.default", 2, 1),
        ("aten.native_layer_norm.default", 3, 2),
        ("aten.relu.default", 1, 0),
        ("aten.sum.default", 0, None),
        ("aten.convolution.default", 5, 1),
    ],
)
def test_the_dimension_of_channels(op: str, dimensions: int, axis: int | None) -> None:
    assert channel_axis(op, dimensions) == axis
