"""Runs between which nothing changed: at most the stated 1 % of them are called slower. And what
is told of changes of unsteady runs; `benchmarks/diff_power.py` has more trials of all of this."""

from __future__ import annotations

import numpy as np
import pytest

from etscope.analysis.statistics.compare_samples import Verdict, compare_all, compare_samples
from tests.support.analysis.made_runs import KINDS, MICROSECOND, UNSTEADY, made_runs

RUNS = (19, 30, 60)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_processes_are_called_slower_in_one_of_a_hundred(kind: str) -> None:
    """300 pairs of each kind, of 3 us to 30 ms: with a clock of whole microseconds, short ones."""
    random = np.random.default_rng(KINDS.index(kind))
    step = MICROSECOND if kind == "quantised" else 1.0
    alarms = pairs = 0
    for runs in RUNS:
        for _ in range(100):
            centre = float(np.exp(random.uniform(np.log(3e3), np.log(6e4 if step > 1 else 3e7))))
            before, after = (made_runs(kind, random, runs, centre) for _ in range(2))
            alarms += compare_samples(before, after, step=step).verdict is Verdict.REGRESSED
            pairs += 1
    assert alarms / pairs <= 0.01


@pytest.mark.parametrize("kind", UNSTEADY)
def test_few_unsteady_runs_are_called_slower_in_one_of_a_hundred(kind: str) -> None:
    """300 pairs of each kind, of 10 and 19 runs. A dump that stays in one of two states shows
    nothing of the other: only pairs of dumps with both states count."""
    random = np.random.default_rng(UNSTEADY.index(kind))
    alarms = pairs = 0
    while pairs < 300:
        sides = [made_runs(kind, random, (10, 19)[pairs % 2], 1e6) for _ in range(2)]
        if kind == "two states" and min(np.ptp(np.log(side)) for side in sides) < 0.2:
            continue
        alarms += compare_samples(*sides, step=1.0).verdict is Verdict.REGRESSED
        pairs += 1
    assert alarms / pairs <= 0.01


@pytest.mark.parametrize("kind", ["alike", "wandering", "warming", "two states"])
@pytest.mark.parametrize(("factor", "told"), [(10.0, 0.9), (500.0, 1.0)])
def test_a_change_beyond_all_variation_is_told(kind: str, factor: float, told: float) -> None:
    """100 pairs of 19 runs. By Student's t alone, whose degrees of freedom go down to 1: 44 % to
    96 % of tenfold changes, 82 % to all of 500-fold ones."""
    random = np.random.default_rng(3)
    found = [
        compare_samples(
            made_runs(kind, random, 19, 1e6), made_runs(kind, random, 19, 1e6, factor), step=1.0
        )
        for _ in range(100)
    ]
    regressed = [one for one in found if one.verdict is Verdict.REGRESSED]
    assert len(regressed) >= told * len(found)
    for one in regressed:  # the interval agrees, and says by how much
        assert 0 < one.low < one.high < 100 * factor


def test_a_change_beyond_all_variation_is_told_in_a_table() -> None:
    """One of 30 rows takes 10 times as long, in each of 40 tables of unsteady rows."""
    random = np.random.default_rng(4)
    told = others = 0
    for _ in range(40):
        kinds = random.choice(UNSTEADY[:3], 30)
        before = [made_runs(kind, random, 19, 1e6) for kind in kinds]
        after = [
            made_runs(kind, random, 19, 1e6, 1.0 if row else 10.0) for row, kind in enumerate(kinds)
        ]
        found = [one.verdict for one in compare_all(before, after)]
        told += found[0] is Verdict.REGRESSED
        others += Verdict.REGRESSED in found[1:]
    assert told >= 36
    assert others <= 1


def test_the_range_is_no_better_than_the_clock() -> None:
    """All runs of a dump read alike: a step more in the other dump is no change."""
    one = np.full(19, 20.0)
    one[9:] += 1e-9  # as alike as can be, and a drift: hardly a degree of freedom
    assert compare_samples(one, one + 1, step=1.0).verdict is Verdict.CANNOT_TELL
    assert compare_samples(one, 20 * one, step=1.0).verdict is Verdict.REGRESSED


def test_tables_of_operators_are_corrected_as_one() -> None:
    """200 pairs of tables of 30 operators, of all kinds: one alarm or more in 1 % of them."""
    random = np.random.default_rng(9)
    alarms = 0
    for _ in range(200):
        kinds = random.choice(KINDS, 30)
        centres = np.exp(random.uniform(np.log(3e3), np.log(1e6), 30))
        before, after = (
            [
                made_runs(kind, random, 30, centre)
                for kind, centre in zip(kinds, centres, strict=True)
            ]
            for _ in range(2)
        )
        steps = [MICROSECOND if kind == "quantised" else 1.0 for kind in kinds]
        found = compare_all(before, after, steps=steps)
        alarms += any(one.verdict is Verdict.REGRESSED for one in found)
    assert alarms <= 2


def test_nearly_nothing_has_no_percentage() -> None:
    """1 us to 0 us is not 100 % less; 1 us to 50 us is more, by nobody knows how many times."""
    tick, nothing, much = np.full(40, 1.0), np.zeros(40), np.full(40, 50.0)
    for before, after in ((tick, nothing), (nothing, tick), (tick, 2 * tick)):
        found = compare_samples(before, after, step=1.0)
        assert found.verdict is Verdict.CANNOT_TELL
        assert (found.relative, found.low, found.high, found.fastest) == (None,) * 4
        assert "ticks of the clock" in found.reason
    for before, after, verdict in (
        (tick, much, Verdict.REGRESSED),
        (nothing, much, Verdict.REGRESSED),
        (much, nothing, Verdict.IMPROVED),
    ):
        found = compare_samples(before, after, step=1.0)
        assert (found.verdict, found.relative, found.reason) == (verdict, None, "")
