"""Explanations of wrong values by the right ones: each kind is told, and chance tells none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from etscope.analysis.metrics import find_metric
from etscope.analysis.numerics.explanations import (
    Explanation,
    Residual,
    Suspect,
    best_explanation,
)
from etscope.analysis.numerics.limits import Rules, judge
from etscope.analysis.numerics.value_patterns import non_finite, single_element, value_patterns

SQNR = find_metric("sqnr")
Fault = Callable[[np.ndarray], np.ndarray]


def value(seed: int, *shape: int) -> np.ndarray:
    """Numbers in float64, of sizes that differ from channel to channel."""
    random = np.random.default_rng(seed)
    return random.standard_normal(shape) * np.exp(random.standard_normal(shape[-1])) + 0.2


def explained(wide: np.ndarray, device: Any, dtype: Any = np.float32) -> Explanation | None:
    """What is found of a device's value, beside one that PyTorch rounded."""
    local = wide.astype(dtype)
    rules = Rules()
    judged = judge(SQNR, local, device, wide, rules)
    assert judged.is_wrong
    axis = 1 if wide.ndim == 4 else wide.ndim - 1
    residual = Residual(Suspect(device, local, wide, SQNR, rules, judged.part, axis))
    odd = non_finite(residual)
    if odd is not None:
        assert residual.leaves_rounding(odd.value)
        return Explanation(odd.kind, odd.text, odd.parameters, 1.0)
    return single_element(residual) or best_explanation(residual, value_patterns(residual))


def at(place: Any, change: Fault) -> Fault:
    def changed(numbers: np.ndarray) -> np.ndarray:
        numbers = numbers.copy()
        numbers[place] = change(numbers[place])
        return numbers

    return changed


def in_channel(change: Fault, *channels: int) -> Fault:
    return at((..., list(channels)), change)


PART = (1, slice(5, None))


FAULTS: dict[str, tuple[Fault, str, str]] = {
    "scale": (lambda x: x * 1.5, "scale", "times 1.5"),
    "small scale": (lambda x: x * 1.0002, "scale", "times 1.0002"),
    "offset": (lambda x: x + 0.25, "offset", "plus 0.25"),
    "affine": (lambda x: 2 * x - 1, "affine", "times 2 plus -1"),
    "negated": (np.negative, "negated", "with the sign turned"),
    "absolute": (np.abs, "absolute", "the absolute value"),
    "zero": (lambda x: x * 0, "zero", "zero"),
    "a channel times": (in_channel(lambda x: x * 1.3, 3), "scale", "times 1.3 in channel 3"),
    "a channel plus": (in_channel(lambda x: x + 1, 3), "offset", "plus 1 in channel 3"),
    "channels times": (in_channel(lambda x: x * 3, 2, 3, 4, 7), "scale", "in channels 2 to 4, 7"),
    "a channel missing": (in_channel(lambda x: x * 0, 5), "zero", "zero in channel 5"),
    "channels swapped": (lambda x: x[:, [0, 1, 6, 3, 4, 5, 2, *range(7, 16)]], "permuted",
                         "channels 2, 6 swapped"),
    "channels mixed": (lambda x: x[:, np.random.default_rng(1).permutation(16)], "permuted",
                       "in another order"),
    "a channel copied": (in_channel(lambda x: x, 4), "copied", "channel 4 with the numbers of"),
    "own factors": (lambda x: x * np.linspace(0.5, 2.1, 16), "scales", "in every channel"),
    "own constants": (lambda x: x + np.cos(np.arange(16.0)), "offsets", "in every channel"),
    "a row times": (lambda x: np.concatenate([x[:3], 2 * x[3:4], x[4:]]), "scale",
                    "times 2 in index 3 of dimension 0"),
    "a block": (lambda x: x + 2.0 * (np.outer(np.arange(12) < 3, np.arange(16) < 2)),
                "offset", "plus 2 in"),
    "rolled": (lambda x: np.roll(x, 1, 0), "rolled", "rolled by one up in dimension 0"),
    "shifted": (lambda x: np.concatenate([x[1:], 0 * x[:1]]), "shifted",
                "shifted by one down in dimension 0"),
    "reversed": (lambda x: x[::-1], "reversed", "reversed in dimension 0"),
    "halves": (lambda x: np.roll(x, 8, 1), "rolled", "by half of its size in dimension 1"),
    "laid out": (lambda x: np.ascontiguousarray(x.T).reshape(x.shape), "transposed",
                 "laid out with its dimensions in the order 1, 0"),
    "clamped": (lambda x: np.minimum(x, 0.5), "clamped", "cut off above at 0.5"),
    "clamped twice": (lambda x: np.clip(x, -0.25, 0.5), "clamped",
                      "cut off below at -0.25 and above at 0.5"),
    "half": (lambda x: x.astype(np.float16), "rounded", "rounded to float16"),
    "steps": (lambda x: np.rint(x / 0.25) * 0.25, "steps", "rounded to multiples of 0.25"),
    "floored": (lambda x: np.floor(x / 0.25) * 0.25, "steps", "rounded down to multiples of 0.25"),
    "part of zeros": (at(PART, np.zeros_like), "zero", "zero from [1, 5] to [1, 15]"),
    "NaN": (at(PART, lambda x: x * np.nan), "non-finite", "NaN from [1, 5] to [1, 15]"),
    "infinite": (at(PART, lambda x: x * 0 + np.inf), "non-finite", "Inf from [1, 5] to [1, 15]"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_kind_is_told(name: str) -> None:
    change, kind, words = FAULTS[name]
    wide = value(1, 12, 16)
    device = change(wide)
    if name == "a channel copied":
        device[:, 4] = wide[:, 9]
    found = explained(wide, device.astype(np.float32))
    assert found is not None and found.kind == kind, str(found)
    assert words in found.text
    assert not found.alternatives, str(found)


@pytest.mark.parametrize("kind", ["dense", "a channel", "a row", "sparse", "relative", "smooth"])
def test_a_random_error_has_no_name(kind: str) -> None:
    named = []
    for seed in range(40):
        random = np.random.default_rng(1000 + seed)
        shape = [(12, 16), (4, 8, 8), (2, 6, 5, 5), (3, 64)][seed % 4]
        wide = value(seed, *shape)
        noise = random.standard_normal(shape) * 10.0 ** random.uniform(-2, 0.5)
        if kind == "a channel":
            noise *= np.arange(shape[-1]) == 2
        elif kind == "a row":
            noise *= (np.arange(shape[0]) == 1).reshape(-1, *[1] * (len(shape) - 1))
        elif kind == "sparse":
            noise *= random.random(shape) < 0.1
            noise.flat[[1, -2, 7]] = 1.0, 2.0, 0.5
        elif kind == "relative":
            noise *= wide
        elif kind == "smooth":
            noise = np.sin(3 * wide)
        found = explained(wide, (wide + noise).astype(np.float32))
        if found is not None:
            named.append(f"{seed}: {found}")
    assert not named


def test_one_element_is_said_to_be_one() -> None:
    wide = value(2, 8, 8)
    device = wide.copy()
    device[3, 4] += 0.5
    found = explained(wide, device.astype(np.float32))
    assert found is not None and found.kind == "element"
    assert "one element, [3, 4]" in found.text


def test_two_explanations_that_fit_are_both_named() -> None:
    half = value(4, 6, 8)
    wide = np.concatenate([half, -half[::-1]])
    found = explained(wide, -wide.astype(np.float32))
    texts = {found.text, *(one.text for one in found.alternatives)}
    assert texts == {"with the sign turned", "reversed in dimension 0"}
    assert "with the sign turned, or reversed" in str(found)


def test_what_leaves_more_than_rounding_is_not_said() -> None:
    wide = value(3, 64, 64)
    noise = np.random.default_rng(0).standard_normal(wide.shape)
    device = 1.5 * wide + 1e-3 * np.abs(wide).mean() * noise  # 99.99 % of the error is the factor
    assert explained(wide, device.astype(np.float32)) is None
