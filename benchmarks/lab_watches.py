"""Delay and false alarms of the lab's watch over series.

python -m benchmarks.lab_watches [--seed N] [--series N]

Histories of nights are drawn: noise between nights of several sizes and kinds, a step of 5 %, a
drift. Each night the series is judged as the lab does it. A suspicion and a changed level ask for
an A/B job, of which the benchmark knows the answer; an A/B job is wrong in 1 of 100 (its
confidence), so false alarms are a hundredth of both. Where no A/B job can be run, false alarms are
the false levels.

With apache-otava and otava-test-data installed (an environment of its own: they bring grpc, pandas
and more), changes of levels are also compared with those of Otava's defaults, on the series of its
own generator: precision, recall and F1, a change found within two points.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from etscope_lab.comparison.changes import levels, suspicion

Floats = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, float], Floats]

NIGHTS, STEP_AT, STEP = 40, 30, 0.05
WITHIN = 3  # nights
MIN_EFFECT = 0.03
TOLERANCE = 2  # points
AB_CONFIDENCE = 100  # one A/B job of so many finds a difference where there is none


def normal(draw: np.random.Generator, nights: int, size: float) -> Floats:
    return draw.normal(0, size, nights)


def heavy(draw: np.random.Generator, nights: int, size: float) -> Floats:
    found: Floats = draw.standard_t(3, nights) * size / np.sqrt(3)
    return found


def weather(draw: np.random.Generator, nights: int, size: float) -> Floats:
    """Half of the noise stays from night to night, as the temperature of a room does."""
    found = np.zeros(nights)
    for night in range(nights):
        found[night] = (found[night - 1] if night else 0) * 0.5 + draw.normal(0, size * 0.866)
    return found


NOISES: dict[str, Noise] = {"normal": normal, "heavy tails": heavy, "weather": weather}


def history(times: Floats, changed_at: int | None) -> tuple[int, int, int | None]:
    """Nights with a false suspicion, false changes of levels, and the night on which a true change
    was found (a suspicion whose A/B job confirms it, or a level)."""
    suspicions = settled = 0
    wrong: set[int] = set()
    for night in range(6, len(times) + 1):
        seen = times[:night]
        found = levels(seen, MIN_EFFECT) or []
        true = [at for at in found if changed_at is not None and abs(at - changed_at) <= TOLERANCE]
        wrong |= {at for at in found if at not in true and at > settled}
        if true:
            return suspicions, len(wrong), night
        asked = suspicion(seen, MIN_EFFECT, settled)
        if asked is not None:
            if changed_at is not None and night > changed_at:
                return suspicions, len(wrong), night  # the A/B job compares the two programs
            suspicions += 1
            settled = night - 1
    return suspicions, len(wrong), None


def nights_table(draw: np.random.Generator, count: int) -> Iterator[Sequence[str]]:
    a_thousand = "false levels a 1,000 nights", "false alarms a 1,000 nights"
    yield "noise", "size", "found in 3 nights", "false suspicions a night", *a_thousand
    step = np.where(np.arange(NIGHTS) >= STEP_AT, np.log1p(STEP), 0)
    for name, noise in NOISES.items():
        for size in (0.005, 0.01, 0.02, 0.03):
            nights = found = suspicions = wrong = 0
            for _ in range(count):
                quiet = history(noise(draw, NIGHTS, size), None)
                nights += NIGHTS - 5
                suspicions += quiet[0]
                wrong += quiet[1]
                at = history(noise(draw, NIGHTS, size) + step, STEP_AT)[2]
                found += at is not None and at <= STEP_AT + WITHIN
            alarms = (suspicions + wrong) / AB_CONFIDENCE / nights * 1000
            yield (
                name, f"{size:.1%}", f"{found / count:.1%}", f"{suspicions / nights:.2%}",
                f"{wrong / nights * 1000:.2f}", f"{alarms:.2f}",
            )  # fmt: skip


def drift_table(draw: np.random.Generator, count: int) -> Iterator[Sequence[str]]:
    yield "drift a night", "whole", "found"
    for drift in (0.002, 0.005):
        found = 0
        for _ in range(count):
            times = normal(draw, NIGHTS, 0.01) + np.log1p(drift) * np.arange(NIGHTS)
            found += bool(levels(times, MIN_EFFECT)) or suspicion(times, MIN_EFFECT) is not None
        yield f"{drift:.1%}", f"{(1 + drift) ** NIGHTS - 1:.0%}", f"{found / count:.0%}"


def matched(found: Sequence[int], true: Sequence[int]) -> tuple[int, int, int]:
    """Counts of right, false and missed changes."""
    left, right = list(true), 0
    for at in found:
        near = [one for one in left if abs(one - at) <= TOLERANCE]
        if near:
            left.remove(min(near, key=lambda one: abs(one - at)))
            right += 1
    return right, len(found) - right, len(left)


def otava_table(seeds: Sequence[int]) -> Iterator[Sequence[str]]:
    from otava.analysis import compute_change_points
    from otava_test_data.generators.combiner import CombinationGenerator

    def ours(values: Floats) -> Sequence[int]:
        return levels(np.log(values)) or []

    def theirs(values: Floats) -> Sequence[int]:
        return [one.index for one in compute_change_points(list(values))[0]]

    counts = {"etscope": np.zeros(3), "Otava": np.zeros(3)}
    for seed in seeds:
        for one in CombinationGenerator(lengths=[50, 200], seed=seed).generate_all_test_cases():
            values = np.asarray(one.data)
            if values.min() <= 0:  # times are positive
                continue
            # Outliers and changes of the noise are no changes of the level.
            no_level = ("outlier", "variance")
            true = [at.index for at in one.change_points if at.change_type not in no_level]
            for name, find in (("etscope", ours), ("Otava", theirs)):
                counts[name] += matched(find(values), true)
    yield "", "right", "false", "missed", "F1"
    for name, (right, false, missed) in counts.items():
        score = 2 * right / (2 * right + false + missed)
        yield name, f"{right:.0f}", f"{false:.0f}", f"{missed:.0f}", f"{score:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--series", type=int, default=200, help="of each kind")
    options = parser.parse_args()
    draw = np.random.default_rng(options.seed)
    for rows in (nights_table(draw, options.series), drift_table(draw, options.series)):
        show(rows)
    try:
        show(otava_table(range(options.seed + 1, options.seed + 4)))
    except ImportError as error:
        print(f"not compared with Otava: {error}")


def show(rows: Iterator[Sequence[str]]) -> None:
    for row in rows:
        print(" | ".join(row), flush=True)
    print()


if __name__ == "__main__":
    main()
