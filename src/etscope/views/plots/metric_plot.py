"""One metric of each output of a run, as bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from etscope.analysis.metrics import METRICS
from etscope.views.plots.figures import new_figure
from etscope.views.tables.text_cells import visible

_MANY = 30  # bars; the numbers on more would lie over each other


def metric_figure(name: str, values: Sequence[float | None], *, wanted_by: str) -> Any:
    """A figure of matplotlib: a bar for each output, with its number.

    A value that is infinite, NaN or None has its word in the place of a bar.
    """
    figure = new_figure(8, 6, wanted_by=wanted_by)
    axes = figure.add_subplot()
    heights = [_height(value) for value in values]
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
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlim(-0.75, max(len(values), 1) - 0.25)
    axes.grid(axis="y", alpha=0.4)
    axes.set_axisbelow(True)
    metric = METRICS.get(name)
    unit = f" ({metric.unit})" if metric is not None and metric.unit else ""
    axes.set_xlabel("output")
    axes.set_ylabel(visible(name) + unit, parse_math=False)
    axes.set_title(f"{visible(metric.title if metric else name)} by output", parse_math=False)
    return figure


def _height(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0
