"""Growth of a token's time over its position: found where there is some, not claimed where none."""

from __future__ import annotations

import numpy as np
import pytest

from etscope.analysis.generation.growth import growth

MEAN, NOISE = 16e6, 2e5  # ns


def noise(kind: str, count: int, random: np.random.Generator) -> np.ndarray:
    plain = random.normal(0, NOISE, count)
    if kind == "lasting":
        for index in range(1, count):
            plain[index] += 0.6 * plain[index - 1]
    if kind == "spikes":
        plain += (random.random(count) < 0.03) * random.exponential(40 * NOISE, count)
    return plain


@pytest.mark.parametrize("kind", ["plain", "lasting", "spikes"])
@pytest.mark.parametrize("count", [127, 2000])
def test_injected_growth(kind: str, count: int) -> None:
    """Over 40 samples of each kind: within the interval, claimed where it is 10 % of the mean, and
    not claimed where there is none."""
    random = np.random.default_rng(0)
    for effect, least, most in ((0.0, 0, 2), (0.1, 38, 40)):
        slope = effect * MEAN / (count - 1)
        within = claimed = 0
        for _ in range(40):
            times = MEAN + slope * np.arange(count) + noise(kind, count, random)
            found = growth(np.arange(count), times)
            assert found is not None
            within += found.low <= slope <= found.high
            claimed += found.is_certain
        assert within >= 37
        assert least <= claimed <= most


def test_times_of_several_generations_are_one_point_each() -> None:
    positions = np.tile(np.arange(10, 40), 3)
    times = 1e6 + 1000.0 * positions + np.repeat([0, 5, 1e9], 30)
    found = growth(positions, times)
    assert found is not None
    assert found.slope == pytest.approx(1000)
    assert (found.first_position, found.last_position) == (10, 39)
    assert found.is_certain


def test_an_effect_too_small_to_matter() -> None:
    found = growth(np.arange(100), 1e6 + np.arange(100) * 10.0)
    assert found is not None
    assert found.low > 0
    assert not found.is_certain, "0.1 % of the mean"


def test_too_few_positions() -> None:
    assert growth(np.arange(7), np.arange(7)) is None
    assert growth([], []) is None
