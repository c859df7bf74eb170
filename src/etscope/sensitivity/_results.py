"""What was measured of one variant, and of all."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric
from etscope.model.table import Column, Kind, Table
from etscope.sensitivity._groups import Group, joined

LOWER, RUN = "lower", "run"
Key = frozenset[int]  # positions of the groups that are kept in float


@dataclass(frozen=True, slots=True)
class Variant:
    """A program with something kept in float.

    error: the metric of the worst output, all samples taken together; NaN if an output has NaN
    where the float model has none. worst: of the worst sample alone, and which that is.
    size: bytes of the program. failure: "lower" or "run" when there are no numbers, and why.
    """

    error: float | None = None
    worst: float | None = None
    worst_sample: int | None = None
    size: int | None = None
    failure: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Sensitivity:
    """What keeping parts of a model in float buys, and costs.

    int8, full: all quantised, and all in float. groups: what may be kept. variants: what was
    measured, by the positions of the groups kept. chosen: the set that the search ended with;
    empty when int8 is good enough, None when there was no search or no set is good enough.
    best: the best set that was measured. confirmed: the chosen set exported anew by its
    selectors. times: ms, [rounds] of each program, by "int8", "float", "chosen" and the variants'
    keys; rounds of one kind were interleaved.
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
        """Whether the tolerance is reached by what is proposed; None without a tolerance."""
        return None if self.tolerance is None else self.chosen is not None

    @property
    def keep_float(self) -> tuple[str, ...]:
        """The selectors for `export(keep_float=)`: of the chosen set."""
        return tuple(self.groups[index].selector for index in sorted(self.chosen or ()))

    def table(self) -> Table:
        """A row for each program that was measured, or failed."""

        return report_table(self)


def is_good(metric: Metric, number: float | None, tolerance: float) -> bool:
    """Whether a number reaches the tolerance; NaN and no number do not."""
    if number is None or number != number:
        return False
    return number <= tolerance if metric.better == "lower" else number >= tolerance


def gain(metric: Metric, number: float | None, base: float | None) -> float | None:
    """By how much a number is better than that of the int8 model, in the metric's own unit."""
    if number is None or base is None:
        return None
    if number == base:
        return 0.0
    difference = number - base if metric.better == "higher" else base - number
    return difference if difference == difference else None


# What was measured, as a table.


_FAILURES = {LOWER: "cannot be lowered", "run": "fails to run"}
_SMALL = 0.01  # of the int8 model's error: a gain that is none
_SMALL_DB = 0.1


def report_table(found: Sensitivity) -> Table:
    """The int8 model, what was kept in float by gain, the float model, and the set that was found,
    exported anew and timed once more next to both."""
    keys = sorted(found.variants, key=lambda key: _order(found, key))
    rows = [_row(found, "int8", found.int8, (), found.times)]
    rows += [_row(found, key, found.variants[key], key, found.times) for key in keys if key]
    rows.append(_row(found, "float", found.full, None, found.times))
    breaks = {1, len(rows) - 1}
    if found.chosen and found.confirmed is not None:
        breaks.add(len(rows))
        rows.append(_row(found, "chosen", found.confirmed, found.chosen, found.final_times))
    columns = _columns(found)
    return Table(
        columns=columns,
        values={column.name: [row[column.name] for row in rows] for column in columns},
        title="Kept in float",
        notes=_notes(found),
        breaks=frozenset(breaks),
    )


def _columns(found: Sensitivity) -> tuple[Column, ...]:
    unit = found.metric.unit or None
    return (
        Column("what", title="kept in float"),
        Column("role", priority=9),
        Column("keep_float", Kind.LIST, priority=9),
        Column("nodes", Kind.LIST, priority=9),
        Column("modules", Kind.LIST, priority=8),
        Column("source", priority=1),
        Column(found.metric.name, Kind.FLOAT, unit),
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


def _row(
    found: Sensitivity,
    name: Any,
    variant: Variant,
    key: Key | tuple[()] | None,
    times: Mapping[Any, Any],
) -> dict[str, Any]:
    parts = joined(found.groups, key or ())
    what = " + ".join(parts["selectors"]) or ("nothing" if key is not None else "everything")
    return {
        "what": what,
        "role": name if isinstance(name, str) else "variant",
        "keep_float": list(parts["selectors"]),
        "nodes": list(parts["names"]),
        "modules": list(parts["modules"]),
        "source": ", ".join(parts["sources"]) or None,
        found.metric.name: variant.error,
        "gain": None if name == "int8" else gain(found.metric, variant.error, found.int8.error),
        "worst": variant.worst,
        "worst_sample": variant.worst_sample,
        **_times(name, times),
        "size": variant.size,
        "size_cost": _difference(variant.size, found.int8.size) if name != "int8" else None,
        "verdict": verdict(found, variant, is_int8=name == "int8"),
        "detail": variant.detail or None,
    }


def _times(name: Any, times: Mapping[Any, Any]) -> dict[str, Any]:
    """The median of the rounds; the median difference to the int8 model in the same round, and
    half the middle half of these differences."""
    mine, base = times.get(name), times.get("int8")
    none = {"time": None, "time_cost": None, "time_cost_percent": None, "time_spread": None}
    if mine is None or base is None:
        return none
    time = float(np.median(mine))
    if name == "int8":
        return {**none, "time": time}
    differences = mine - base
    low, cost, high = np.percentile(differences, [25, 50, 75])
    return {
        "time": time,
        "time_cost": float(cost),
        "time_cost_percent": float(100 * cost / np.median(base)),
        "time_spread": float((high - low) / 2),
    }


def _difference(size: int | None, base: int | None) -> int | None:
    return None if size is None or base is None else size - base


def verdict(found: Sensitivity, variant: Variant, *, is_int8: bool = False) -> str:
    """In a few words, what a variant is good for."""
    if variant.failure is not None:
        return _FAILURES[variant.failure]
    if found.tolerance is not None and is_good(found.metric, variant.error, found.tolerance):
        return "good enough"
    if is_int8:
        return "as it is" if found.tolerance is None else "not good enough"
    difference = gain(found.metric, variant.error, found.int8.error)
    if difference is None:
        return "no number"
    if abs(difference) <= _threshold(found):
        return "no gain"
    return "helps" if difference > 0 else "worse"


def _threshold(found: Sensitivity) -> float:
    if found.metric.unit == "dB":
        return _SMALL_DB
    base = found.int8.error
    return abs(base) * _SMALL if base is not None and np.isfinite(base) else 0.0


def _order(found: Sensitivity, key: Key) -> tuple[bool, float, int, Sequence[int]]:
    variant = found.variants[key]
    badness = found.metric.badness(variant.error)
    return variant.failure is not None, badness, len(key), sorted(key)


# -- sentences


def _notes(found: Sensitivity) -> tuple[str, ...]:
    samples = f"{found.samples:,} {'sample' if found.samples == 1 else 'samples'}"
    rounds = len(next(iter(found.times.values()), ()))
    failed = sum(one.failure is not None for one in found.variants.values())
    notes = [
        f"{found.metric.name} against the float model in PyTorch, of the worst output, {samples} "
        "taken as one.",
        f"Times: {rounds} interleaved rounds on the first sample; a cost below its ± is not told "
        "from noise.",
    ]
    if failed:
        notes.append(f"{failed} of {len(found.variants)} variants failed; see detail.")
    return (*notes, *_advice(found))


def _advice(found: Sensitivity) -> list[str]:
    if found.tolerance is None:
        return ["Give a tolerance to search for a small set that reaches it."]
    wanted = f"{found.tolerance:g}{' ' + found.metric.unit if found.metric.unit else ''}"
    if found.chosen is None:
        best = joined(found.groups, found.best)["selectors"]
        error = (found.variants[found.best] if found.best else found.int8).error
        return [
            f"No set that was measured reaches {wanted}. The best, {_number(error)}: "
            f"{_arguments(best) or 'int8 throughout'}"
        ]
    if not found.chosen:
        return [f"int8 reaches {wanted}: nothing need be kept in float."]
    return [
        f"A small set that reaches {wanted}, not provably the smallest; exported anew and measured "
        "as a whole in the last row:",
        _arguments(found.keep_float),
    ]


def _number(error: float | None) -> str:
    return "no number" if error is None else f"{error:.4g}"


def _arguments(selectors: Sequence[str]) -> str:
    return " ".join(f"--keep-float {shlex.quote(text)}" for text in selectors)
