"""Verdicts on samples: the formulas against scipy's, and what each verdict takes."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from etscope.analysis.statistics.compare_samples import (
    Noise,
    Policy,
    Verdict,
    compare_all,
    compare_dump,
    compare_samples,
    locations,
    noise_between,
    overall,
    pooled_noise,
)
from etscope.errors import UsageError
from etscope.model.statistics import t_quantile, two_sided_p


def times(seed: int, runs: int = 100, factor: float = 1.0, sigma: float = 0.02) -> np.ndarray:
    return 1e6 * factor * np.random.default_rng(seed).lognormal(0, sigma, runs)


@pytest.mark.parametrize("freedom", [1.0, 2.0, 3.7, 30.0, 1e3, 1e5])
def test_student_is_scipys(freedom: float) -> None:
    t = np.array([0.0, 0.1, 1.0, 2.5, 10.0, 50.0, 1e3, np.inf])
    np.testing.assert_allclose(two_sided_p(t, freedom), 2 * stats.t.sf(t, freedom), rtol=1e-8)
    for p in (0.5, 0.01, 1e-6):
        assert t_quantile(p, freedom) == pytest.approx(stats.t.isf(p / 2, freedom), rel=1e-9)
    assert np.isnan(two_sided_p(np.nan, freedom))


def test_the_error_is_yuens_for_steady_samples() -> None:
    # Interleaved by size, so that nothing hangs together and nothing drifts.
    ordered = np.sort(times(0, 40))
    samples = np.concatenate([ordered[0::2], ordered[1::2]])
    samples = samples.reshape(2, 20).T.ravel()
    samples = np.random.default_rng(5).permutation(samples)
    found = locations([samples])
    assert found.centre[0] == pytest.approx(stats.trim_mean(samples, 0.2))
    winsorized = np.asarray(stats.mstats.winsorize(samples, (0.2, 0.2)))
    squares = ((winsorized - winsorized.mean()) ** 2).sum()
    left = 40 - 2 * 8
    assert found.error[0] >= np.sqrt(squares / (left * (left - 1))) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.0, Verdict.NO_DIFFERENCE), (1.10, Verdict.REGRESSED), (1 / 1.10, Verdict.IMPROVED)],
)
def test_verdicts(factor: float, verdict: Verdict) -> None:
    found = compare_samples(times(1), times(2, factor=factor))
    assert found.verdict is verdict
    assert found.low < found.relative < found.high
    assert found.relative == pytest.approx(factor - 1, abs=0.02)
    assert found == compare_samples(times(1), times(2, factor=factor))  # nothing is random


def test_too_few_samples_are_never_a_pass() -> None:
    same = times(1, 9)
    found = compare_samples(same, same)
    assert found.verdict is Verdict.CANNOT_TELL
    assert "9 runs to compare: at least 10" in found.reason
    assert compare_samples([], times(1)).verdict is Verdict.CANNOT_TELL


def test_noise_wider_than_the_effect_is_no_pass() -> None:
    found = compare_samples(times(1, 20, sigma=0.3), times(2, 20, sigma=0.3))
    assert found.verdict is Verdict.CANNOT_TELL
    assert "not inside ±3.0%" in found.reason


def test_a_real_change_below_the_minimum_effect_is_none() -> None:
    found = compare_samples(times(1, 400), times(2, 400, factor=1.01))
    assert found.verdict is Verdict.NO_DIFFERENCE
    assert found.p is not None and found.p < 0.01


def test_a_change_of_the_slow_runs_alone_is_not_told() -> None:
    before, after = times(1), times(2)
    some = after.copy()
    some[[3, 30, 31, 77]] *= 50  # outliers move nothing
    assert compare_samples(before, some).verdict is Verdict.NO_DIFFERENCE
    after[np.random.default_rng(3).random(100) < 0.75] *= 4  # preempted
    found = compare_samples(before, after)
    assert found.verdict is Verdict.CANNOT_TELL
    assert "something else may have run" in found.reason
    assert found.fastest == pytest.approx(0, abs=0.03)


def test_runs_that_do_not_overlap_are_told() -> None:
    """A quiet dump, then one of a machine that is busy for most of its runs."""
    before = times(1, 79, sigma=0.005)
    after = before.max() * (1.08 + 0.02 * np.random.default_rng(2).random(79))
    after[30:60] *= 6
    found = compare_samples(before, after)
    assert found.verdict is Verdict.REGRESSED
    assert 0.03 < found.low < found.relative < found.high < 0.2
    assert found.samples == (79, 79) and found.after > before.max()
    after[0] = before.max()  # runs that overlap: the whole of each side decides
    assert compare_samples(before, after).verdict is Verdict.CANNOT_TELL


def test_times_of_0_warn_of_nothing() -> None:
    times_of_0 = np.zeros(20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = compare_all(
            [times_of_0], [times(1, 20)], noise=[noise_between([times_of_0] * 2)]
        )
        located = locations([times_of_0, np.r_[np.zeros(19), 5.0]])
    assert found.verdict is Verdict.CANNOT_TELL
    assert np.isinf(located.by_range).all()


def test_an_interval_that_says_nothing_is_unbounded() -> None:
    found = compare_samples(times(1, 20, sigma=3.0), times(2, 20, sigma=3.0))
    assert found.low < 0 < found.high and 1 + found.high > 10 * (1 + found.low)
    assert found.is_unbounded and found.verdict is Verdict.CANNOT_TELL
    assert found.reason == "the runs are too unsteady to bound the change"
    # Wide, but surely longer; and of 3 % noise.
    assert not compare_samples(times(1, 20), times(2, 20, 100.0)).is_unbounded
    noisy = compare_samples(times(1, 20, sigma=0.1), times(2, 20, sigma=0.1))
    assert not noisy.is_unbounded and "is not inside" in noisy.reason
    wide = replace(noisy, verdict=Verdict.REGRESSED, relative=99.0, low=4.0, high=999.0)
    assert not wide.is_unbounded
    assert not compare_samples([1.0], [2.0]).is_unbounded


def test_p_is_corrected_for_the_dumps_of_the_call() -> None:
    before, after = [times(1), times(2)], [times(3, factor=1.005), times(4)]
    alone = compare_all(before, after)
    of_three = compare_all(before, after, Policy(dumps=3))
    ps = [(one.p, three.p) for one, three in zip(alone, of_three, strict=True)]
    assert all(three == pytest.approx(min(3 * (one or 0.0), 1.0)) for one, three in ps)
    assert any((three or 1.0) < 1 for _, three in ps)
    assert [one.low for one in alone] == [three.low for three in of_three]
    with pytest.raises(UsageError):
        Policy(dumps=0)


def test_drift_widens_the_interval() -> None:
    before, after = times(1), times(2)
    steady = compare_samples(before, after)
    drifting = compare_samples(before, after * np.linspace(1, 1.2, 100))
    assert drifting.verdict is Verdict.CANNOT_TELL
    assert "not steady within a dump" in drifting.reason and not drifting.is_unbounded
    assert drifting.high - drifting.low > 3 * (steady.high - steady.low)  # type: ignore[operator]


def test_samples_that_hang_together_count_less() -> None:
    random = np.random.default_rng(0)
    steps = random.normal(0, 0.02, (2, 200))
    hanging = steps.copy()
    for i in range(1, 200):
        hanging[:, i] = 0.9 * hanging[:, i - 1] + np.sqrt(1 - 0.81) * steps[:, i]
    loose, tied = (compare_samples(*(1e6 * np.exp(x))) for x in (steps, hanging))
    assert tied.high - tied.low > 2 * (loose.high - loose.low)  # type: ignore[operator]


def test_a_step_of_the_clock_is_no_change() -> None:
    before, after = np.full(50, 20.0), np.full(50, 21.0)
    assert compare_samples(before, after).verdict is Verdict.REGRESSED
    assert compare_samples(before, after, step=1.0).verdict is Verdict.CANNOT_TELL
    assert compare_samples(before, after + 2, step=1.0).verdict is Verdict.REGRESSED
    # About 20.5 us, of which the phase of the clock makes 20 in one process, 21 in the other.
    one = np.array([18.0, 20.0, 22.0, 19.0, 21.0] * 8)
    assert compare_samples(one, one + 1, step=1.0).verdict is Verdict.CANNOT_TELL
    assert compare_samples(one, one + 5, step=1.0).verdict is Verdict.REGRESSED
    same = compare_samples(one + 1000, one + 1000, step=1.0)
    assert same.verdict is Verdict.NO_DIFFERENCE
    nothing = compare_samples(np.zeros(50), np.zeros(50))
    assert nothing.verdict is Verdict.CANNOT_TELL and "a few ticks" in nothing.reason


def test_noise_between_dumps() -> None:
    dumps = [times(seed, factor=factor) for seed, factor in enumerate((1.0, 1.1, 0.95, 1.05))]
    noise = noise_between(dumps)
    assert noise.dumps == 4
    assert noise.spread == pytest.approx(np.log([1.0, 1.1, 0.95, 1.05]).std(ddof=1), abs=0.01)
    assert compare_samples(times(1), times(2, factor=1.1)).verdict is Verdict.REGRESSED
    noisy = compare_samples(times(1), times(2, factor=1.1), noise=noise)
    assert noisy.verdict is Verdict.CANNOT_TELL
    # 5.841 is Student's t of 3 degrees at 99 %.
    assert noisy.noise_floor == pytest.approx(np.expm1(5.841 * np.sqrt(2) * noise.spread), rel=1e-3)
    unknown = compare_samples(times(1), times(2), noise=Noise(float("nan"), 4))
    assert unknown.verdict is Verdict.CANNOT_TELL and "dump of noise" in unknown.reason


def test_several_dumps_a_side_have_less_noise() -> None:
    of_one = Noise(0.03, 9)
    assert of_one.error == pytest.approx(0.03 * np.sqrt(2))
    several = replace(of_one, sides=(4, 2))
    assert several.error == pytest.approx(0.03 * np.sqrt(1 / 4 + 1 / 2))
    pair = times(1), times(2, factor=1.2)
    wide, narrow = (compare_samples(*pair, noise=noise) for noise in (of_one, several))
    assert narrow.noise_floor < wide.noise_floor
    assert wide.low < narrow.low < narrow.high < wide.high  # type: ignore[operator]


def test_one_dump_against_several_is_students() -> None:
    """With one observation on a side, the t test of equal variances is Student's prediction."""
    for seed in range(5):
        *before, after = times(seed, runs=9, factor=1 + 0.05 * seed).tolist()
        found = compare_dump(before, after)
        expected = stats.ttest_ind([np.log(after)], np.log(before))
        interval = np.expm1(expected.confidence_interval(0.99))
        assert found.p == pytest.approx(expected.pvalue)
        assert (found.low, found.high) == pytest.approx(tuple(interval), rel=1e-6)
        assert found.samples == (8, 1)


def test_verdicts_on_one_dump() -> None:
    level = times(3, runs=8, sigma=0.01).tolist()
    verdicts = [compare_dump(level, 1e6 * f).verdict for f in (1.2, 0.8, 1.0)]
    assert verdicts == [Verdict.REGRESSED, Verdict.IMPROVED, Verdict.CANNOT_TELL]
    # Sure, but of no importance; and dumps without any noise.
    assert compare_dump([10.0] * 5, 10.2).verdict is Verdict.NO_DIFFERENCE
    assert compare_dump([10.0] * 5, 10.5).verdict is Verdict.REGRESSED
    for wrong in (([10.0], 10.0), ([10.0, 0.0], 10.0), ([10.0, 11.0], float("nan"))):
        with pytest.raises(UsageError, match="dumps"):
            compare_dump(*wrong)


def test_noise_is_pooled_over_programs() -> None:
    """The pooled variance is that of an analysis of variance."""
    programs = [times(1, runs=4), 3 * times(2, runs=6), 10 * times(3, runs=2)]
    found = pooled_noise(programs)
    within = sum((np.var(np.log(one), ddof=1) * (len(one) - 1)) for one in programs) / 9
    assert (found.spread, found.dumps) == (pytest.approx(np.sqrt(within)), 10)
    with pytest.raises(UsageError, match="two or more dumps"):
        pooled_noise([times(1, runs=3), times(1, runs=1)])


def test_a_family_is_corrected_by_holms_method() -> None:
    before = [times(i) for i in range(3)]
    after = [times(i + 10, factor=f) for i, f in enumerate((1.0, 1.02, 1.2))]
    alone = [compare_samples(a, b).p for a, b in zip(before, after, strict=True)]
    together = [found.p for found in compare_all(before, after)]
    order = np.argsort(alone)
    expected = np.minimum(np.maximum.accumulate(np.array(alone)[order] * [3, 2, 1]), 1)
    np.testing.assert_allclose(np.array(together)[order], expected)


def test_what_is_no_set_of_times_is_refused() -> None:
    for samples in ([-1.0] * 20, [float("inf")] * 20, [[1.0] * 20]):
        with pytest.raises(UsageError):
            compare_samples(samples, times(1))
    with pytest.raises(UsageError, match="cannot be compared"):
        compare_all([times(1)], [])
    with pytest.raises(UsageError, match="two or more dumps"):
        noise_between([times(1)])


@pytest.mark.parametrize(
    "policy", [{"min_effect": 0}, {"confidence": 1.0}, {"min_samples": 3}, {"min_effect": 1.5}]
)
def test_a_policy_without_sense_is_refused(policy: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Policy(**policy)  # type: ignore[arg-type]


def test_what_stands_for_several() -> None:
    assert overall([]) is Verdict.CANNOT_TELL
    assert overall([Verdict.CANNOT_TELL, Verdict.REGRESSED]) is Verdict.REGRESSED
    assert overall([Verdict.NO_DIFFERENCE, Verdict.CANNOT_TELL]) is Verdict.CANNOT_TELL
    assert overall([Verdict.IMPROVED, Verdict.NO_DIFFERENCE]) is Verdict.IMPROVED
