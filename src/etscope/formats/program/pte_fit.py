"""What the runtime takes for a value of a program: the rules, without any words about them."""

from __future__ import annotations

import math
from typing import Any

from etscope.formats.program.pte_schema import ShapeDynamism, TensorValue


def sizes_fit(shape: tuple[int, ...], wanted: TensorValue) -> bool:
    """Whether a tensor of this shape may stand where the program has `wanted`."""
    if len(shape) != len(wanted.sizes):
        return False
    if wanted.dynamism is ShapeDynamism.STATIC:
        return shape == wanted.sizes
    bounded = wanted.dynamism is ShapeDynamism.DYNAMIC_BOUND
    return not bounded or all(n <= bound for n, bound in zip(shape, wanted.sizes, strict=True))


def is_same_number(value: Any, stored: bool | int | float | str) -> bool:
    """Whether `value` is the number, or the text, that a program was exported for.

    A whole number may stand for a double, which may be a little off; a bool is no number.
    """
    if not isinstance(stored, float) or isinstance(value, bool):
        return type(value) is type(stored) and value == stored
    if not isinstance(value, (int, float)) or (isinstance(value, int) and abs(value) >= 1 << 1023):
        return False
    if math.isfinite(stored):
        return math.isfinite(value) and abs(value - stored) <= 1e-4 + 1e-5 * abs(stored)
    return value == stored or (math.isnan(stored) and math.isnan(value))
