"""Agreement of logits, against numbers computed by hand and by scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special

from etscope.analysis.generation import agreement
from etscope.analysis.generation.agreement import Agreement
from etscope.errors import MismatchError, MissingDataError


def logits(*rows: list[float]) -> np.ndarray:
    """Return logits whose softmax are these probabilities."""
    with np.errstate(divide="ignore"):
        found: np.ndarray = np.log(np.array(rows, np.float64)) + 3.0
    return found


def test_divergence_by_hand() -> None:
    reference = logits([0.5, 0.25, 0.25], [0.2, 0.3, 0.5])
    program = logits([0.25, 0.5, 0.25], [0.2, 0.3, 0.5])
    found = Agreement.of(reference, program, [2, 1])
    # 0.5 ln(0.5 / 0.25) + 0.25 ln(0.25 / 0.5) + 0
    assert found.kl == pytest.approx([0.25 * math.log(2), 0.0], abs=1e-15)
    assert found.flips.tolist() == [True, False]
    assert (found.reference_top.tolist(), found.top.tolist()) == ([0, 2], [1, 2])
    assert found.margin == pytest.approx([math.log(2), math.log(0.5 / 0.3)])
    assert found.gap == pytest.approx([math.log(2), 0.0])
    assert found.rank.tolist() == [2, 1]  # 0.25 twice: the first one comes first
    assert np.exp(found.log_p) == pytest.approx([0.25, 0.3])
    assert found.top1_agreement == 0.5
    assert found.first_divergence == 0
    assert found.perplexity == pytest.approx(1 / math.sqrt(0.25 * 0.3))
    assert found.reference_perplexity == found.perplexity
    assert found.log_likelihood_difference == pytest.approx(0.0, abs=1e-15)


def test_the_standard_error_is_that_of_paired_differences() -> None:
    reference, program = logits(*[[0.5, 0.5]] * 3), logits([0.5, 0.5], [0.25, 0.75], [0.75, 0.25])
    found = Agreement.of(reference, program, [0, 0, 0])
    differences = np.log([1.0, 0.5, 1.5])
    assert found.log_likelihood_difference == pytest.approx(differences.mean())
    spread = math.sqrt(((differences - differences.mean()) ** 2).sum() / 2)
    assert found.standard_error == pytest.approx(spread / math.sqrt(3))
    assert Agreement.of(reference[:1], program[:1], [0]).standard_error is None


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_many_rows_in_chunks_are_those_of_scipy(
    dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(5)
    reference = (draw.normal(size=(23, 31)) * 4).astype(dtype)
    program = (reference + draw.normal(size=(23, 31))).astype(dtype)
    tokens = draw.integers(0, 31, 23)
    monkeypatch.setattr(agreement, "_CHUNK", 5 * 31)
    found = Agreement.of(reference, program, tokens)
    p = scipy.special.log_softmax(reference.astype(np.float64), axis=1)
    q = scipy.special.log_softmax(program.astype(np.float64), axis=1)
    assert found.kl == pytest.approx((np.exp(p) * (p - q)).sum(axis=1), rel=1e-12)
    assert found.log_p == pytest.approx(q[range(23), tokens], rel=1e-13)
    assert found.reference_log_p == pytest.approx(p[range(23), tokens], rel=1e-13)
    assert 0 < found.flips.sum() < 23
    order = np.argsort(-program.astype(np.float64), axis=1, kind="stable")
    ranks = [
        row.index(top) + 1 for row, top in zip(order.tolist(), found.reference_top, strict=True)
    ]
    assert found.rank.tolist() == ranks
    metrics = found.metrics
    assert metrics["tokens"] == 23
    assert metrics["flips"] == found.flips.sum()
    assert metrics["max_kl"] == found.kl.max()


def test_a_flip_between_equals_is_a_tie_and_diverges_nowhere() -> None:
    reference = np.array([[10.0, 10.0 - 1e-6, 0.0], [10.0, 9.5, 0.0]], np.float32)
    program = np.array([[10.0 - 1e-6, 10.0, 0.0], [9.5, 10.0, 0.0]], np.float32)
    found = Agreement.of(reference, program, [0, 0])
    assert found.flips.tolist() == [True, True]
    assert found.ties.tolist() == [True, False]
    assert found.first_divergence == 1
    # Equal logits agree, and the first of equals is the likeliest.
    row = np.array([[1.0, 3.0, 3.0]], np.float32)
    found = Agreement.of(row, row.copy(), [2])
    assert (found.top.tolist(), found.rank.tolist(), found.kl.tolist()) == ([1], [1], [0.0])
    assert (found.margin.tolist(), found.flips.tolist()) == ([0.0], [False])


def test_tokens_that_are_ruled_out() -> None:
    """p = 0 in the reference adds nothing; p = 0 in the program alone is infinitely far."""
    reference, program = logits([0.5, 0.5, 0.0]), logits([0.5, 0.25, 0.25])
    found = Agreement.of(reference, program, [0])
    assert found.kl == pytest.approx([0.5 * math.log(2)])
    back = Agreement.of(program, reference, [2])
    assert back.kl.tolist() == [math.inf]
    assert back.log_p.tolist() == [-math.inf]
    assert back.perplexity == math.inf
    assert not back.non_finite.any()


def test_nan_is_a_divergence_and_never_a_pass() -> None:
    reference = np.array([[1.0, 0.0], [1.0, 0.0]], np.float32)
    program = np.array([[1.0, 0.0], [1.0, np.nan]], np.float32)
    found = Agreement.of(reference, program, [0, 0])
    assert found.flips.tolist() == [False, False]
    assert (found.first_divergence, found.non_finite.tolist()) == (1, [False, True])
    assert math.isnan(found.mean_kl)
    assert not Agreement.of(program, program, [0, 0]).non_finite.any()
    all_nan = Agreement.of(reference[:1], np.full((1, 2), np.nan, np.float32), [0])
    assert all_nan.first_divergence == 0
    assert all_nan.rank.tolist() == [1]


def test_logits_that_do_not_fit_are_refused() -> None:
    rows = np.zeros((2, 4), np.float32)
    with pytest.raises(MismatchError, match=r"\[2, 4\] and the program's \[2, 5\]"):
        Agreement.of(rows, np.zeros((2, 5), np.float32), [0, 0])
    with pytest.raises(MismatchError, match="2 rows of logits for 3 tokens"):
        Agreement.of(rows, rows, [0, 0, 0])
    with pytest.raises(MismatchError, match="token 4 is not in the vocabulary"):
        Agreement.of(rows, rows, [0, 4])
    with pytest.raises(MissingDataError):
        Agreement.of(rows[:0], rows[:0], [])
