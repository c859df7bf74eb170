"""The walk to the commit that made a program slower."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from math import log1p

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
