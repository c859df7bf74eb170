"""Tables of the Inspector, and plots of one metric of each output.

No window is opened and `pyplot` is not used: nothing has to be closed, and the backend and the
styles of a user's session do not change.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from etscope.analysis.metrics import METRICS
from etscope.support.optional import require
from etscope.views.output import open_output
from etscope.views.tables.cells import visible

if TYPE_CHECKING:
    import pandas as pd

_MANY = 30  # bars; the numbers on more would lie over each other


def show_frame(frame: pd.DataFrame, file: IO[str] | None, *, wanted_by: str) -> None:
    """Display a DataFrame in a notebook; elsewhere print it as a grid to `file` (stdout)."""
    if "IPython" in sys.modules and file is None:
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is not None:
            display(frame)
            return
    tabulate = require("tabulate", wanted_by=wanted_by).tabulate
    print(
        tabulate(frame, headers="keys", tablefmt="fancy_grid"),
        file=sys.stdout if file is None else file,
    )


def draw_metric(name: str, values: Sequence[float | None], *, wanted_by: str) -> None:
    """Write the bars to ``<name>_output_plot.png`` in the current folder; a notebook shows them.

    Raises `MissingDependencyError` without matplotlib (the extra `plot`).
    """
    buffer = io.BytesIO()
    metric_figure(name, values, wanted_by=wanted_by).savefig(buffer, format="png", dpi=100)
    with open_output(f"{name}_output_plot.png", binary=True) as out:
        out.write(buffer.getvalue())
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is not None:  # a terminal has none, and cannot show it
        from IPython.display import Image, display

        display(Image(buffer.getvalue()))


def metric_figure(name: str, values: Sequence[float | None], *, wanted_by: str) -> Any:
    """Plot a bar for each output with matplotlib, with its value.

    A value that is infinite, NaN or None is written as text instead of a bar.
    """
    figure = require("matplotlib.figure", wanted_by=wanted_by).Figure(
        figsize=(8, 6), layout="constrained"
    )
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
