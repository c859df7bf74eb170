"""The walk to the commit that made a program slower."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from math import log1p

import numpy as np
import pytest

from etscope_lab.comparison.bisect import Answer, Candidates, Guilty, Skipped, Walk, find_guilty
from etscope_lab.jobs.records import Point, Series

LINE = {f"c{n:02}": [f"c{n - 1:02}" if n else "good"] for n in range(64)}


def walked(
    parents: Mapping[str, Sequence[str]],
    guilty: str,
    broken: Collection[str] = (),
    walk: Walk | None = None,
    nights: Sequence[Answer] = (),
) -> tuple[Guilty, Walk]:
    """Walk a history whose commits since `guilty` are 5 % slower, by exact A/B jobs."""
    slow = {guilty}
    for name, before in parents.items():
        if slow & set(before):
            slow.add(name)
    walk = walk or Walk()

    def measure(commit: str, baseline: str) -> Answer:
        for one in (commit, baseline):
            if one in broken:
                raise Skipped(one, "it does not build")
        relative = (1 + 0.05 * (commit in slow)) / (1 + 0.05 * (baseline in slow)) - 1
        found = {
            "verdict": "regressed" if relative > 0 else "no difference",
            "relative": relative, "low": relative - 0.01, "high": relative + 0.01,
            "confidence": 0.99, "judged": 20, "rounds_needed": None, "reason": "",
        }  # fmt: skip
        return Answer.of_summary(commit, baseline, found, f"job {commit} {baseline}")

    return find_guilty(Candidates("good", parents), walk, measure, nights), walk


@pytest.mark.parametrize("number", [0, 1, 17, 62, 63])
def test_one_of_64_commits_takes_8_jobs(number: int) -> None:
    guilty = f"c{number:02}"
    found, walk = walked(LINE, guilty)
    assert found.commits == (guilty,) and walk.jobs <= 8
    assert found.confirmed is not None
    assert found.confirmed.baseline == ("good" if number == 0 else f"c{number - 1:02}")


def test_a_commit_of_a_merged_branch_is_found() -> None:
    parents = {"a": ["good"], "b": ["a"], "x": ["a"], "y": ["x"], "m": ["b", "y"], "n": ["m"]}
    for guilty, before in (("x", "a"), ("y", "x"), ("m", "b"), ("b", "a")):
        found, _ = walked(parents, guilty)
        assert found.commits == (guilty,) and found.confirmed is not None
        assert found.confirmed.baseline == before


def test_skipped_commits_stay_candidates() -> None:
    found, walk = walked(LINE, "c20", broken={"c19", "c20", "c31"})
    assert found.commits == ("c19", "c20", "c21")
    assert {"c19", "c20"} <= set(walk.skipped)
    found, _ = walked(LINE, "c20", broken={"c31", "c32"})
    assert found.commits == ("c20",)
    with pytest.raises(Skipped, match="does not build"):
        walked(LINE, "c20", broken={"c63"})


def test_nights_make_it_shorter_and_a_wrong_one_does_not_mislead() -> None:
    def series(times: Mapping[str, float]) -> Series:
        at = datetime(2026, 1, 1, tzinfo=timezone.utc)
        points = [
            Point(name, at, time, time, 1.0, 1.0, False, {"commit": name}, "0" * 64)
            for name, time in times.items()
        ]
        return Series("net", "forward", "host", "portable", "native", 1, "", tuple(points))

    candidates = Candidates("good", LINE)
    times = {f"c{n:02}": 10.05 if n < 20 else 10.52 for n in range(3, 64, 5)}
    nights = candidates.nights(series(times), 10.0)
    assert len(nights) == 13
    found, walk = walked(LINE, "c20", nights=nights)
    assert found.commits == ("c20",) and walk.jobs <= 5
    wrong = candidates.nights(series({**times, "c33": 10.0, "c38": 10.0}), 10.0)
    found, walk = walked(LINE, "c20", nights=wrong)
    assert found.commits == ("c20",) and walk.jobs <= 8


def test_without_a_slower_end_nothing_is_guilty() -> None:
    found, walk = walked(LINE, "none of them")
    assert (found.commits, walk.jobs) == ((), 1)


def test_a_walk_goes_on_and_more_rounds_are_asked_once() -> None:
    _, whole = walked(LINE, "c20")
    found, walk = walked(LINE, "c20", walk=Walk(whole.answers[:3]))
    assert found.commits == ("c20",) and walk.answers == whole.answers
    unsure = replace(whole.answers[0], verdict="cannot tell", rounds_needed=60, shift=log1p(0.04))
    found, walk = walked(LINE, "c20", walk=Walk([unsure]))
    assert (found.commits, walk.rounds) == (("c20",), 60)


def _doubtful(seed: int, guilty: str, first: float | None = None) -> tuple[Guilty, Walk]:
    """A walk whose A/B jobs have an error of 3 % with 20 rounds, for a step of 5 %. first: what the
    job of the two ends shows, if not by chance."""
    draw = np.random.default_rng(seed)
    slow = {name for name in LINE if name >= guilty}
    walk = Walk()

    def measure(commit: str, baseline: str) -> Answer:
        rounds = walk.rounds or 20
        error = 0.03 * (20 / rounds) ** 0.5
        shift = log1p(0.05) * ((commit in slow) - (baseline in slow)) + draw.normal(0, error)
        if first is not None and not walk.answers:
            shift = log1p(first)
        verdict = "regressed" if shift > 2.6 * error else "cannot tell"
        needed = None if verdict == "regressed" else 200
        job = f"job {len(walk.answers)}"
        return Answer(commit, baseline, shift, error, verdict, 0, 0, job, needed, "", rounds)

    return find_guilty(Candidates("good", LINE), walk, measure), walk


def test_errors_as_large_as_the_step_cost_rounds_and_name_no_wrong_commit() -> None:
    ends = [_doubtful(seed, f"c{seed:02}") for seed in range(64)]
    named = [found.commits[0] if found.confirmed else "" for found, _ in ends]
    assert sum(bool(name) for name in named) >= 58
    assert all(name in ("", f"c{seed:02}") for seed, name in enumerate(named))
    left = {f"c{seed:02}": found.commits for seed, (found, _) in enumerate(ends) if found.commits}
    assert all(guilty in commits for guilty, commits in left.items())
    assert np.mean([walk.jobs for _, walk in ends]) < 10


def test_an_exaggerated_step_does_not_mislead() -> None:
    for seed in range(20):
        found, walk = _doubtful(seed, "c10", first=0.14)
        assert "c10" in found.commits
        assert walk.rounds is not None and 20 < walk.rounds <= 200


def test_a_commit_that_no_job_confirms_is_not_alone() -> None:
    """The one before is as slow: what made it slow is not in the program."""
    walk = Walk()
    asked: list[int | None] = []  # rounds of the jobs that should confirm it

    def measure(commit: str, baseline: str) -> Answer:
        is_slow = commit >= "c20" and baseline == "good"
        if (commit, baseline) == ("c20", "c19"):
            asked.append(walk.rounds)
        shift, verdict = (0.05, "regressed") if is_slow else (0.012, "cannot tell")
        needed = None if is_slow else 90
        return Answer(commit, baseline, shift, 0.005, verdict, 0, 0, commit, needed, "", 20)

    found = find_guilty(Candidates("good", LINE), walk, measure)
    assert found.confirmed is None
    assert "c20" in found.commits and len(found.commits) > 1
    assert asked == [None, 200]
