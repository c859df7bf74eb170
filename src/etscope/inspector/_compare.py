"""`compare_results`: a run's outputs against reference outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etscope.analysis.metrics import DEFAULT_METRICS, measure
from etscope.errors import MissingDataError, UsageError
from etscope.optional import require


def compare_results(
    reference_output: Sequence[Any],
    run_output: Sequence[Any],
    metrics: Sequence[str] | None = None,
    plot: bool = False,
) -> dict[str, list[float | None]]:
    """The metrics of each output of a run against its reference.

    reference_output, run_output: outputs in order (tensors, arrays or numbers). metrics: names of
    `etscope.analysis.metrics.METRICS`, all by default. plot: also draw each metric's values by
    output, write them to ``<metric>_output_plot.png`` in the current folder and show them; needs
    matplotlib.

    Returns metric -> one value for each output, None for outputs that are not numeric.

    Raises `MissingDataError` when there is nothing to compare, `UsageError` when the numbers of
    outputs or their shapes differ.
    """
    if not reference_output or not run_output:
        which = "reference" if not reference_output else "run"
        raise MissingDataError(
            f"there are no {which} outputs to compare",
            hint="record them: a bundled program's ETRecord has references, a debug buffer has "
            "the run's outputs",
        )
    if len(reference_output) != len(run_output):
        raise UsageError(
            f"the run has {len(run_output)} outputs, the reference {len(reference_output)}"
        )
    results = {
        name: [measure(name, *pair) for pair in zip(reference_output, run_output, strict=True)]
        for name in (DEFAULT_METRICS if metrics is None else metrics)
    }
    if plot:
        _plot(results)
    return results


def _plot(results: dict[str, list[float | None]]) -> None:
    pyplot = require("matplotlib.pyplot", wanted_by="compare_results(plot=True)")
    for name, values in results.items():
        figure, axes = pyplot.subplots()
        heights = [float("nan") if value is None else value for value in values]
        axes.bar(range(len(heights)), heights)
        axes.set_xlabel("output")
        axes.set_ylabel(name)
        axes.set_title(f"{name} by output")
        figure.savefig(Path(f"{name}_output_plot.png"))
        pyplot.show()
        pyplot.close(figure)
