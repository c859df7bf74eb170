"""Differences of runs: a slow first run, a drift, two speeds, a few slow runs.

Only the totals decide whether runs differ, because they hold no part twice. A first run that was
cold and disturbed runs do not count (`etscope.analysis.profile.counted`): what is said of the
others is of the runs that do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from etscope.analysis.insights.leaf_times import LeafTimes
from etscope.analysis.profile.counted import SLOW_RATIO, SlowRuns, drift, slow_runs, two_speeds
from etscope.analysis.profile.growth import growth, is_enough
from etscope.analysis.profile.profile import MethodProfile
from etscope.model.finding import Finding, Place, Quantity, Severity
from etscope.units import TimeScale, count, scale_factor

Floats = npt.NDArray[np.float64]
FIRST_RUN_LEAST_US = 20.0  # a shorter first run is long by caches alone
SLOW_RUNS_LIFT = 0.10  # of the average over the median: averages are then a poor summary
BUSY_SHARE = 0.25  # of the runs: other programs that disturb so many make the others longer, too
ENOUGH_RUNS = 100  # averages of so many runs are as good as more runs make them
_MORE_RUNS = ("run", "--warmup", "10", "--iterations", "100")
_MORE_GENERATIONS = ("generate", "-X", "profiled_iterations=5", "--save", "ran")


def steadiness(time: LeafTimes, conditions: str = "") -> Iterator[Finding]:
    """Yield what makes the runs of a method differ; nothing for steady ones.

    conditions: what the runs had ("2 threads, load 3.1"), which is said of runs that differ.
    """
    for found in _unsteady(time):
        if conditions and found.severity is Severity.PROBLEM:
            found = replace(found, sentence=f"{found.sentence} They had {conditions}.")
        yield found


def _unsteady(time: LeafTimes) -> Iterator[Finding]:
    every = time.profile.every
    if len(every.runs) == 1:
        yield _of(
            time,
            "measured-once",
            Severity.UNKNOWN,
            "There is one run: how steady its times are is not known. Run it more often.",
        )
        return
    slow = slow_runs(every.total, every.calls)
    first = _first_run(time, slow)
    if first is not None:
        yield first
    totals = _without_growth(time.profile)
    if first is not None and time.profile.excluded is None:
        totals = totals[1:]
    # Each of these would explain the next ones as well.
    for tell in (_drift, _two_speeds):
        found = tell(time, totals)
        if found is not None:
            yield found
            return
    disturbed = _disturbed_runs(time, slow)
    if disturbed is not None:
        yield disturbed


def _without_growth(profile: MethodProfile) -> Floats:
    """The totals of the runs; of a language model's calls without what surely grows with their
    position, which is the model's."""
    totals = profile.total.astype(np.float64)
    if profile.calls is None or not is_enough(profile.calls.position):
        return totals
    position = profile.calls.position
    found = growth(position, profile.total[None])
    if not found.grows[0]:
        return totals
    without: Floats = totals - found.slope[0] * (position - position.mean())
    return without


def _of(
    time: LeafTimes, kind: str, severity: Severity, sentence: str, ticks: float | None = None
) -> Finding:
    """Make a finding about the runs. ticks: the time in doubt, which is not a part of a run."""
    profile = time.profile
    quantity = None if ticks is None else Quantity(float(time.scale(ticks)), time.scale.unit)
    place = Place("timeline") if len(profile.every.runs) > 1 else None
    command: tuple[str, ...] = _MORE_RUNS if profile.phase is None else _MORE_GENERATIONS
    if len(profile.every.runs) >= ENOUGH_RUNS:
        command = ()
    return Finding(kind, severity, sentence, profile.method, quantity, place, command)


def _first_run(time: LeafTimes, slow: SlowRuns) -> Finding | None:
    """A first run that is longer than the others by far."""
    profile = time.profile
    left_out = profile.excluded is not None and profile.excluded.warmup > 0
    if not left_out and (profile.excluded is not None or not slow.warmup[0]):
        return None
    total = profile.every.total
    first, median = float(total[0]), float(np.median(total[1:]))
    source = time.scale.source
    is_time = source is not TimeScale.CYCLES
    if is_time and first / scale_factor(source, TimeScale.US) < FIRST_RUN_LEAST_US:
        return None
    sentence = (
        f"The first recorded run took {time.text(first)}, {first / median:.1f} times the median of "
        f"the {len(total) - 1:,} later ones ({time.text(median)})"
    )
    if left_out:
        return _of(time, "first-run", Severity.FACT, f"{sentence}. It is excluded.", first - median)
    sentence += ": all averages hold it."
    return _of(time, "first-run", Severity.PROBLEM, sentence, (first - median) / len(total))


def _drift(time: LeafTimes, totals: Floats) -> Finding | None:
    """Later runs that are slower or faster than earlier ones, surely."""
    found = drift(totals)
    if found is None or found.relative is None:
        return None
    way = "slower" if found.relative > 0 else "faster"
    sentence = (
        f"Runs get {way}: the later half takes {time.text(found.after)}, the earlier "
        f"{time.text(found.before)} ({found.relative:+.1%})."
    )
    return _of(time, "drift", Severity.PROBLEM, sentence, abs(found.after - found.before))


def _two_speeds(time: LeafTimes, totals: Floats) -> Finding | None:
    """Runs in two groups with nothing between them."""
    found = two_speeds(totals)
    if found is None:
        return None
    low, high = found
    sentence = (
        f"Runs have two speeds: {len(low):,} take about {time.text(float(np.median(low)))}, "
        f"{len(high):,} about {time.text(float(np.median(high)))}, and none lies between."
    )
    lift = float(high.mean() - low.mean()) * len(high) / len(totals)
    return _of(time, "two-speeds", Severity.PROBLEM, sentence, lift)


def _disturbed_runs(time: LeafTimes, slow: SlowRuns) -> Finding | None:
    """Runs that other programs disturbed, where they lift the average of all runs far above what
    most runs take."""
    every, left_out = time.profile.every, time.profile.excluded
    is_slow = slow.disturbed
    if left_out is not None and not left_out.warmup:
        is_slow = is_slow | slow.warmup  # other executions came before the first run
    number = int(is_slow.sum())
    if not number:
        return None
    mean, median = float(every.total[~slow.warmup | is_slow].mean()), float(np.median(every.total))
    if mean < (1 + SLOW_RUNS_LIFT) * median:
        return None
    runs = f"{number:,} of {count(len(every.runs), 'run')}"
    most = time.text(float(every.total[is_slow].max()))
    were = "was" if number == 1 else "were"
    if left_out is not None:
        share = number / len(every.runs)
        is_busy = share >= BUSY_SHARE
        excluded = "is" if number == 1 else "are"
        usual = time.text(float(np.median(time.profile.total)))
        return _of(
            time,
            "slow-runs",
            Severity.PROBLEM if is_busy else Severity.FACT,
            f"{runs} {were} disturbed (up to {most}; median of the others {usual}) and {excluded} "
            f"excluded{': the others may be longer, too' if is_busy else ''}.",
            mean - median,
        )
    return _of(
        time,
        "slow-runs",
        Severity.PROBLEM,
        f"{runs} {were} disturbed: {SLOW_RATIO:g} times the median ({time.text(median)}) or more, "
        f"up to {most}. The average of {time.text(mean)} is not what most runs take.",
        mean - median,
    )
