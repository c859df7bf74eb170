"""The result of a comparison of two dumps: changes, their sides, and their wording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from etscope.analysis.comparison.align import Alignment, Pair, Status
from etscope.analysis.matching.export import Export
from etscope.analysis.memory.plan import memory_plans
from etscope.analysis.numerics.rows import Numerics
from etscope.analysis.profile.profile import MethodProfile, Row, Ticks, with_phase
from etscope.analysis.profile.rollup import operator_of
from etscope.analysis.profile.scale import Scale
from etscope.analysis.statistics.compare_samples import (
    UNBOUNDED,
    Comparison,
    Noise,
    Policy,
    Verdict,
    noise_between,
    overall,
)
from etscope.formats.run_json import SavedMemory, SavedRun
from etscope.model.table import grouped
from etscope.support.shown import Shown
from etscope.units import format_bytes, format_change, format_duration, format_float

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Change:
    """The change of an operator, of an event inside a delegate's call (`depth` 1), of a group of
    leaf rows, or of a closing row (such as the rest of a total).

    before, after: average ticks over the counted runs, None if the row did not run on that side.
    comparison: None if there is nothing to compare, or if the row was not selected. adds: True if
    the change is a part of the total's change. leaves: for a group, the number of its leaf rows on
    each side; the depth of a group is the number of modules around it.
    """

    name: str
    kind: str
    status: Status
    before: float | None
    after: float | None
    comparison: Comparison | None = None
    pair: Pair | None = None
    depth: int = 0
    adds: bool = True
    selected: bool = True
    leaves: tuple[int, int] = (0, 0)

    @property
    def change(self) -> float:
        """Ticks that a run takes longer, over the counted runs."""
        return (self.after or 0.0) - (self.before or 0.0)

    @property
    def leaf(self) -> bool:
        """True if either side is a leaf: leaves add up to the total."""
        if self.pair is None:
            return True
        return any(row is not None and row.leaf for row in (self.pair.before, self.pair.after))

    @property
    def verdict(self) -> Verdict | None:
        return None if self.comparison is None else self.comparison.verdict

    def times(self, scale: Scale) -> dict[str, float | None]:
        times = {"before": self.before, "after": self.after, "change": self.change}
        return {name: scale.one(ticks) for name, ticks in times.items()}

    def in_words(self, scale: Scale) -> str:
        times = [time_text(ticks, scale) or "?" for ticks in (self.before, self.after)]
        text = f"{times[0]} -> {times[1]} {scale.unit}"
        comparison = self.comparison
        if comparison is None:
            return text
        text = f"{comparison.verdict.value}: {text}"
        if comparison.relative is not None and not comparison.is_unbounded:
            text += f" ({percent(comparison.relative)}, {interval(comparison)})"
        return f"{text}; {comparison.reason}" if comparison.reason else text


def summed(name: str, parts: Sequence[Change], depth: int = 0) -> Change:
    """Return the sum of changes that a table does not show."""
    before, after = (
        sum(getattr(part, side) or 0.0 for part in parts) for side in ("before", "after")
    )
    return Change(name, "hidden", "same", before, after, depth=depth, adds=depth == 0)


@dataclass(frozen=True, slots=True)
class Sides:
    """Two aligned profiles of the counted runs, and profiles of further dumps of `before`."""

    before: MethodProfile
    after: MethodProfile
    noise: Sequence[MethodProfile]
    alignment: Alignment

    def noise_of(self, mine: Ticks, repeats: Sequence[Ticks | None]) -> Noise | None:
        """Return the noise of one row between dumps: NaN if a dump lacks it."""
        if not repeats:
            return None
        dumps = [mine, *(one for one in repeats if one is not None)]
        if len(dumps) <= len(repeats):
            return Noise(float("nan"), len(repeats) + 1)
        return noise_between(dumps)


def clock_steps(profile: MethodProfile) -> dict[int, float]:
    """Return the step of the clock in ticks by the `id` of each row.

    All times of one clock are multiples of it: XNNPACK counts microseconds inside a call that the
    runtime measures in nanoseconds. The remainder of a call has one rounding error for each of the
    call's events.
    """
    clocks: dict[str | None, list[Row]] = {}  # by backend; None for the runtime
    for call in profile.instructions:
        clocks.setdefault(None, []).append(call.head)
        inner = [row for row in call.below if row.kind != "unaccounted"]
        clocks.setdefault(operator_of(call.head), []).extend(inner)
    ticks = {
        name: float(np.gcd.reduce([np.gcd.reduce(row.ticks) for row in rows]) or 1)
        for name, rows in clocks.items()
        if rows
    }
    steps: dict[int, float] = {}
    for call in profile.instructions:
        steps[id(call.head)] = ticks[None]
        for row in call.below:
            roundings = len(call.below) - 1 if row.kind == "unaccounted" else 1
            steps[id(row)] = ticks[operator_of(call.head)] * float(np.sqrt(max(roundings, 1)))
    return steps


@dataclass(frozen=True, slots=True)
class MethodDiff:
    """All changes of one method: rows in run order, events inside a call below it. The changes of
    `unaccounted` and of the rows with `adds` sum to the change of `total`.

    beside: sentences on changes of memory, size and numerics.
    """

    method: str | None
    changes: tuple[Change, ...]
    unaccounted: Change
    total: Change
    sides: Sides
    policy: Policy
    notes: tuple[str, ...]
    beside: tuple[str, ...] = ()

    def title(self, unnamed: str = "method") -> str:
        """Return the method with its phase. unnamed: the word for an unknown method."""
        return with_phase(self.method or unnamed, self.sides.before.phase)

    @property
    def alignment(self) -> Alignment:
        return self.sides.alignment

    @property
    def verdict(self) -> Verdict:
        return self.total.verdict or Verdict.CANNOT_TELL

    @property
    def operators(self) -> tuple[Change, ...]:
        """The rows with a verdict: those on both sides that were selected."""
        return tuple(change for change in self.changes if change.comparison is not None)

    @property
    def selected(self) -> tuple[Change, ...]:
        """The changes that were selected, with the calls around them."""
        found: list[Change] = []
        for head, *inner in grouped(self.changes, lambda change: change.depth == 0):
            chosen = [change for change in inner if change.selected]
            if head.selected or chosen:
                found += [head, *chosen]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Diff(Shown):
    """The changes of every method that both dumps ran."""

    methods: tuple[MethodDiff, ...]

    def verdict(self, *, per_op: bool = False) -> Verdict:
        """Return the verdict on all methods' times; with `per_op` also on the times of all their
        operators.
        """
        found = [method.verdict for method in self.methods]
        if per_op:
            rows = (row for method in self.methods for row in method.operators)
            found += [row.verdict for row in rows if row.verdict is not None]
        return overall(found)


def diff_title(diff: MethodDiff, scale: Scale, *, per_op: bool = False) -> str:
    """Return the title: "forward: regressed, +5.1% (+4.2% to +6.0%) · 1.20 → 1.26 ms"."""
    total, comparison = diff.total, diff.total.comparison
    text = f"{diff.title()}: {diff.verdict.value}"
    if comparison is not None and comparison.relative is not None and not comparison.is_unbounded:
        text += f", {percent(comparison.relative)} ({interval(comparison)})"
    times = [time_text(t, scale) for t in (total.before, total.after)]
    parts = [text, f"{times[0]} → {times[1]} {scale.unit}"]
    sides = diff.sides.before, diff.sides.after
    parts.append(" and ".join(one.runs_in_words for one in sides))
    slower = sum(change.verdict is Verdict.REGRESSED for change in diff.operators)
    if slower or per_op:
        parts.append(f"{slower} {'operator' if slower == 1 else 'operators'} regressed")
    return " · ".join(parts)


def interval(comparison: Comparison) -> str:
    """Return the confidence interval: "+4.2% to +6.0%", "unknown" if unbounded, "" without one."""
    if comparison.low is None or comparison.high is None:
        return ""
    if comparison.is_unbounded:
        return UNKNOWN
    return f"{percent(comparison.low)} to {percent(comparison.high)}"


def percent(change: float) -> str:
    """Format a relative change; from tenfold on as a factor: "x380", "x25,100"."""
    return f"{change:+.1%}" if change < 9 else f"x{float(f'{1 + change:.3g}'):,.10g}"


def comparison_cells(comparison: Comparison | None) -> dict[str, Any]:
    """Return the cells of a table for a comparison. Sizes are None without a comparison; `relative`
    is None also if its interval is unbounded.

    relative, ratio: the compared trimmed means. low, high: the ends of the interval.
    """
    cells: dict[str, Any] = dict.fromkeys(
        ("relative", "interval", "ratio", "low", "high", "verdict", "reason")
    )
    if comparison is None:
        return cells
    cells |= {"verdict": comparison.verdict.value, "reason": comparison.reason or None}
    if comparison.relative is not None:
        cells |= {
            "relative": None if comparison.is_unbounded else percent(comparison.relative),
            "interval": interval(comparison),
            "ratio": 1 + comparison.relative,
            "low": 1 + (comparison.low or 0.0),
            "high": 1 + (comparison.high or 0.0),
        }
    return cells


def interval_note(comparisons: Iterable[Comparison | None]) -> tuple[str, ...]:
    """Return the note of a table with unbounded intervals."""
    if any(one is not None and one.is_unbounded for one in comparisons):
        return (f'Interval "{UNKNOWN}": {UNBOUNDED}; its ends are more than tenfold apart.',)
    return ()


def correction_note(policy: Policy, count: int, noun: str) -> str:
    """Return the note on the verdicts of `count` rows of a table. noun: the name of a row."""
    nouns = noun if count == 1 else f"{noun}s"
    return (
        f"Regressed or improved: {policy.in_words()}; corrected for {count:,} {nouns} by "
        "Holm's method. Times are averages over the runs, so they add up; relative changes "
        "and intervals use trimmed means."
    )


def time_text(ticks: float | None, scale: Scale) -> str:
    """Return a time without its unit."""
    return format_duration(scale.one(ticks), scale.unit)


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Totals of a run other than times.

    planned_bytes: bytes that the runtime allocated for tensors, by method. program_bytes: the size
    of the program, None if unknown. numerics: the diagnosis of logged values, None if there is
    none. memory: the memory of the process that ran the program.
    """

    planned_bytes: Mapping[str, int] = field(default_factory=dict)
    program_bytes: int | None = None
    numerics: Numerics | None = None
    memory: SavedMemory | None = None


def totals_of(
    export: Export, numerics: Numerics | None = None, saved: SavedRun | None = None
) -> RunTotals:
    """Return the totals of a run, from its program, a diagnosis and its notes."""
    memory, program = None if saved is None else saved.memory, export.recorded_program
    if program is None:
        return RunTotals(numerics=numerics, memory=memory)
    planned = {name: plan.planned_bytes for name, plan in memory_plans(export).items()}
    return RunTotals(planned, len(program.source.buffer), numerics, memory)


def total_changes(before: RunTotals, after: RunTotals, method: str | None) -> Iterator[str]:
    """Yield a sentence for each total of both sides."""
    name = method or ""
    sizes = [
        ("Planned memory", before.planned_bytes.get(name), after.planned_bytes.get(name)),
        ("Program", before.program_bytes, after.program_bytes),
    ]
    was, now = before.memory, after.memory
    # Else Python, torch or the recorded values would be the difference.
    if was and now and (was.runner, was.traced) == (now.runner, now.traced):
        sizes.append((f"Peak memory of {was.in_words()}", was.peak_rss, now.peak_rss))
    for what, one, other in sizes:
        if one is None or other is None:
            continue
        if one == other:
            yield f"{what}: {format_bytes(one)} as before."
        else:
            change = format_change(one, other)
            yield f"{what}: {format_bytes(one)} → {format_bytes(other)} ({change})."
    texts = []
    for found in (before.numerics, after.numerics):
        if found is None or found.method != method:
            return
        text = "fine" if found.is_fine else "not fine"
        # The error of the last value that was compared.
        errors = [row.total for row in found.rows if row.total is not None]
        if errors:
            text += f", {found.metric.name} {format_float(errors[-1])} at the end"
        texts.append(text)
    yield f"Numerics: {texts[0]} before, {texts[1]} after."
