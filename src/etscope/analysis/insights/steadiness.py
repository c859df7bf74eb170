"""Differences of runs: a slow first run, a drift, two speeds, a few slow runs.

Only the totals decide whether runs differ, because they hold no part twice. A first run that was
cold and disturbed runs do not count (`etscope.analysis.profile.counted`): what is said of the
others is of the runs that do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from etscope.analysis.insights.leaf_times import LeafTimes
from etscope.analysis.profile.counted import SLOW_RATIO, SlowRuns, drift, slow_runs, two_speeds
from etscope.analysis.profile.growth import growth, is_enough
from etscope.analysis.profile.profile import MethodProfile
from etscope.model.finding import Finding, Place, Quantity, Severity
from etscope.model.statistics import median
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

    conditions: what the runs had ("2 threads, load 3.1"), which a finding about differing runs
    repeats.
    """
    for found in _Runs(time).differences():
        if conditions and found.severity is Severity.PROBLEM:
            found = replace(found, sentence=f"{found.sentence} They had {conditions}.")
        yield found


@dataclass(frozen=True)
class _Runs:
    """The runs of a method, and their differences."""

    time: LeafTimes

    @property
    def every(self) -> MethodProfile:
        return self.time.profile.every

    @cached_property
    def slow(self) -> SlowRuns:
        return slow_runs(self.every.total, self.every.calls)

    def differences(self) -> Iterator[Finding]:
        text = self.time.text
        if len(self.every.runs) == 1:
            sentence = "There is one run: how steady its times are is not known. Run it more often."
            yield self._finding("measured-once", Severity.UNKNOWN, sentence)
            return
        first = self._first()
        if first is not None:
            yield first
        totals = self._totals()
        if first is not None and self.time.profile.excluded is None:
            totals = totals[1:]
        # Each of these would explain the next ones as well.
        change = drift(totals)
        if change is not None and change.relative is not None:
            way = "slower" if change.relative > 0 else "faster"
            sentence = (
                f"Runs get {way}: the later half takes {text(change.after)}, the earlier "
                f"{text(change.before)} ({change.relative:+.1%})."
            )
            ticks = abs(change.after - change.before)
            yield self._finding("drift", Severity.PROBLEM, sentence, ticks)
        elif (speeds := two_speeds(totals)) is not None:
            low, high = speeds
            sentence = (
                f"Runs have two speeds: {len(low):,} take about {text(median(low))}, "
                f"{len(high):,} about {text(median(high))}, and none lies between."
            )
            lift = float(high.mean() - low.mean()) * len(high) / len(totals)
            yield self._finding("two-speeds", Severity.PROBLEM, sentence, lift)
        elif (disturbed := self._disturbed()) is not None:
            yield disturbed

    def _finding(
        self, kind: str, severity: Severity, sentence: str, ticks: float | None = None
    ) -> Finding:
        """Make a finding. ticks: the time in doubt, which is not a part of a run."""
        scale, profile, number = self.time.scale, self.time.profile, len(self.every.runs)
        quantity = None if ticks is None else Quantity(float(scale(ticks)), scale.unit)
        place = Place("timeline") if number > 1 else None
        command: tuple[str, ...] = _MORE_RUNS if profile.phase is None else _MORE_GENERATIONS
        command = () if number >= ENOUGH_RUNS else command
        return Finding(kind, severity, sentence, profile.method, quantity, place, command)

    def _totals(self) -> Floats:
        """The totals of the runs; of a language model's calls without what surely grows with their
        position, which is the model's."""
        profile = self.time.profile
        totals = profile.total.astype(np.float64)
        if profile.calls is None or not is_enough(profile.calls.position):
            return totals
        position = profile.calls.position
        found = growth(position, profile.total[None])
        if not found.grows[0]:
            return totals
        without: Floats = totals - found.slope[0] * (position - position.mean())
        return without

    def _first(self) -> Finding | None:
        """A first run that is longer than the others by far."""
        excluded, text = self.time.profile.excluded, self.time.text
        left_out = excluded is not None and excluded.warmup > 0
        if not left_out and (excluded is not None or not self.slow.warmup[0]):
            return None
        total = self.every.total
        first, later = float(total[0]), median(total[1:])
        source = self.time.scale.source
        is_time = source is not TimeScale.CYCLES
        if is_time and first / scale_factor(source, TimeScale.US) < FIRST_RUN_LEAST_US:
            return None
        sentence = (
            f"The first recorded run took {text(first)}, {first / later:.1f} times the median of "
            f"the {len(total) - 1:,} later ones ({text(later)})"
        )
        more = first - later
        if left_out:
            return self._finding("first-run", Severity.FACT, f"{sentence}. It is excluded.", more)
        sentence += ": all averages hold it."
        return self._finding("first-run", Severity.PROBLEM, sentence, more / len(total))

    def _disturbed(self) -> Finding | None:
        """Runs that other programs disturbed, where they lift the average of all runs far above
        what most runs take."""
        total, left_out, text = self.every.total, self.time.profile.excluded, self.time.text
        warmup, is_slow = self.slow.warmup, self.slow.disturbed
        if left_out is not None and not left_out.warmup:
            is_slow = is_slow | warmup  # other executions came before the first run
        number = int(is_slow.sum())
        if not number:
            return None
        mean, middle = float(total[~warmup | is_slow].mean()), median(total)
        if mean < (1 + SLOW_RUNS_LIFT) * middle:
            return None
        severity = Severity.PROBLEM
        were = "was" if number == 1 else "were"
        sentence = f"{number:,} of {count(len(total), 'run')} {were} disturbed"
        most = text(float(total[is_slow].max()))
        if left_out is None:
            sentence += (
                f": {SLOW_RATIO:g} times the median ({text(middle)}) or more, up to {most}. "
                f"The average of {text(mean)} is not what most runs take."
            )
        else:
            is_busy = number / len(total) >= BUSY_SHARE
            severity = Severity.PROBLEM if is_busy else Severity.FACT
            usual = text(median(self.time.profile.total))
            sentence += (
                f" (up to {most}; median of the others {usual}) and "
                f"{'is' if number == 1 else 'are'} excluded"
                f"{': the others may be longer, too' if is_busy else ''}."
            )
        return self._finding("slow-runs", severity, sentence, mean - middle)
