"""`compare_results`: a run's outputs against reference outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etscope.analysis.metrics import DEFAULT_METRICS, find_metric, measure_all
from etscope.errors import MissingDataError, UsageError
from etscope.views.plots.figures import save_figure, show_figure
from etscope.views.plots.metric_plots import metric_figure


def compare_results(
    reference_output: Sequence[Any],
    run_output: Sequence[Any],
    metrics: Sequence[str] | None = None,
    plot: bool = False,
) -> dict[str, list[float | None]]:
    """The metrics of each output of a run against its reference.

    reference_output, run_output: outputs in order (tensors, arrays or numbers). metrics: names of
    `etscope.analysis.metrics.METRICS`; by default snr, mse and cosine_similarity. plot: also draw
    each metric's values by output, write them to ``<metric>_output_plot.png`` in the current folder
    and, in a notebook, show them; needs matplotlib. No window is opened.

    Returns metric -> one value for each output, None for a pair that is not of numbers. NaN, and
    what else is no ordinary number, has the results of ``docs/metrics.md``; types may differ.

    Raises `MissingDataError` when there is nothing to compare, `UsageError` for an unknown metric,
    and when the numbers of outputs or their shapes differ.
    """
    for which, outputs in (("reference", reference_output), ("run", run_output)):
        if isinstance(outputs, (str, bytes)) or hasattr(outputs, "__array__"):
            raise UsageError(f"give a list of {which} outputs, not a {type(outputs).__name__}")
        if not outputs:
            raise MissingDataError(
                f"there are no {which} outputs to compare",
                hint="record them: a bundled program's ETRecord has references, a debug buffer has "
                "the run's outputs",
            )
    if len(reference_output) != len(run_output):
        raise UsageError(
            f"the run has {len(run_output)} outputs, the reference {len(reference_output)}"
        )
    if isinstance(metrics, str):
        raise UsageError(f"give a list of metrics, not {metrics!r}", hint=f"write [{metrics!r}]")
    if metrics is not None and not metrics:
        raise UsageError("no metric is named", hint="leave metrics out for the default ones")
    names = [find_metric(name).name for name in (DEFAULT_METRICS if metrics is None else metrics)]
    results: dict[str, list[float | None]] = {name: [] for name in names}
    for index, (reference, value) in enumerate(zip(reference_output, run_output, strict=True)):
        try:
            measured = measure_all(names, reference, value)
        except UsageError as error:
            raise UsageError(f"output {index}: {error.message}", hint=error.hint) from error
        for name, values in results.items():
            values.append(measured[name])
    if plot:
        for name, values in results.items():
            figure = metric_figure(name, values, wanted_by="compare_results(plot=True)")
            save_figure(figure, f"{name}_output_plot.png")
            show_figure(figure)
    return results
