"""Plot metrics: errors in order of execution, and one metric of each output."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from etscope.analysis.metrics import METRICS
from etscope.errors import MissingDataError, UsageError
from etscope.model.table import Table
from etscope.views.plots.figures import checked_suffix, new_figure, save_figure, show_figure
from etscope.views.tables.cells import visible

__all__ = ["save_error_plot", "show_error_plot"]

_DECADES = 100.0  # from here on a linear scale would press the smaller errors to the ground
_CHARACTERS = 13.8  # of the text below the plot, an inch
_LARGEST = 1e150  # drawn: an axis needs room below the largest float
_GOOD, _BAD = "tab:blue", "tab:red"


def save_error_plot(
    rows: Table,
    path: str | os.PathLike[str],
    metric: str,
    *,
    tolerance: float | None = None,
    noise_floor: float | Sequence[float | None] | None = None,
    worst: int = 5,
    title: str | None = None,
    size: tuple[float, float] = (10.0, 5.0),
) -> None:
    """Write the plot of `error_figure` to a .png or .svg file.

    Raises `UsageError` for another suffix, and what `error_figure` raises.
    """
    checked_suffix(path)
    figure = error_figure(
        rows,
        metric,
        tolerance=tolerance,
        noise_floor=noise_floor,
        worst=worst,
        title=title,
        size=size,
    )
    save_figure(figure, path)


def show_error_plot(rows: Table, metric: str, **options: Any) -> bool:
    """Show the plot of `error_figure`, with its options, in a notebook; False anywhere else."""
    return show_figure(error_figure(rows, metric, **options))


def error_figure(
    rows: Table,
    metric: str,
    *,
    tolerance: float | None = None,
    noise_floor: float | Sequence[float | None] | None = None,
    worst: int = 5,
    title: str | None = None,
    size: tuple[float, float] = (10.0, 5.0),
) -> Any:
    """Plot a metric of each instruction with matplotlib, in order of execution.

    rows: a table with the columns instruction, op and source, and one by the name of the metric.
    tolerance: a line that no instruction should pass. noise_floor: the effect of rounding alone,
    for all rows or for each. worst: number of the worst points that are numbered, and named below
    the plot with operator and source line. size: width and height in inches.

    Errors that span two decades are drawn on a logarithmic scale, with those of 0 at its lower end.
    NaN and infinities are marks at the edge where the worse values are (the better, for an infinity
    that is perfect). Rows without a value have no point; a note below counts them.

    Raises `UsageError` for a column that is not there, `MissingDataError` when no row has a value,
    `MissingDependencyError` without matplotlib.
    """
    rows = rows.select(dict.fromkeys(("instruction", "op", "source", metric)))
    points, missing = _points(rows, metric)
    if not points:
        raise MissingDataError(f"no instruction has a value of {metric!r} to plot")
    if worst < 0:
        raise UsageError(f"the number of instructions to name must be 0 or more, not {worst}")
    floor: list[float | None] | None = None  # at each point
    if isinstance(noise_floor, (int, float)):
        floor = [float(noise_floor)] * len(points)
    elif noise_floor is not None:
        if len(noise_floor) != len(rows):
            raise UsageError(f"the noise floor has {len(noise_floor)} values for {len(rows)} rows")
        floor = [noise_floor[point.row] for point in points]

    figure = new_figure(*size, wanted_by="the plot of errors")
    axes = figure.add_subplot()
    scale = _scale(points, metric, tolerance, floor)
    _draw(axes, points, scale)
    if tolerance is not None:
        axes.axhline(tolerance, color="tab:orange", linestyle="--", linewidth=1, label="tolerance")
    if floor is not None:
        axes.plot(
            [point.instruction for point in points],
            [math.nan if value is None else scale.height(value) for value in floor],
            color="0.5",
            linestyle=":",
            drawstyle="steps-mid",
            label="noise floor",
        )
    _label_axes(axes, points, metric, title)
    named = _worst_points(points, metric)[:worst]
    _name_points(axes, named, scale, missing)
    return figure


@dataclass(frozen=True, slots=True)
class _Point:
    row: int
    instruction: int
    op: str
    source: str
    value: float


@dataclass(frozen=True, slots=True)
class _Scale:
    """The range of the value axis. Values outside of it are drawn at an edge."""

    low: float
    high: float
    logarithmic: bool
    lower_is_better: bool

    def height(self, value: float) -> float:
        if math.isnan(value):
            return self.high if self.lower_is_better else self.low
        return min(max(value, self.low), self.high)


def _points(rows: Table, metric: str) -> tuple[list[_Point], int]:
    """The rows that have a value, in order of execution, and the number of those that have none."""
    points, missing = [], 0
    for row, (instruction, op, source, value) in enumerate(
        zip(*(rows.values[name] for name in ("instruction", "op", "source", metric)), strict=True)
    ):
        if value is None or instruction is None:
            missing += 1
            continue
        try:
            place, number = int(instruction), float(value)
        except (TypeError, ValueError) as error:
            raise UsageError(f"row {row} has no numbers to plot: {error}") from error
        points.append(_Point(row, place, _text(op), _text(source), number))
    return sorted(points, key=lambda point: point.instruction), missing


def _text(cell: Any) -> str:
    if isinstance(cell, (list, tuple)):
        cell = ", ".join(map(str, cell))
    return "" if cell is None else visible(str(cell))


def _scale(
    points: list[_Point], metric: str, tolerance: float | None, floor: list[float | None] | None
) -> _Scale:
    numbers = [point.value for point in points]
    numbers += [number for number in (tolerance, *(floor or ())) if number is not None]
    finite = [min(max(x, -_LARGEST), _LARGEST) for x in numbers if math.isfinite(x)] or [0.0]
    known = METRICS.get(metric)
    lower_is_better = known is None or known.better == "lower"
    positive = [number for number in finite if number > 0] if min(finite) >= 0 else []
    if lower_is_better and positive and max(positive) / min(positive) >= _DECADES:
        # Zeros are drawn a decade below the smallest error, infinities and NaN above the largest.
        low = max(min(positive) / 10, 1 / _LARGEST)
        return _Scale(low, max(*positive, 10 * low) * 10, True, True)
    low, high = min(finite), max(finite)
    if lower_is_better and low >= 0:
        low = 0.0
    room = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
    return _Scale(low if low == 0.0 else low - room, high + room, False, lower_is_better)


def _worst_points(points: list[_Point], metric: str) -> list[_Point]:
    """The points that are not perfect, the worst first."""
    known = METRICS.get(metric)
    perfect = 0.0 if known is None else known.perfect
    sign = 1.0 if known is None or known.better == "lower" else -1.0
    # Sorting is stable: of equal errors the first comes first, as later ones may come from it.
    return sorted(
        (point for point in points if point.value != perfect),
        key=lambda point: (math.isnan(point.value), sign * point.value),
        reverse=True,
    )


def _draw(axes: Any, points: list[_Point], scale: _Scale) -> None:
    across = np.array([point.instruction for point in points])
    values = np.array([point.value for point in points])
    heights = np.array([scale.height(point.value) for point in points])
    if scale.logarithmic:
        axes.set_yscale("log")
        span = scale.high / scale.low
        axes.set_ylim(scale.low / span**0.03, scale.high * span**0.12)
    else:
        span = scale.high - scale.low
        axes.set_ylim(scale.low - 0.03 * span, scale.high + 0.12 * span)
    finite = np.isfinite(values)
    axes.plot(across, np.where(finite, heights, np.nan), color=_GOOD, linewidth=1, zorder=2)
    axes.scatter(across[finite], heights[finite], color=_GOOD, s=14, zorder=3)
    for name, marker, picked in (
        ("NaN", "x", np.isnan(values)),
        ("infinite", "^", values == np.inf),
        ("-infinite", "v", values == -np.inf),
    ):
        if picked.any():
            bad = name == "NaN" or (name == "infinite") == scale.lower_is_better
            axes.scatter(
                across[picked],
                heights[picked],
                color=_BAD if bad else "tab:green",
                marker=marker,
                s=45,
                zorder=4,
                label=name,
            )


def _label_axes(axes: Any, points: list[_Point], metric: str, title: str | None) -> None:
    known = METRICS.get(metric)
    unit = f" ({known.unit})" if known is not None and known.unit else ""
    name = visible(known.title if known is not None else metric)
    better = "" if known is None else f", {known.better} is better"
    axes.set_xlabel("instruction")
    axes.set_ylabel(f"{name}{unit}{better}", parse_math=False)
    axes.set_title(visible(title or f"{name} in order of execution"), parse_math=False)
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    first, last = points[0].instruction, points[-1].instruction
    room = max(0.5, 0.02 * (last - first))
    axes.set_xlim(first - room, last + room)
    axes.grid(axis="y", alpha=0.4)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="best", fontsize=9)


def _name_points(axes: Any, named: list[_Point], scale: _Scale, missing: int) -> None:
    """Number the points, name them below the plot, and count the rows without a value."""
    for number, point in enumerate(named, start=1):
        axes.annotate(
            str(number),
            (point.instruction, scale.height(point.value)),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            color=_BAD,
            fontsize=9,
            fontweight="bold",
        )
    cells = [
        (str(number), f"{point.value:.3g}", f"#{point.instruction}", point.op)
        for number, point in enumerate(named, start=1)
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = int(axes.figure.get_figwidth() * _CHARACTERS)
    lines: list[str] = []
    for texts, point in zip(cells, named, strict=True):
        # One line of at most `room` characters; the end of a long path is the specific part.
        what, source = "  ".join(map(str.ljust, texts, widths)), point.source
        if len(what) + 2 + len(source) > room:
            for_source = max(room - len(what) - 2, room // 3)
            if len(source) > for_source:
                source = "..." + source[3 - for_source :]
            for_what = room - len(source) - 2
            what = what if len(what) <= for_what else what[: for_what - 3] + "..."
        lines.append(f"{what}  {source}".rstrip())
    if missing:
        lines.append(f"without a value: {missing} row{'s' if missing > 1 else ''}")
    if lines:
        axes.figure.supxlabel(
            "\n".join(lines), x=0.01, ha="left", fontsize=8, family="monospace", parse_math=False
        )


# One metric of each output of a run, as bars.

_MANY = 30  # bars; the numbers on more would lie over each other


def metric_figure(name: str, values: Sequence[float | None], *, wanted_by: str) -> Any:
    """Plot a bar for each output with matplotlib, with its value.

    A value that is infinite, NaN or None is written as text instead of a bar.
    """
    figure = new_figure(8, 6, wanted_by=wanted_by)
    axes = figure.add_subplot()
    heights = [v if v is not None and math.isfinite(v) else 0.0 for v in values]
    axes.bar(range(len(values)), heights, width=0.5)
    axes.axhline(0, color="0.3", linewidth=0.8)
    if len(values) <= _MANY:
        for index, (value, height) in enumerate(zip(values, heights, strict=True)):
            above = height >= 0
            axes.annotate(
                "no number" if value is None else f"{value:.4g}",
                (index, height),
                xytext=(0, 3 if above else -3),
                textcoords="offset points",
                ha="center",
                va="bottom" if above else "top",
                fontsize=9,
            )
    axes.margins(y=0.12)
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.set_xlim(-0.75, max(len(values), 1) - 0.25)
    axes.grid(axis="y", alpha=0.4)
    axes.set_axisbelow(True)
    metric = METRICS.get(name)
    unit = f" ({metric.unit})" if metric is not None and metric.unit else ""
    axes.set_xlabel("output")
    axes.set_ylabel(visible(name) + unit, parse_math=False)
    axes.set_title(f"{visible(metric.title if metric else name)} by output", parse_math=False)
    return figure
