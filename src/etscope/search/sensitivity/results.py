"""Results of a sensitivity analysis, their table, and a plot of error against time."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric
from etscope.model.table import Column, Kind, Table
from etscope.search.sensitivity._groups import Group, joined
from etscope.search.trial import FAILURES, Trial, reaches

Key = frozenset[int]  # positions of the groups that are kept in float
_SMALL = 0.01  # smallest gain, as a share of the int8 model's error
_SMALL_DB = 0.1  # the same in dB, where a share means nothing


@dataclass(frozen=True, slots=True)
class Variant(Trial):
    """A program with some groups kept in float. error: with all samples taken together.

    worst, worst_sample: the metric of the worst sample alone, and its number.
    """

    worst: float | None = None
    worst_sample: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sensitivity:
    """Gains and costs of keeping parts of a model in float.

    int8, full: all quantized, and all in float. groups: the parts. variants: measurements by the
    positions of the groups kept. chosen: the set that the search ended with; empty when int8 is
    good enough, None when there was no search or no set is good enough. best: the best set that was
    measured. confirmed: the chosen set, exported anew by its selectors. times: ms, [rounds] of each
    program, by "int8", "float" and the variants' keys, rounds interleaved; final_times: the same of
    "int8", "float" and "chosen".
    """

    metric: Metric
    tolerance: float | None
    samples: int
    groups: tuple[Group, ...]
    int8: Variant
    full: Variant
    variants: Mapping[Key, Variant]
    chosen: Key | None
    best: Key
    confirmed: Variant | None
    times: Mapping[Any, npt.NDArray[np.float64]] = field(repr=False)
    final_times: Mapping[str, npt.NDArray[np.float64]] = field(repr=False)

    @property
    def reached(self) -> bool | None:
        """True if the chosen set reaches the tolerance; None without a tolerance."""
        return None if self.tolerance is None else self.chosen is not None

    @property
    def keep_float(self) -> tuple[str, ...]:
        """The selectors of the chosen set, for `export(keep_float=)`."""
        return tuple(self.groups[index].selector for index in sorted(self.chosen or ()))

    def table(self) -> Table:
        """A row for each program that was measured, or failed: the int8 model, variants by gain,
        the float model, and the chosen set, exported anew and timed once more next to both."""

        def order(key: Key) -> tuple[Any, ...]:
            variant = self.variants[key]
            failed = variant.failure is not None
            return failed, self.metric.badness(variant.error), len(key), sorted(key)

        keys = sorted(filter(None, self.variants), key=order)
        rows = [_row(self, "int8", self.int8, (), self.times)]
        rows += [_row(self, key, self.variants[key], key, self.times) for key in keys]
        rows.append(_row(self, "float", self.full, None, self.times))
        breaks = {1, len(rows) - 1}
        if self.chosen and self.confirmed is not None:
            breaks.add(len(rows))
            rows.append(_row(self, "chosen", self.confirmed, self.chosen, self.final_times))
        unit = self.metric.unit or None
        columns = (
            Column("what", title="kept in float"),
            Column("role", priority=9),
            Column("keep_float", Kind.LIST, priority=9),
            Column("nodes", Kind.LIST, priority=9),
            Column("modules", Kind.LIST, priority=8),
            Column("source", priority=1),
            Column(self.metric.name, Kind.FLOAT, unit),
            Column("gain", Kind.FLOAT, unit),
            Column("worst", Kind.FLOAT, unit, title="worst sample", priority=5),
            Column("worst_sample", Kind.INT, title="sample", priority=6),
            Column("time", Kind.DURATION, "ms", priority=2),
            Column("time_cost", Kind.DURATION, "ms", title="time cost"),
            Column("time_cost_percent", Kind.FLOAT, "%", title="of int8", priority=2),
            Column("time_spread", Kind.DURATION, "ms", title="±", priority=3),
            Column("size", Kind.BYTES, priority=5),
            Column("size_cost", Kind.INT, "bytes", title="size cost", priority=4),
            Column("verdict"),
            Column("detail", priority=7),
        )
        return Table.of_cells(
            columns,
            rows,
            title="Kept in float",
            notes=self._notes(),
            breaks=frozenset(breaks),
        )

    def _notes(self) -> tuple[str, ...]:
        samples = f"{self.samples:,} {'sample' if self.samples == 1 else 'samples'}"
        rounds = len(next(iter(self.times.values()), ()))
        notes = [
            f"{self.metric.name} against the float model in PyTorch, of the worst output, "
            f"{samples} taken as one.",
            f"Times: {rounds} interleaved rounds on the first sample; a cost below its ± may be "
            "noise.",
        ]
        failed = sum(one.failure is not None for one in self.variants.values())
        if failed:
            notes.append(f"{failed} of {len(self.variants)} variants failed; see detail.")
        if self.tolerance is None:
            return (*notes, "Give a tolerance to search for a small set that reaches it.")
        wanted = f"{self.tolerance:g}{' ' + self.metric.unit if self.metric.unit else ''}"
        if self.chosen is None:
            best = joined(self.groups, self.best)["selectors"]
            error = (self.variants[self.best] if self.best else self.int8).error
            number = "no number" if error is None else f"{error:.4g}"
            return (
                *notes,
                f"No set that was measured reaches {wanted}. The best, {number}: "
                f"{_arguments(best) or 'int8 throughout'}",
            )
        if not self.chosen:
            return (*notes, f"int8 reaches {wanted}: nothing need be kept in float.")
        return (
            *notes,
            f"A small set that reaches {wanted}, not provably the smallest; exported anew and "
            "measured as a whole in the last row:",
            _arguments(self.keep_float),
        )


def gain(metric: Metric, number: float | None, base: float | None) -> float | None:
    """Return the improvement of a number over the int8 model's, in the metric's own unit."""
    if number is None or base is None:
        return None
    if number == base:
        return 0.0
    difference = number - base if metric.better == "higher" else base - number
    return difference if difference == difference else None


def _row(
    found: Sensitivity,
    name: str | Key,
    variant: Variant,
    kept: Iterable[int] | None,
    times: Mapping[Any, Any],
) -> dict[str, Any]:
    """name: the role, or the key of a variant. kept: the groups in float; None for all."""
    is_int8 = name == "int8"
    parts = joined(found.groups, kept or ())
    what = " + ".join(parts["selectors"]) or ("everything" if kept is None else "nothing")
    sizes = variant.size, found.int8.size
    row = {
        "what": what,
        "role": name if isinstance(name, str) else "variant",
        "keep_float": list(parts["selectors"]),
        "nodes": list(parts["names"]),
        "modules": list(parts["modules"]),
        "source": ", ".join(parts["sources"]) or None,
        found.metric.name: variant.error,
        "gain": None if is_int8 else gain(found.metric, variant.error, found.int8.error),
        "worst": variant.worst,
        "worst_sample": variant.worst_sample,
        **dict.fromkeys(("time", "time_cost", "time_cost_percent", "time_spread")),
        "size": variant.size,
        "size_cost": None if is_int8 or None in sizes else sizes[0] - sizes[1],  # type: ignore[operator]
        "verdict": verdict(found, variant, is_int8=is_int8),
        "detail": variant.detail or None,
    }
    # The median of the rounds; the median difference to the int8 model in the same round, and half
    # the interquartile range of these differences.
    mine, base = times.get(name), times.get("int8")
    if mine is not None and base is not None:
        row["time"] = float(np.median(mine))
        if not is_int8:
            low, cost, high = np.percentile(mine - base, [25, 50, 75])
            row["time_cost"] = float(cost)
            row["time_cost_percent"] = float(100 * cost / np.median(base))
            row["time_spread"] = float((high - low) / 2)
    return row


def verdict(found: Sensitivity, variant: Variant, *, is_int8: bool = False) -> str:
    """Judge a variant in a few words."""
    if variant.failure is not None:
        return FAILURES[variant.failure]
    if found.tolerance is not None and reaches(found.metric, variant.error, found.tolerance):
        return "good enough"
    if is_int8:
        return "as it is" if found.tolerance is None else "not good enough"
    base = found.int8.error
    difference = gain(found.metric, variant.error, base)
    if difference is None:
        return "no number"
    threshold = abs(base) * _SMALL if base is not None and np.isfinite(base) else 0.0
    if abs(difference) <= (_SMALL_DB if found.metric.unit == "dB" else threshold):
        return "no gain"
    return "helps" if difference > 0 else "worse"


def _arguments(selectors: Iterable[str]) -> str:
    return " ".join(f"-X {shlex.quote(f'keep_float={text}')}" for text in selectors)
