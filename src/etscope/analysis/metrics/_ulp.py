"""Distances counted in representable numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics._arrays import Array, is_integer, parts
from etscope.analysis.metrics._summary import integer_distance


def largest_ulp_distance(reference: Array, value: Array) -> float:
    """The largest distance in units in the last place, of the value's own float type.

    The reference is rounded to that type first. IEEE floats of one sign are ordered as their bits
    are, read as integers; negated for negative numbers, the integers count all floats in order, and
    -0 and +0 are the same. The distance of two floats is the difference of their integers: the
    number of steps of `nextafter` between them (Bruce Dawson, "Comparing Floating Point Numbers",
    2012).

    For integers and booleans the unit is 1. An infinity is infinitely far from all but itself, also
    one that the reference becomes in a narrower type.
    """
    largest = 0.0
    for part in parts(reference, value):
        distance = _integers(*part) if is_integer(value.dtype) else _floats(*part)
        if math.isnan(distance):
            return math.nan
        largest = max(largest, distance)
    return largest if reference.size else math.nan


def _integers(reference: Array, value: Array) -> float:
    if is_integer(reference.dtype):
        return float(np.max(integer_distance(reference, value)))
    wide = reference.astype(np.float64)
    return float(np.max(np.abs(wide - value.astype(np.float64))))


def _floats(reference: Array, value: Array) -> float:
    dtype = value.dtype.newbyteorder("=")
    with np.errstate(over="ignore", invalid="ignore"):
        rounded, value = reference.astype(dtype), value.astype(dtype)
    wide, wide_rounded, wide_value = (x.astype(np.float64) for x in (reference, rounded, value))
    if np.isnan(wide).any() or np.isnan(wide_value).any():
        return math.nan
    far = ~np.isfinite(wide) | ~np.isfinite(wide_rounded) | ~np.isfinite(wide_value)
    if np.any(wide[far] != wide_value[far]):
        return math.inf
    return float(np.max(integer_distance(_ordered(rounded), _ordered(value))))


def _ordered(floats: Array) -> npt.NDArray[np.int64]:
    """Integers that count the floats of a type in order, 0 for both zeros."""
    size = floats.dtype.itemsize
    bits: npt.NDArray[Any] = floats.view(f"u{size}").astype(np.uint64)
    sign = np.uint64(1 << (8 * size - 1))
    magnitude = (bits & ~sign).astype(np.int64)
    ordered: npt.NDArray[np.int64] = np.where(bits & sign, -magnitude, magnitude)
    return ordered
