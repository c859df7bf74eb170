"""Changes along a history: what each point is called, and how often that is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from etscope.analysis.statistics.compare_samples import Policy
from etscope_lab.comparison.changes import changes_of, judged, levels, suspicion
from etscope_lab.jobs.records import Alarm, AlarmState, Point, Series, Standing

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def series(times: Sequence[float], marked: Sequence[int] = (), *alarms: Alarm) -> Series:
    points = tuple(
        Point(f"j{i}", START + timedelta(days=i), t, t * 1.1, 1, t, i in marked, {}, "a" * 64)
        for i, t in enumerate(times)
    )
    key = ("model", "forward", "host", "portable", "python", 1, "seed 0")
    return Series(*key, points, alarms=alarms)


def alarm(state: AlarmState, job: int, newest: int, verdict: str = "") -> Alarm:
    ids = [f"j{number}" for number in (job - 1, job, newest)]
    return Alarm("a", state, {}, *ids, 0.05, 10.0, START, START, verdict=verdict)


def noisy(levels: Sequence[float], sigma: float = 0.01, seed: int = 0) -> list[float]:
    return (np.random.default_rng(seed).lognormal(0, sigma, len(levels)) * levels).tolist()


def standings(times: Sequence[float], marked: Sequence[int] = ()) -> list[str]:
    return [point.standing.value for point in judged(series(times, marked)).points]


LEVEL = noisy([10.0] * 10)


def test_a_change_is_sure_by_the_second_point() -> None:
    assert standings(LEVEL) == ["unjudged"] * 5 + ["steady"] * 5
    assert standings([*LEVEL, 11.5])[-1] == "suspicious"
    assert standings([*LEVEL, 11.5, 11.6])[-2:] == ["regressed", "steady"]
    assert standings([*LEVEL, 11.5, 10.0])[-2:] == ["outlier", "steady"]
    assert standings([*LEVEL, 8.5, 8.6])[-2:] == ["improved", "steady"]


def test_a_change_says_between_which_jobs_and_how_large() -> None:
    (found,) = changes_of(judged(series([*LEVEL, 11.5, 11.5])))
    assert (found.standing, found.job_id, found.before) == (Standing.REGRESSED, "j10", "j9")
    assert found.relative == pytest.approx(0.15, abs=0.01)
    assert found.low_ms < found.expected_ms < found.high_ms < 11.5  # type: ignore[operator]


def test_levels_follow_each_other_and_outliers_move_none() -> None:
    times = [*LEVEL, *noisy([11.5] * 10, seed=1), *noisy([10.0] * 4, seed=2)]
    found = standings(times)
    assert [i for i, one in enumerate(found) if one in ("regressed", "improved")] == [10, 20]
    found = standings([*LEVEL, 30.0, *noisy([10.0] * 4, seed=1), 11.5, 11.5])
    assert found[10] == "outlier" and found[-2] == "regressed"


def test_marked_points_neither_count_nor_confirm() -> None:
    assert standings([*LEVEL, 11.5, 12.0, 11.5], marked=(11,))[-3:] == [
        "regressed", "unjudged", "steady",
    ]  # fmt: skip
    assert standings([*LEVEL, 11.5, 12.0], marked=(11,))[-2:] == ["suspicious", "unjudged"]
    assert set(standings([*LEVEL, 15.0], marked=range(11))) == {"unjudged"}


def test_a_slow_drift_is_found() -> None:
    drift = np.array(noisy([10.0] * 40)) * 1.004 ** np.arange(40)
    assert "regressed" in standings(drift.tolist())


def test_small_changes_are_none_however_sure_they_are() -> None:
    assert judged(series([])).points == ()
    found = judged(series([1.0] * 6 + [1.03] * 2), Policy(0.05))
    assert found.points[-2].standing is Standing.STEADY
    assert set(standings([10.0] * 8 + [10.15] * 4)) == {"unjudged", "steady"}
    assert standings([10.0] * 8 + [10.5] * 2)[-2] == "regressed"


def test_a_device_that_alternates_between_two_speeds_is_not_judged() -> None:
    times = np.tile([10.0] * 8 + [12.0] * 8, 5) * noisy([1.0] * 80, sigma=0.002)
    found = judged(series(times.tolist()))
    assert {point.standing for point in found.points} == {Standing.UNJUDGED}
    assert found.unjudged.startswith("The times alternate between levels")


def test_false_changes_are_rare_and_suspicions_are_early() -> None:
    wrong = suspicions = found = 0
    draw = np.random.default_rng(0)
    for _ in range(60):
        times = draw.normal(0, 0.012, 33)
        wrong += len(levels(times[:30], 0.03) or [])
        suspicions += suspicion(times[:30], 0.03) is not None
        times[30:] += np.log(1.05)
        found += suspicion(times, 0.03) is not None or bool(levels(times, 0.03))
    assert wrong <= 1
    assert suspicions <= 6
    assert found >= 57


def test_an_ab_job_decides_about_a_suspicion() -> None:
    slow = [*LEVEL, 10.3, 10.25]
    found = judged(series(slow)).points
    assert any(point.standing is Standing.SUSPICIOUS for point in found)
    same = alarm(AlarmState.DISMISSED, 10, 11, "no difference")
    assert not changes_of(judged(series(slow, (), same)))
    (changed,) = changes_of(judged(series(slow, (), alarm(AlarmState.OPEN, 10, 11, "regressed"))))
    assert (changed.job_id, changed.standing) == ("j10", Standing.REGRESSED)
    # What the A/B job did not see is judged as before; so is all if it failed.
    later = changes_of(judged(series([*LEVEL, *LEVEL, 11.5, 11.5], (), same)))
    assert [point.job_id for point in later] == ["j20"]
    failed = alarm(AlarmState.DISMISSED, 10, 11)
    assert changes_of(judged(series(slow, (), failed))) == changes_of(judged(series(slow)))


BUSY = "the device was busy before the run: a load of {} a core"


def test_a_series_without_a_verdict_says_why() -> None:
    found = series([10.0] * 5, range(5))
    points = tuple(
        replace(point, marks=(BUSY.format(1 + at / 10), *["the clock moved"] * (at == 3)))
        for at, point in enumerate(found.points)
    )
    assert judged(replace(found, points=points)).unjudged == (
        "None of 5 results is judged. Caveats, with the number of results: the device was busy "
        "before the run: a load of … a core (5); the clock moved (1). A result is judged when it "
        "has no caveat and 5 results without one are before it. Measure again under other "
        "conditions: etscope lab submit --again."
    )


@pytest.mark.parametrize("marked", [(), (0,), (0, 1, 2, 3), range(9)])
@pytest.mark.parametrize("number", [0, 1, 5, 6, 7, 10])
def test_the_reason_is_given_exactly_when_no_point_is_judged(
    number: int, marked: Sequence[int]
) -> None:
    found = judged(series([10.0] * number, marked))
    none = all(point.standing is Standing.UNJUDGED for point in found.points)
    assert bool(found.unjudged) is (none and number > 0)
