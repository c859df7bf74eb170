"""The choice of a token from logits."""

from __future__ import annotations

import numpy as np
import pytest

from etscope.analysis.generation.plan import choose, uniform
from etscope.formats.generation import Sampler

LOGITS = np.array([0.5, 2.0, -1.0, 2.0, 1.0], np.float32)
GREEDY = Sampler()


def drawn(sampler: Sampler, logits: np.ndarray = LOGITS, count: int = 4000) -> np.ndarray:
    """How often each token is chosen."""
    chosen = [choose(logits, sampler, step) for step in range(count)]
    return np.bincount(chosen, minlength=len(logits)) / count


def test_greedy_takes_the_first_of_the_largest() -> None:
    assert choose(LOGITS, GREEDY, 0) == 1
    assert choose(np.array([-np.inf, -np.inf], np.float32), GREEDY, 0) == 0
    # NaN is never the largest.
    assert choose(np.array([np.nan, -3, -2, np.nan], np.float32), GREEDY, 0) == 2
    assert choose(np.array([np.nan, -3], np.float32), Sampler(1.0), 0) == 1


def test_draws_have_the_probabilities() -> None:
    wanted = np.exp(LOGITS / 0.7) / np.exp(LOGITS / 0.7).sum()
    assert np.abs(drawn(Sampler(0.7, seed=5)) - wanted).max() < 0.03


def test_top_k_keeps_the_likeliest_and_of_equals_the_first() -> None:
    found = drawn(Sampler(1.0, top_k=1))
    assert found[1] == 1
    assert set(np.flatnonzero(drawn(Sampler(1.0, top_k=3)))) == {1, 3, 4}


@pytest.mark.parametrize(("top_p", "kept"), [(0.3, {1}), (0.5, {1, 3}), (1.0, {0, 1, 2, 3, 4})])
def test_top_p_keeps_the_fewest_that_have_it(top_p: float, kept: set[int]) -> None:
    assert set(np.flatnonzero(drawn(Sampler(1.0, top_p=top_p)))) == kept


def test_the_random_numbers_stay_what_they_are() -> None:
    """Other runners make them, too, and saved runs name their seed."""
    assert [uniform(7, step) for step in range(3)] == [
        0.7215081806049702,
        0.6497043364684557,
        0.5493743249193239,
    ]
    many = np.array([uniform(seed, step) for seed in range(50) for step in range(50)])
    assert abs(many.mean() - 0.5) < 0.02
    assert 0 <= many.min() < many.max() < 1
