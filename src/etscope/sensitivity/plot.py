"""Plot the error of each variant against its time."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from etscope.views.plots.figures import new_figure, save_figure
from etscope.views.tables.text_cells import visible

if TYPE_CHECKING:
    from etscope.sensitivity._results import Sensitivity

_COLORS = {"int8": "tab:red", "float": "tab:green", "chosen": "tab:blue"}
_GREY = "0.6"
_MARKERS = "sv^<>DPX"  # of the best variants
_LONGEST = 60


def sensitivity_figure(found: Sensitivity) -> Any:
    """A matplotlib figure with a point for each program that has a time and a finite error. Those
    with the largest gains are named."""
    figure = new_figure(8, 7, wanted_by="a plot of errors and times")
    axes = figure.add_subplot()
    table = found.table()
    metric = found.metric
    markers = iter(_MARKERS)
    for values in table.rows():
        row = dict(zip(table.names, values, strict=True))
        error, time, role = row[metric.name], row["time"], row["role"]
        if error is None or time is None or not math.isfinite(error):
            continue
        gains = role == "variant" and row["verdict"] in ("helps", "good enough")
        marker = next(markers, None) if gains else None
        label = visible(row["what"])
        label = label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"
        label += " (chosen)" if role == "chosen" else ""
        axes.errorbar(
            [row["time_cost"] or 0.0],
            [error],
            xerr=[[row["time_spread"] or 0.0]] * 2,
            fmt=marker or "o",
            color=_COLORS.get(role, "0.25" if marker else _GREY),
            markersize=9 if role in _COLORS else 6 if marker else 4,
            elinewidth=0.8,
            label=label if role in _COLORS or marker else None,
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
    legend = figure.legend(loc="outside lower center", fontsize=8, ncols=1)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def save_plot(found: Sensitivity, path: str | os.PathLike[str]) -> None:
    """Write the figure as PNG or SVG, by the suffix."""
    save_figure(sensitivity_figure(found), path)
