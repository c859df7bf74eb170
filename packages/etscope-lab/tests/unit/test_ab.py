"""A/B jobs: the order, the exact test, the verdicts, and rounds that fail."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from etscope.analysis.statistics.compare_samples import Policy, Verdict
from etscope.errors import DeviceLost, MissingDataError, RuntimeFailure, UsageError
from etscope.model.statistics import fewest_differences, signed_rank_p, signed_rank_shift
from etscope_lab.comparison.ab import (
    BASELINE,
    MODEL,
    SIDES,
    AbResult,
    Round,
    judge,
    measure_ab,
    order_of,
)
from etscope_lab.jobs.spec import JobSpec

RUNS = 15


def job(rounds: int = 20, **more: Any) -> JobSpec:
    files = {"model": {"sha256": "a" * 64}, "baseline": {"sha256": "b" * 64}}
    return JobSpec(**{"kind": "ab", "rounds": rounds, **files, **more})


class Device:
    """Answers times with the noise of runs, of processes, and a drift over the whole job."""

    def __init__(self, slower: float = 0.0, process: float = 0.01, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.slower, self.process = slower, process
        self.calls: list[tuple[str, int]] = []

    def __call__(self, side: str, number: int) -> Sequence[int]:
        self.calls.append((side, number))
        offset = self.random.normal(0, self.process) + 0.004 * len(self.calls)
        factor = 1 + self.slower if side == MODEL else 1.0
        runs = self.random.lognormal(offset, 0.02, RUNS)
        return np.rint(2e6 * factor * runs).astype(int).tolist()


@pytest.mark.parametrize("count", [1, 2, 5, 8, 20, 61])
def test_the_test_is_scipys(count: int) -> None:
    values = np.random.default_rng(count).normal(0.3, 1, count)
    expected = stats.wilcoxon(values, method="exact").pvalue
    assert signed_rank_p(values) == pytest.approx(expected, rel=1e-12)
    rows, columns = np.triu_indices(count)
    means = np.sort((values[rows] + values[columns]) / 2)
    middle, low, high = signed_rank_shift(values, 0.05)
    assert middle == pytest.approx(np.median(means), abs=1e-12)
    if count < fewest_differences(0.05):
        assert (low, high) == (-np.inf, np.inf)
        return
    for end in (low, high):
        assert np.abs(means - end).min() < 1e-12
    # An end of the interval is where the test begins to tell.
    assert signed_rank_p(values - low + 1e-9) <= 0.05 < signed_rank_p(values - low - 1e-9)
    assert signed_rank_p(values - high - 1e-9) <= 0.05 < signed_rank_p(values - high + 1e-9)


def test_the_test_with_ties_and_zeros_counts_all_signs() -> None:
    """Against the 2^n ways to give the sizes their signs."""
    values = np.array([0.0, 0.0, 1.0, 1.0, -1.0, 2.0, 3.0, 3.0, -3.0, 4.0])
    ranks = np.array([1.5, 1.5, 4, 4, 4, 6, 8, 8, 8, 10])[2:]
    sums = [float((ranks * signs).sum()) for signs in product((0, 1), repeat=len(ranks))]
    seen = float(ranks[values[2:] > 0].sum())
    least = min(seen, ranks.sum() - seen)
    assert signed_rank_p(values) == pytest.approx(2 * np.mean([one <= least for one in sums]))
    assert signed_rank_p([0.0, 0.0, 0.0]) == 1.0


def test_many_differences_take_the_approximation() -> None:
    values = np.random.default_rng(0).normal(0.05, 1, 900)
    expected = stats.wilcoxon(values, method="approx", correction=True).pvalue
    assert signed_rank_p(values) == pytest.approx(expected, rel=1e-2)
    middle, low, high = signed_rank_shift(values, 0.01)
    assert low < middle < high and high - low == pytest.approx(2 * 2.576 / 30, rel=0.2)


@pytest.mark.parametrize("rounds", [4, 7, 20, 101])
def test_the_order_is_balanced_and_of_the_seed(rounds: int) -> None:
    orders = [order_of(rounds, seed) for seed in range(50)]
    for order in orders:
        counts = Counter(order)
        assert abs(counts[MODEL] - counts[BASELINE]) == rounds % 2
    assert orders[3] == order_of(rounds, 3)
    assert len(set(orders)) > (3 if rounds == 4 else 10)


def test_each_round_runs_each_side_once_in_the_told_order() -> None:
    device = Device()
    told: list[Round] = []
    result = measure_ab(job(seed=5), device, told.append)
    assert [one.first for one in told] == list(order_of(20, 5))
    for one, pair in zip(
        told, zip(device.calls[::2], device.calls[1::2], strict=True), strict=True
    ):
        assert [side for side, _ in pair] == [one.first, *(set(SIDES) - {one.first})]
        assert {number for _, number in pair} == {one.number}
    assert result.summary()["order"] == [one.first for one in told]
    assert [len(run["model_ns"]) for run in result.raw()["runs"]] == [RUNS] * 20


@pytest.mark.parametrize(
    ("slower", "verdict"),
    [
        (0.0, Verdict.NO_DIFFERENCE),
        (0.08, Verdict.REGRESSED),
        (-0.08, Verdict.IMPROVED),
        (0.026, Verdict.CANNOT_TELL),
    ],
)
def test_verdicts(slower: float, verdict: Verdict) -> None:
    """Within a drift of 8 % from the first to the last process of the job."""
    result = measure_ab(job(), Device(slower, seed=2))
    assert result.verdict is verdict
    assert result.low < result.relative < result.high
    assert result.low < slower < result.high
    assert (verdict is Verdict.CANNOT_TELL) == bool(result.reason)


def test_rounds_that_cannot_tell_say_how_many_it_takes() -> None:
    result = measure_ab(job(rounds=4), Device(0.5))
    assert result.verdict is Verdict.CANNOT_TELL
    assert (result.low, result.high, result.noise_floor) == (None, None, None)
    assert result.rounds_needed == 8
    assert "4 rounds: a confidence of 0.99 takes 8; 8 rounds would give a verdict" in result.reason
    json.dumps(result.raw(), allow_nan=False)
    # Noise without end has no number of rounds.
    times = [(1.0, 100.0), (100.0, 1.0)] * 5
    result = judge([rounded(number, MODEL, pair) for number, pair in enumerate(times)], Policy())
    assert result.verdict is Verdict.CANNOT_TELL and result.rounds_needed is None
    assert "not even 10000 rounds would give a verdict" in result.reason


def test_the_summary_is_json() -> None:
    summary = measure_ab(job(), Device(0.08)).summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["verdict"] == "regressed"
    assert summary["rounds"] == summary["judged"] == 20 and not summary["failed"]
    model, baseline = summary["sides"]["model"], summary["sides"]["baseline"]
    assert model["processes"] == 20 and model["iterations"] == 20 * RUNS
    assert model["location_ms"] > baseline["location_ms"] > 1.9
    assert 0.005 < model["process_spread"] < 0.1
    assert summary["noise_floor"] == pytest.approx(
        max(summary["high"] - summary["relative"], summary["relative"] - summary["low"]), rel=0.2
    )


def test_the_rounds_that_would_tell_do() -> None:
    """Nine times of ten they should; of these jobs, most."""
    asked = told = 0
    for seed in range(20):
        result = measure_ab(job(rounds=10, seed=seed), Device(0.0, process=0.03, seed=seed))
        if result.rounds_needed is not None and result.rounds_needed < 200:
            asked += 1
            again = job(rounds=result.rounds_needed, seed=seed)
            found = measure_ab(again, Device(0.0, process=0.03, seed=seed + 1000))
            told += found.verdict is not Verdict.CANNOT_TELL
    assert asked > 8 and told > 0.6 * asked


def test_false_alarms_are_as_rare_as_stated() -> None:
    """Whatever the noise: here processes that are fast or slow by a third, and a drift."""

    def one(seed: int) -> AbResult:
        random = np.random.default_rng(seed)
        order = order_of(12, seed)
        times = np.exp(random.choice([0, 0.3], (12, 2)) + np.linspace(0, 1, 24).reshape(12, 2))
        return judge([rounded(i, order[i], times[i]) for i in range(12)], Policy(0.001, 0.95))

    alarms = sum(one(seed).verdict is not Verdict.CANNOT_TELL for seed in range(600))
    # 5 % of 600 are 30, with a standard deviation of 5.3.
    assert 12 < alarms < 51


def rounded(number: int, first: str, times: Sequence[float]) -> Round:
    second = SIDES[first == MODEL]
    ns = [(int(1e6 * time),) for time in times]
    return Round(number, first, {first: ns[0], second: ns[1]})


class Failing(Device):
    """A device on which some runs fail."""

    def __init__(self, fails: set[tuple[str, int]], error: BaseException | None = None) -> None:
        super().__init__(0.08)
        self.fails = fails
        self.error = error or RuntimeFailure("the runtime aborted (signal 6)")

    def __call__(self, side: str, number: int) -> Sequence[int]:
        found = super().__call__(side, number)
        if (side, number) in self.fails:
            raise self.error
        return found


def test_a_failed_round_is_told_and_left_out() -> None:
    device = Failing({(MODEL, 3), (BASELINE, 9)})
    result = measure_ab(job(), device)
    assert result.verdict is Verdict.REGRESSED
    summary = result.summary()
    assert (summary["rounds"], summary["judged"]) == (20, 18)
    assert [one["round"] for one in summary["failed"]] == [3, 9]
    assert summary["failed"][0]["error"] == "model: the runtime aborted (signal 6)"
    assert summary["sides"]["model"]["processes"] == 18
    assert len(result.raw()["runs"]) == 20


def test_what_does_not_run_fails_the_job() -> None:
    for side in SIDES:
        device = Failing({(side, 0)})
        with pytest.raises(RuntimeFailure, match="signal 6"):
            measure_ab(job(), device)
        assert len(device.calls) <= 2
    often = Failing({(MODEL, number) for number in range(2, 20, 2)})
    with pytest.raises(RuntimeFailure, match="6 of 13 rounds failed, last: model: the runtime"):
        measure_ab(job(), often)
    for error in (DeviceLost("unplugged"), UsageError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)):  # once is enough
            measure_ab(job(), Failing({(MODEL, 5)}, error))


def test_what_cannot_be_judged() -> None:
    with pytest.raises(UsageError, match="no baseline"):
        measure_ab(JobSpec(model={"sha256": "a" * 64}), Device())
    with pytest.raises(MissingDataError, match="was not timed"):
        measure_ab(job(), lambda side, number: [])
    with pytest.raises(MissingDataError, match="less than a tick"):
        measure_ab(job(), lambda side, number: [0, 0])
    with pytest.raises(MissingDataError, match="no round is complete"):
        judge([Round(0, MODEL, {}, "model: gone")], Policy())
