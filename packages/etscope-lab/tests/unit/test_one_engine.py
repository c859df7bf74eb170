"""The verdicts on 200 pairs of generated runs: of `etscope diff`, and of an A/B job that took the
same runs in rounds."""

from __future__ import annotations

from collections import Counter

import numpy as np

from etscope.analysis.comparison.diff import diff_profiles
from etscope.analysis.comparison.waterfall import waterfall
from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.statistics.compare_samples import (
    Policy,
    Verdict,
    compare_all,
)
from etscope.units import TimeScale
from etscope_lab.comparison.ab import BASELINE, MODEL, Round, judge
from tests.support.analysis.made_runs import KINDS, made_runs

MS = Scale(TimeScale.NS, TimeScale.MS)
PAIRS, RUNS, IN_A_ROUND = 200, 60, 3
FACTORS = (1.0, 1.0, 1.05, 1.3, 1 / 1.3, 2.0)
SURE = (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.NO_DIFFERENCE)


def made_profile(kind: str, random: np.random.Generator, factor: float) -> MethodProfile:
    """A method of four kernels, of which the second takes `factor` times as long."""
    rows = []
    ones = np.ones(RUNS + 1, dtype=np.int64)
    for number, centre in enumerate((40e3, 3e6, 200e3, 9e3)):
        times = made_runs(kind, random, RUNS + 1, centre, factor if number == 1 else 1.0)
        rows.append(Row("kernel", f"op{number}.out", times.astype(np.int64), ones, number))
    total = np.sum([row.ticks for row in rows], axis=0) + 1000
    return MethodProfile("forward", np.arange(RUNS + 1), total, tuple(rows), {}, False)


def in_rounds(before: MethodProfile, after: MethodProfile) -> list[Round]:
    """The same runs as an A/B job has them."""
    sides = {BASELINE: before.total[1:], MODEL: after.total[1:]}
    chunks = {side: total.reshape(-1, IN_A_ROUND).tolist() for side, total in sides.items()}
    return [
        Round(number, MODEL, {side: tuple(chunks[side][number]) for side in chunks})
        for number in range(RUNS // IN_A_ROUND)
    ]


def test_diff_and_ab_agree_on_200_pairs() -> None:
    random = np.random.default_rng(200)
    told: Counter[tuple[Verdict, Verdict]] = Counter()
    for number in range(PAIRS):
        kind, factor = KINDS[number % len(KINDS)], FACTORS[number // 6 % len(FACTORS)]
        before, after = made_profile(kind, random, 1.0), made_profile(kind, random, factor)
        diff = diff_profiles(before, after)
        # Sums of one row each are those rows.
        sums = {part.name: part.comparison for part in waterfall(diff, "op").own}
        assert {part: one.verdict for part, one in sums.items() if one} == {
            change.name: change.verdict for change in diff.changes
        }
        # The samples alone, as the lab compares two jobs.
        alone = compare_all([before.total], [after.total])
        assert alone[0].verdict is diff.verdict
        # A/B takes pairs of runs, which may tell more or less, but never something else.
        rounds = judge(in_rounds(before, after), Policy())
        told[diff.verdict, rounds.verdict] += 1
    different = {pair for pair in told if pair[0] is not pair[1]}
    assert all(Verdict.CANNOT_TELL in pair for pair in different), told
    same = sum(count for pair, count in told.items() if pair[0] is pair[1])
    assert sum(told.values()) == PAIRS
    assert same >= 0.8 * PAIRS, told
    assert all(told[verdict, verdict] >= 10 for verdict in SURE), told
