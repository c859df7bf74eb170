"""Count how often `etscope lab bisect` names the guilty commit, and its A/B jobs.

python -m benchmarks.lab_bisect [--seed N] [--walks N] [--commits N]

Each walk plants a step of 5 % at a random commit of a range, and answers its A/B jobs by the lab's
own `measure_ab` and `judge` over processes with the kinds of noise of `ab_alarms.py`, of two sizes.
The last lines are a range with merged branches, and one without a step.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

import numpy as np

from benchmarks.ab_alarms import Fit, Processes, judged, simulated
from etscope_lab.comparison.bisect import Answer, Candidates, Walk, find_guilty

STEP = 0.05
# Processes of a busy machine of two cores differ by 1 % in their quartiles (`comparison/ab.py`).
FIT = Fit(
    jitter=0.01, drift=0.005, together=0.3, far=0.05, excess=0.1, within=0.01, disturbed=0.05,
    longer=0.5,
)  # fmt: skip


def commits(draw: np.random.Generator, count: int, merges: float) -> dict[str, Sequence[str]]:
    """A history: each commit follows the one before; a share are merges of a branch of four."""
    parents: dict[str, Sequence[str]] = {}
    main, number = "good", 0
    while number < count:
        if count - number > 5 and draw.random() < merges:
            branch = main
            for _ in range(4):
                parents[f"c{number}"] = [branch]
                branch, number = f"c{number}", number + 1
            parents[f"c{number}"] = [main, branch]
        else:
            parents[f"c{number}"] = [main]
        main, number = f"c{number}", number + 1
    return parents


def slow_of(parents: dict[str, Sequence[str]], guilty: str) -> set[str]:
    """The commits with the planted step."""
    slow = {guilty}
    for name, before in parents.items():
        if slow & set(before):
            slow.add(name)
    return slow


def walked(
    draw: np.random.Generator, parents: dict[str, Sequence[str]], processes: Processes, step: float
) -> tuple[str, int]:
    """A walk: what it says, and its number of jobs. "right": the guilty commit, confirmed by an A/B
    job with the one before; "group": it is among those that are left; "wrong"; "not slower"."""
    guilty = str(draw.choice([*parents]))
    slow = slow_of(parents, guilty)
    walk = Walk()

    def measure(commit: str, baseline: str) -> Answer:
        factor = (1 + step * (commit in slow)) / (1 + step * (baseline in slow)) - 1
        seed = int(draw.integers(1 << 30))
        found = judged(processes(draw, 2 * (walk.rounds or 20)), seed, factor).summary()
        return Answer.of_summary(commit, baseline, found, str(len(walk.answers)))

    found = find_guilty(Candidates("good", parents), walk, measure)
    if not found.commits:
        return "not slower", walk.jobs
    if found.confirmed is None:
        return "group" if guilty in found.commits else "wrong", walk.jobs
    return "right" if found.commits[0] == guilty else "wrong", walk.jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--walks", type=int, default=200, help="of each row")
    parser.add_argument("--commits", type=int, default=64)
    options = parser.parse_args()
    draw = np.random.default_rng(options.seed)
    print("noise | step | right | group | wrong | not slower | jobs: mean, 95 %, most")
    wide = Fit(**{name: getattr(FIT, name) * 2 for name in FIT.__dataclass_fields__})
    rows = [
        (f"{name}{more}", kind, STEP, 0.0)
        for fit, more in ((FIT, ""), (wide, ", twice the size"))
        for name, kind in simulated(fit).items()
    ]
    offsets = simulated(FIT)["process offsets"]
    rows += [("offsets, merges", offsets, STEP, 0.2), ("offsets", offsets, 0.0, 0.0)]
    for name, kind, step, merges in rows:
        ends = []
        for _ in range(options.walks):
            parents = commits(draw, options.commits, merges)
            ends.append(walked(draw, parents, kind, step))
        said = Counter(end for end, _ in ends)
        jobs = np.array([number for _, number in ends])
        shares = (
            f"{said[one] / len(ends):.1%}" for one in ("right", "group", "wrong", "not slower")
        )
        counts = f"{jobs.mean():.1f}, {np.percentile(jobs, 95):.0f}, {jobs.max()}"
        print(" | ".join((name, f"{step:.0%}", *shares, counts)), flush=True)


if __name__ == "__main__":
    main()
