"""What the runtime takes for a value of a program."""

from __future__ import annotations

import math
from typing import Any

import pytest

from etscope.formats.program.input_validation import is_same_number, sizes_fit
from etscope.formats.program.pte_schema import ShapeDynamism
from tests.support.formats.handmade import tensor

BOUND, UNBOUND = ShapeDynamism.DYNAMIC_BOUND, ShapeDynamism.DYNAMIC_UNBOUND


@pytest.mark.parametrize(
    ("shape", "dynamism", "fits"),
    [
        ((2, 4), ShapeDynamism.STATIC, True),
        ((2, 3), ShapeDynamism.STATIC, False),
        ((2, 3), BOUND, True),
        ((0, 0), BOUND, True),
        ((2, 5), BOUND, False),
        ((9, 9), UNBOUND, True),
        *(((2,), kind, False) for kind in ShapeDynamism),
        *(((2, 4, 1), kind, False) for kind in ShapeDynamism),
    ],
)
def test_shapes(shape: tuple[int, ...], dynamism: ShapeDynamism, fits: bool) -> None:
    assert sizes_fit(shape, tensor(2, 4, dynamism=dynamism)) is fits


@pytest.mark.parametrize(
    ("value", "stored"),
    [(3, 3), (True, True), ("a", "a"), (0.5, 0.5), (2, 2.0), (1e10 + 1e4, 1e10), (0.10009, 0.1)]
    + [(x, x) for x in (math.nan, math.inf, -math.inf)],
)
def test_the_same(value: Any, stored: Any) -> None:
    assert is_same_number(value, stored)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        *((4, 3), (3.0, 3), (True, 1), (1, True), (False, True), ("b", "a"), (None, 1.0)),
        *((0.6, 0.5), (0.1002, 0.1), (True, 1.0), ("1.0", 1.0), (math.nan, 1.0), (math.inf, 1.0)),
        *((5.0, math.inf), (math.inf, -math.inf), (1.0, math.nan), (math.nan, math.inf)),
        (10**400, 1.0),
        (-(10**400), -math.inf),
    ],
)
def test_not_the_same(value: Any, stored: Any) -> None:
    assert not is_same_number(value, stored)
