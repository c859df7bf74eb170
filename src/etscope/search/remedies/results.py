"""Results of `try_remedies`: a row for each remedy, what the best of them are together, a table."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from etscope.analysis.metrics import Metric
from etscope.analysis.statistics.compare_samples import (
    Comparison,
    Policy,
    Verdict,
    compare_rounds,
)
from etscope.model.finding import Finding
from etscope.model.table import Column, Kind, Table
from etscope.search.remedies._changes import Change, Setting
from etscope.search.trial import FAILURES, Trial, reaches
from etscope.support.shown import Shown
from etscope.units import format_duration

FASTER, SLOWER, SAME, UNSURE = "faster", "slower", "no difference", "cannot tell"
FASTER_WITH_OTHERS = "faster, other numbers"
BREAKS, NOT_TRIED = "breaks the numbers", "not tried"

_NS = 1e6  # of a ms
_VERDICTS = {
    Verdict.IMPROVED: FASTER,
    Verdict.REGRESSED: SLOWER,
    Verdict.NO_DIFFERENCE: SAME,
    Verdict.CANNOT_TELL: UNSURE,
}


class Numbers(Enum):
    """The result of comparing a setting's outputs with the model's."""

    SAME = "same numbers"
    OTHER = "other numbers"  # precision was given up on purpose, within the limit
    BROKEN = BREAKS


@dataclass(frozen=True, slots=True)
class Limits:
    """The worst numbers that are allowed.

    exact: for outputs that count as the same, up to rounding. quantized: for a setting that loses
    precision on purpose. baseline: the metric of the baseline; a setting that is as good counts as
    the same.
    """

    metric: Metric
    exact: float
    quantized: float
    baseline: float | None

    def numbers(self, error: float | None, *, quantizes: bool) -> Numbers:
        """Judge the metric of the worst output. quantizes: the setting loses precision."""
        if error is None or math.isnan(error):
            return Numbers.BROKEN
        before = math.inf if self.baseline is None else self.metric.badness(self.baseline)
        slack = 1.0 if self.metric.unit == "dB" else 0.0  # less is taken for other rounding
        is_as_before = self.metric.badness(error) <= before + slack
        if is_as_before or reaches(self.metric, error, self.exact):
            return Numbers.SAME
        is_allowed = quantizes and reaches(self.metric, error, self.quantized)
        return Numbers.OTHER if is_allowed else Numbers.BROKEN


@dataclass(frozen=True, slots=True, eq=False)
class Outcome(Shown):
    """One or several changes that were tried together.

    trial: None if they were not tried; `reason` says why. comparison: the comparison of their time
    with the baseline's; None without times.
    """

    changes: tuple[Change, ...]
    trial: Trial | None
    comparison: Comparison | None = None
    numbers: Numbers = Numbers.BROKEN
    reason: str = ""

    @property
    def words(self) -> str:
        return " + ".join(change.words for change in self.changes)

    @property
    def key(self) -> str:
        """The name in the state, whatever the order of the changes."""
        return " + ".join(sorted(change.words for change in self.changes))

    @property
    def is_faster(self) -> bool:
        """True if it is surely faster, with the model's numbers or others within the limit."""
        return self.verdict in (FASTER, FASTER_WITH_OTHERS)

    @property
    def relative(self) -> float:
        """The change of the time: -0.12 takes 12 % less; 0 where it is not known."""
        found = None if self.comparison is None else self.comparison.relative
        return 0.0 if found is None else found

    @property
    def verdict(self) -> str:
        """The verdict in a few words. A verdict on the numbers goes before one on the time."""
        if self.trial is None:
            return NOT_TRIED
        if self.trial.failure is not None:
            return FAILURES[self.trial.failure]
        if self.numbers is Numbers.BROKEN:
            return BREAKS
        found = UNSURE if self.comparison is None else _VERDICTS[self.comparison.verdict]
        has_others = found == FASTER and self.numbers is Numbers.OTHER
        return FASTER_WITH_OTHERS if has_others else found

    def sentence(self, metric: Metric) -> str:
        """The verdict with its numbers: "faster by 12 % (9 to 15), same numbers to 90 dB"."""
        if self.trial is None or self.trial.failure is not None:
            why = self.reason if self.trial is None else self.trial.detail
            return f"{self.verdict}: {why}" if why else self.verdict
        error = self.trial.error
        unit = f" {metric.unit}" if metric.unit else ""
        numbers = "no number" if error is None else f"{error:.3g}{unit}"
        if self.numbers is Numbers.BROKEN:
            return f"{BREAKS}: {numbers}" + (f"; {self._time()}" if self.comparison else "")
        if self.numbers is Numbers.OTHER:
            return f"{self._time()}, {self.numbers.value}: {numbers}"
        exactly = "" if math.isinf(error or 0.0) else f" to {numbers}"
        return f"{self._time()}, {self.numbers.value}{exactly}"

    def _time(self) -> str:
        found = self.comparison
        if found is None or found.relative is None:
            return UNSURE
        if found.verdict is Verdict.NO_DIFFERENCE:
            return f"{SAME} beyond {_percent(max(abs(found.low or 0), abs(found.high or 0)))} %"
        if found.verdict is Verdict.CANNOT_TELL:
            return f"{UNSURE}: {found.reason}"
        faster = found.relative < 0
        ends = sorted(abs(one) for one in (found.low, found.high) if one is not None)
        interval = f" ({_percent(ends[0])} to {_percent(ends[1])})" if len(ends) == 2 else ""
        by = _percent(abs(found.relative))
        ratio = 1 / (1 + found.relative)
        times = f", {ratio:,.0f} times as fast" if ratio >= _RATIO else ""
        return f"{FASTER if faster else SLOWER} by {by} %{interval}{times}"


_RATIO = 10  # from here on, it says more than a percentage


def in_order(
    outcomes: Collection[Outcome], own: Mapping[str, float], min_effect: float
) -> list[Outcome]:
    """Sort outcomes by their own times, the fastest first.

    Outcomes within `min_effect` of the fastest are ties: among them, outcomes with the model's
    numbers come first, then outcomes with fewer changes. own: times by the outcome's key; the times
    of close outcomes were measured in the same rounds. Speedups over the baseline cannot be
    compared, because each was measured in other rounds, in which the machine may have been slower.
    """
    left, found = list(outcomes), list[Outcome]()
    while left:
        most = min(own[one.key] for one in left) * (1 + min_effect)
        alike = [one for one in left if own[one.key] <= most]
        first = min(
            alike, key=lambda one: (one.numbers is not Numbers.SAME, len(one.changes), own[one.key])
        )
        left.remove(first)
        found.append(first)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Remedies(Shown):
    """The results of the remedies for a model's findings.

    findings: the baseline's findings. outcomes: remedies and combinations: first the faster ones
    with the wanted numbers, the fastest first, then those with other numbers. best: the best
    confirmed outcome; None if none was confirmed. confirmation: the best measured again, in new
    rounds. unconfirmed: an outcome that was faster at first, but not in new rounds. beside: the
    fastest outcome with other numbers, if these are not wanted and it is faster than the best. own:
    times in common rounds, in ns, by the outcome's key. setting: all options of the best outcome,
    or of the baseline. command: how to export the model with that setting. files: the files
    of the best export.
    """

    method: str
    findings: tuple[Finding, ...]
    baseline: Trial
    limits: Limits
    policy: Policy
    outcomes: tuple[Outcome, ...]
    best: Outcome | None
    confirmation: Outcome | None
    unconfirmed: tuple[Outcome, ...]
    beside: Outcome | None
    own: Mapping[str, float]
    setting: Setting
    command: str
    files: tuple[Path, ...] = ()

    def table(self) -> Table:
        """A row for each remedy and combination, and the best in fresh rounds."""
        rows = [
            _row(
                "remedy" if len(one.changes) == 1 else "together",
                one,
                self.limits.metric,
                self.own.get(one.key),
            )
            for one in self.outcomes
        ]
        breaks = set()
        for role, one in (
            *(("not confirmed", one) for one in self.unconfirmed),
            *(() if self.confirmation is None else (("confirmed", self.confirmation),)),
        ):
            breaks.add(len(self.outcomes))
            rows.append(_row(role, one, self.limits.metric))
        metric = self.limits.metric
        columns = (
            Column("remedy"),
            Column("text", priority=9),
            Column("role", priority=4),
            Column("finding", priority=5),
            Column("verdict", is_sentence=True),
            Column("faster", Kind.FLOAT, "%"),
            Column("low", Kind.FLOAT, "%", priority=1),
            Column("high", Kind.FLOAT, "%", priority=1),
            Column(metric.name, Kind.FLOAT, metric.unit or None, priority=2),
            Column("before", Kind.DURATION, "ms", priority=3),
            Column("after", Kind.DURATION, "ms", priority=3),
            Column("common", Kind.DURATION, "ms", title="in common rounds", priority=3),
            Column("size", Kind.BYTES, priority=7),
            Column("rounds", Kind.COUNT, priority=8),
            Column("result", priority=9, is_sentence=True),
        )
        return Table.of_cells(
            columns,
            rows,
            title=f"Remedies · {self.method}",
            notes=self._notes(),
            breaks=frozenset(breaks) - {0},
        )

    def _notes(self) -> tuple[str, ...]:
        metric, confidence = self.limits.metric, 100 * self.policy.confidence
        notes = [
            "Times: baseline and remedy in turn, of each round the lower quartile; a change "
            f"{self.policy.in_words()}.",
            f"Numbers: {metric.title} of the worst output against the model in PyTorch.",
        ]
        notes += [
            f"{one.words}: {one.sentence(metric)}."
            for one in (*self.outcomes, *self.unconfirmed)
            if one.verdict in (UNSURE, *FAILURES.values())
        ]
        if not self.outcomes:
            notes.append(
                "No finding has a remedy that can be tried; -X everything=true tries general ones."
            )
        not_tried = sum(one.trial is None for one in self.outcomes)
        if not_tried:
            notes.append(f"{not_tried} not tried: the budget was used up; --keep DIR goes on.")
        if self.best is None or self.confirmation is None:
            notes.append("No change that was tried is surely faster with the same numbers.")
        else:
            kinds = [change.finding for change in self.best.changes]
            notes += [f"Why: {one.sentence}" for one in self.findings if one.kind in kinds]
            notes.append(
                f"Best: {self.best.words}. In fresh rounds: "
                f"{self.confirmation.sentence(metric)} ({confidence:g}% interval)."
            )
        if self.beside is not None:
            notes.append(self._told_beside(self.beside))
        if self.best is None:
            return tuple(notes)
        notes += [f"wrote {path}" for path in self.files]
        if self.setting.threads is not None:
            notes.append(f"Run the program with: etscope run --threads {self.setting.threads}.")
        return (*notes, self.command)

    def _told_beside(self, one: Outcome) -> str:
        """Say what is faster with other numbers, and how to take it."""
        told = one.sentence(self.limits.metric)
        if self.best is not None:
            times = (format_duration(self.own[key] / _NS, "ms") for key in (one.key, self.best.key))
            taken = " ms, the best ".join(times)
            told = f"takes {taken} ms in the same rounds; {told}"
        return f"Faster with other numbers: {one.words}: {told}. --allow quantize accepts it."

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain values, with the table's rows."""

        def plain(value: Any) -> Any:
            """NaN and infinities as texts: JSON has none."""
            return str(value) if isinstance(value, float) and not math.isfinite(value) else value

        table = self.table()
        rows = [dict(zip(table.names, row, strict=True)) for row in table.rows()]
        return {
            "format": "etscope.remedies/1",
            "method": self.method,
            "best": None if self.best is None else self.best.words,
            "faster_with_other_numbers": None if self.beside is None else self.beside.words,
            "command": self.command,
            "threads": self.setting.threads,
            "confidence": self.policy.confidence,
            "min_effect": self.policy.min_effect,
            "remedies": [{key: plain(value) for key, value in row.items()} for row in rows],
        }

    def encoded(self) -> bytes:
        """The text of remedies.json."""
        return (json.dumps(self.to_json(), indent=1) + "\n").encode()


def judged(
    changes: Sequence[Change], trial: Trial, setting: Setting, limits: Limits, policy: Policy
) -> Outcome:
    """Judge a trial: its numbers, and its time by `compare_rounds`."""
    if trial.failure is not None:
        return Outcome(tuple(changes), trial)
    before, after = np.array(trial.rounds).T
    return Outcome(
        tuple(changes),
        trial,
        compare_rounds(before, after, policy),
        limits.numbers(trial.error, quantizes=setting.quantizes),
    )


# Names of modules after the first, in a selector: a model may have hundreds.
_MODULES = re.compile(r"( or module:\S+){2,}")


def _row(role: str, one: Outcome, metric: Metric, own: float | None = None) -> dict[str, Any]:
    found, trial = one.comparison, one.trial

    def percent(value: float | None) -> float | None:
        return None if value is None else round(-100 * value, 1)

    return {
        "remedy": _MODULES.sub(lambda all: f" or {all[0].count(' or ')} others", one.words),
        "text": " ".join(change.text for change in one.changes) or None,
        "role": role,
        "finding": ", ".join(dict.fromkeys(c.finding for c in one.changes if c.finding)) or None,
        "result": one.sentence(metric),
        "verdict": one.verdict,
        # Less time is faster: the ends of the interval change places.
        "faster": None if found is None else percent(found.relative),
        "low": None if found is None else percent(found.high),
        "high": None if found is None else percent(found.low),
        "before": None if found is None else found.before / _NS,
        "after": None if found is None else found.after / _NS,
        "common": None if own is None else own / _NS,
        metric.name: None if trial is None else trial.error,
        "size": None if trial is None else trial.size,
        "rounds": None if trial is None else len(trial.rounds) or None,
    }


def _percent(share: float) -> str:
    return f"{100 * share:.1f}" if share < 0.1 or 0.99 < share < 1 else f"{100 * share:.0f}"
