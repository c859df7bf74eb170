"""Findings about runs that differ: a slow first run, a drift, two speeds, a few slow runs.

Whether runs differ is told from the totals of all runs alone, which hold no part twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import erfc, log1p, sqrt

import numpy as np
import numpy.typing as npt

from etscope.analysis.comparison.compare_samples import (
    Policy,
    Verdict,
    compare_samples,
    locations,
)
from etscope.analysis.findings import thresholds
from etscope.analysis.findings.time import TimeFindings
from etscope.analysis.generation.growth import growth, is_enough
from etscope.analysis.profile.profile import MethodProfile
from etscope.model.finding import Finding, Place, Quantity, Severity
from etscope.units import TimeScale, scale_factor

Floats = npt.NDArray[np.float64]
_MORE_RUNS = ("run", "--warmup", "10", "--iterations", "100")
_MORE_GENERATIONS = ("generate", "--profiled-iterations", "5", "--save", "ran")


def steadiness(time: TimeFindings, conditions: str = "") -> Iterator[Finding]:
    """Yield what makes the runs of a method differ; nothing for steady ones.

    conditions: what the runs had ("2 threads, load 3.1"), which is said of runs that differ.
    """
    for found in _unsteady(time):
        if conditions and found.severity is Severity.PROBLEM:
            found = replace(found, sentence=f"{found.sentence} They had {conditions}.")
        yield found


def _unsteady(time: TimeFindings) -> Iterator[Finding]:
    totals = _without_growth(time.profile)
    if len(totals) == 1:
        yield _of(
            time,
            "measured-once",
            Severity.UNKNOWN,
            "There is one run: how steady its times are is not known. Run it more often.",
            None,
        )
        return
    first = _first_run(time, totals)
    if first is not None:
        yield first
        totals = totals[1:]
    # Each of these would explain the next ones as well.
    for tell in (_drift, _two_speeds, _slow_runs):
        found = tell(time, totals)
        if found is not None:
            yield found
            return


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
    time: TimeFindings, kind: str, severity: Severity, sentence: str, ticks: float | None
) -> Finding:
    quantity = None
    if ticks is not None:
        quantity = Quantity(float(time.scale(ticks)), time.scale.unit, time.share(ticks))
    place = Place("timeline") if len(time.profile.runs) > 1 else None
    command = _MORE_RUNS if time.profile.phase is None else _MORE_GENERATIONS
    return Finding(kind, severity, sentence, time.profile.method, quantity, place, command)


def _first_run(time: TimeFindings, totals: Floats) -> Finding | None:
    """A first run that is longer than all others by far."""
    if len(totals) < thresholds.FIRST_RUN_FEWEST:
        return None
    first, others = float(totals[0]), totals[1:]
    median = float(np.median(others))
    if first < thresholds.FIRST_RUN_RATIO * median or first <= float(others.max()):
        return None
    source = time.scale.source
    is_time = source is not TimeScale.CYCLES
    if is_time and first / scale_factor(source, TimeScale.US) < thresholds.FIRST_RUN_LEAST_US:
        return None
    sentence = (
        f"The first run took {time.text(first)}, {first / median:.1f} times the median of the "
        f"{len(others):,} later ones ({time.text(median)}): all averages hold it."
    )
    return _of(time, "first-run", Severity.PROBLEM, sentence, (first - median) / len(totals))


def _drift(time: TimeFindings, totals: Floats) -> Finding | None:
    """Later runs that are slower or faster than earlier ones, surely."""
    if len(totals) < thresholds.DRIFT_FEWEST:
        return None
    half = len(totals) // 2
    policy = Policy(min_effect=thresholds.DRIFT_EFFECT, confidence=thresholds.DRIFT_CONFIDENCE)
    # Student's t is in scipy, which takes as long to import as all else does: what the normal
    # distribution does not call a drift, it does not either.
    halves = locations([totals[:half], totals[-half:]])
    change = abs(np.log(halves.centre[1] / halves.centre[0]))
    error = np.hypot(*(halves.error / halves.centre))
    if change < log1p(policy.min_effect) or erfc(change / error / sqrt(2)) > policy.alpha:
        return None
    found = compare_samples(totals[:half], totals[-half:], policy)
    if found.verdict not in (Verdict.REGRESSED, Verdict.IMPROVED) or found.relative is None:
        return None
    way = "slower" if found.verdict is Verdict.REGRESSED else "faster"
    sentence = (
        f"Runs get {way}: the later half takes {time.text(found.after)}, the earlier "
        f"{time.text(found.before)} ({found.relative:+.1%})."
    )
    return _of(time, "drift", Severity.PROBLEM, sentence, abs(found.after - found.before))


def _two_speeds(time: TimeFindings, totals: Floats) -> Finding | None:
    """Runs in two groups with nothing between them."""
    ordered = np.sort(totals)
    count = len(ordered)
    fewest = max(thresholds.MODE_FEWEST, int(np.ceil(thresholds.MODE_SHARE * count)))
    if count < 2 * fewest:
        return None
    gaps = np.diff(ordered)[fewest - 1 : count - fewest]
    split = int(gaps.argmax()) + fewest
    low, high = ordered[:split], ordered[split:]
    distance = float(high.mean() - low.mean())
    if distance < thresholds.MODE_DISTANCE * float(low.mean()):
        return None
    if float(gaps.max()) < thresholds.MODE_GAP * distance:
        return None
    sentence = (
        f"Runs have two speeds: {len(low):,} take about {time.text(float(np.median(low)))}, "
        f"{len(high):,} about {time.text(float(np.median(high)))}, and none lies between."
    )
    return _of(time, "two-speeds", Severity.PROBLEM, sentence, distance * len(high) / count)


def _slow_runs(time: TimeFindings, totals: Floats) -> Finding | None:
    """A few slow runs that lift the average above what most runs take."""
    if len(totals) < thresholds.SLOW_RUN_FEWEST:
        return None
    median, mean = float(np.median(totals)), float(totals.mean())
    slow = totals[totals >= thresholds.SLOW_RUN_RATIO * median]
    if not len(slow) or mean < (1 + thresholds.SLOW_RUNS_LIFT) * median:
        return None
    verb = "takes" if len(slow) == 1 else "take"
    sentence = (
        f"{len(slow):,} of {len(totals):,} runs {verb} {thresholds.SLOW_RUN_RATIO:g} times the "
        "median "
        f"({time.text(median)}) or more, up to {time.text(float(totals.max()))}: the average of "
        f"{time.text(mean)} is not what most runs take."
    )
    return _of(time, "slow-runs", Severity.PROBLEM, sentence, mean - median)
