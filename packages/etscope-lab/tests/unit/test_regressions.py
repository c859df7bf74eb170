"""Regressions along a history: the policy's words, and how often it is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from etscope.analysis.statistics.compare_samples import Policy
from etscope_lab.comparison.history import Standing, changes_of, judge_series, why_unjudged
from etscope_lab.jobs.records import Point, Series

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def series(times: Sequence[float], marked: Sequence[int] = ()) -> Series:
    points = tuple(
        Point(f"j{i}", START + timedelta(days=i), t, t * 1.1, 1, t, i in marked, {}, "a" * 64)
        for i, t in enumerate(times)
    )
    return Series("model", "forward", "host", "portable", "python", 1, "seed 0", "", points)


def noisy(levels: Sequence[float], sigma: float = 0.01, seed: int = 0) -> list[float]:
    return (np.random.default_rng(seed).lognormal(0, sigma, len(levels)) * levels).tolist()


def standings(times: Sequence[float], marked: Sequence[int] = ()) -> list[str]:
    return [one.standing.value for one in judge_series(series(times, marked))]


def test_a_change_is_confirmed_by_the_next_point() -> None:
    level = noisy([10.0] * 10)
    assert standings(level) == ["unjudged"] * 5 + ["steady"] * 5
    assert standings([*level, 11.5])[-1] == "suspicious"
    assert standings([*level, 11.5, 11.6])[-2:] == ["regressed", "unjudged"]
    assert standings([*level, 11.5, 10.0])[-2:] == ["outlier", "steady"]
    assert standings([*level, 8.5, 8.6])[-2:] == ["improved", "unjudged"]
    # The other way round confirms nothing, and is suspicious itself.
    assert standings([*level, 11.5, 8.5])[-2:] == ["outlier", "suspicious"]


BUSY = "the device was busy before the run: a load of {} a core"


def test_a_series_without_a_verdict_says_why() -> None:
    points = tuple(
        replace(point, marks=(BUSY.format(1 + at / 10), *["the clock moved"] * (at == 3)))
        for at, point in enumerate(series([10.0] * 5, range(5)).points)
    )
    assert why_unjudged(points) == (
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
    found = series([10.0] * number, marked)
    none = all(one.standing is Standing.UNJUDGED for one in judge_series(found))
    assert bool(why_unjudged(found.points)) is (none and number > 0)


def test_a_change_says_between_which_jobs_and_how_large() -> None:
    judged = judge_series(series([*noisy([10.0] * 10), 11.5, 11.5]))
    (found,) = changes_of(judged)
    assert (found.standing, found.point.job_id, found.before) == (Standing.REGRESSED, "j10", "j9")
    assert found.relative == pytest.approx(0.15, abs=0.01)
    assert found.low_ms < found.expected_ms < found.high_ms < 11.5  # type: ignore[operator]
    plain = [one.plain() for one in judged]
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_the_new_level_is_the_normal_one_afterwards() -> None:
    times = [*noisy([10.0] * 10), *noisy([11.5] * 10, seed=1), *noisy([10.0] * 4, seed=2)]
    found = standings(times)
    assert [i for i, one in enumerate(found) if one in ("regressed", "improved")] == [10, 20]
    assert (found[10], found[20]) == ("regressed", "improved")
    # An outlier widens no window.
    found = standings([*noisy([10.0] * 10), 30.0, *noisy([10.0] * 4, seed=1), 11.5, 11.5])
    assert found[10] == "outlier" and found[-2] == "regressed"


def test_marked_points_neither_count_nor_confirm() -> None:
    level = noisy([10.0] * 10)
    assert standings([*level, 11.5, 12.0, 11.5], marked=(11,))[-3:] == [
        "regressed", "unjudged", "unjudged",
    ]  # fmt: skip
    assert standings([*level, 11.5, 12.0], marked=(11,))[-2:] == ["suspicious", "unjudged"]
    assert set(standings([*level, 15.0], marked=range(11))) == {"unjudged"}


def test_false_alarms_are_rare_and_changes_are_found() -> None:
    """Two points in a row are off by chance far less often than one in a hundred."""
    alarms = judged = found = 0
    for seed in range(40):
        times = noisy([10.0] * 40 + [10.7] * 3, sigma=0.012, seed=seed)
        standing = standings(times)
        judged += 35
        alarms += sum(one in ("regressed", "improved") for one in standing[:39])
        found += "regressed" in standing[39:42]
    assert alarms <= 0.004 * judged
    assert found >= 32


def test_the_minimum_effect() -> None:
    assert judge_series(series([])) == []
    assert judge_series(series([1.0] * 6 + [1.04] * 2), Policy(0.05))[-2].standing == "steady"
    # However sure they are, small changes are no regression.
    assert set(standings([10.0] * 8 + [10.2] * 4)) == {"unjudged", "steady"}
    assert standings([10.0] * 8 + [10.5] * 2)[-2] == "regressed"
