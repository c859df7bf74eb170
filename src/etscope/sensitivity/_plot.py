"""What each variant costs in time, against its error."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from etscope.views.figures import new_figure, save_figure
from etscope.views.people import visible

if TYPE_CHECKING:
    from etscope.sensitivity._variant import Sensitivity

_COLORS = {"int8": "tab:red", "float": "tab:green", "chosen": "tab:blue", "variant": "0.45"}
_NAMED = 8  # variants with their names; the best ones


def sensitivity_figure(found: Sensitivity) -> Any:
    """A figure of matplotlib: a point for each program that has a time and a finite error."""
    figure = new_figure(8, 6, wanted_by="a plot of errors and times")
    axes = figure.add_subplot()
    table = found.table()
    metric = found.metric
    rows = [dict(zip(table.names, row, strict=True)) for row in table.rows()]
    named = 0
    for row in rows:
        error, time = row[metric.name], row["time"]
        if error is None or time is None or not math.isfinite(error):
            continue
        role = row["role"]
        cost = row["time_cost"] or 0.0
        axes.errorbar(
            [cost], [error], xerr=[[row["time_spread"] or 0.0]] * 2, fmt="o",
            color=_COLORS[role], markersize=5 if role == "variant" else 9, elinewidth=0.8,
        )  # fmt: skip
        if role != "variant" or named < _NAMED:
            named += role == "variant"
            axes.annotate(
                visible(row["what"] if len(row["what"]) < 40 else row["what"][:39] + "…"),
                (cost, error),
                xytext=(5, 4),
                textcoords="offset points",
                fontsize=8,
                parse_math=False,
            )
    if found.tolerance is not None and math.isfinite(found.tolerance):
        axes.axhline(found.tolerance, color="tab:blue", linestyle="--", linewidth=0.8)
    axes.axvline(0, color="0.3", linewidth=0.8)
    unit = f" ({metric.unit})" if metric.unit else ""
    axes.set_xlabel("time more than int8 throughout (ms)")
    axes.set_ylabel(visible(metric.name) + unit, parse_math=False)
    axes.set_title("What is kept in float: error and cost", parse_math=False)
    axes.grid(alpha=0.4)
    axes.set_axisbelow(True)
    return figure


def save_plot(found: Sensitivity, path: str | os.PathLike[str]) -> None:
    """Write the figure as PNG or SVG, by the suffix."""
    save_figure(sensitivity_figure(found), path)
