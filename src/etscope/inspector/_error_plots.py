"""`plot_errors` and `plot_values` of the results that `Inspector` gives: errors in order of
execution, and a value of the device beside the expected one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from etscope.analysis.metrics import find_metric
from etscope.analysis.numerics.gap import Gap
from etscope.analysis.numerics.rows import Numerics, NumericsRow, described
from etscope.errors import MissingDataError, UsageError
from etscope.model.table import Column, Kind
from etscope.views.plots import figures, metric_plots

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None

ERRORS = ("local", "total", "inherited")


@dataclass(frozen=True)
class PlottedGap(Gap):
    """A `Gap` that can be drawn."""

    def plot_errors(
        self,
        path: Paths = None,
        metric: str | None = None,
        *,
        tolerance: float | None = None,
        worst: int = 5,
        title: str | None = None,
        size: tuple[float, float] = (10.0, 5.0),
    ) -> None:
        """Draw a metric of each value in order of execution: shown below the cell of a notebook,
        and written to `path`, a .png or .svg file or several.

        metric: of those that were measured, by default the first. tolerance, worst, size: see
        `etscope.views.plots.metric_plots.error_figure`.

        Raises `UsageError` for a metric that was not measured, for a path of another suffix, and
        without a path where there is no notebook; `MissingDependencyError` without matplotlib.
        """
        measured = [one.name for one in self.metrics]
        name = measured[0] if metric is None else find_metric(metric).name
        if name not in measured:
            raise UsageError(
                f"{name!r} was not measured: this gap has {', '.join(measured)}",
                hint="name it in metrics= of numeric_gap",
            )
        targets, table = _targets(path), self.table()
        figure = metric_plots.error_figure(
            table, name, tolerance=tolerance, worst=worst, title=title or table.title, size=size
        )
        _deliver(figure, targets)


@dataclass(frozen=True)
class PlottedNumerics(Numerics):
    """`Numerics` that can be drawn."""

    def plot_errors(
        self,
        path: Paths = None,
        error: str = "local",
        *,
        tolerance: float | None = None,
        worst: int = 5,
        title: str | None = None,
        size: tuple[float, float] = (10.0, 5.0),
    ) -> None:
        """Draw an error of each value in order of execution, in the metric of the diagnosis, with
        the noise floor of local ones: shown below the cell of a notebook, and written to `path`, a
        .png or .svg file or several.

        error: "local", the operator's own; "total", to the reference; "inherited", of what it read.
        tolerance, worst, size: see `etscope.views.plots.metric_plots.error_figure`.

        Raises `UsageError` for another error, for a path of another suffix, and without a path
        where there is no notebook; `MissingDataError` when no value has that error;
        `MissingDependencyError` without matplotlib.
        """
        if error not in ERRORS:
            raise UsageError(f"an error is {', '.join(ERRORS)}, not {error!r}")
        table, name = self.table(), self.metric.name
        drawn = replace(
            table,
            columns=(*table.columns, Column(name, Kind.FLOAT, unit=self.metric.unit)),
            values={**table.values, name: table.values[error]},
        )
        targets = _targets(path)
        figure = metric_plots.error_figure(
            drawn,
            name,
            tolerance=tolerance,
            noise_floor=table.values["noise"] if error == "local" else None,
            worst=worst,
            title=title or f"{error.capitalize()} error of {self.method}",
            size=size,
        )
        _deliver(figure, targets)

    def plot_values(
        self,
        path: Paths = None,
        row: NumericsRow | None = None,
        *,
        against: str | None = None,
        title: str | None = None,
        size: tuple[float, float] = (10.0, 5.5),
    ) -> None:
        """Draw the values of a row: distribution, error by channel, worst elements; delivered as by
        `plot_errors`.

        row: of `rows`, with values; by default the first that is wrong, else the one with values
        whose excess is the largest. against: "local", PyTorch's result from the device's inputs, or
        "total", the reference; by default the former for a wrong row. size: see
        `etscope.views.plots.value_plots.value_figure`.

        Raises `UsageError` for another word, for a path of another suffix, and without a path where
        there is no notebook; `MissingDataError` for a row without values; `MissingDependencyError`
        without matplotlib.
        """
        from etscope.views.plots.value_plots import value_figure

        if against not in (None, "local", "total"):
            raise UsageError(f"values are compared with local or total, not {against!r}")
        kept = [one for one in self.rows if one.values is not None]
        if row is None:
            row = self.first or max(kept, key=lambda one: one.excess, default=None)
        if row is None or row.values is None:
            raise MissingDataError(
                "no values were kept" + ("" if row is None else f" of {row.node}"),
                hint="diagnose_numerics(values='NODE') keeps those that a selector picks",
            )
        found = row.values.local if against == "local" else row.values.behind(row.verdict)
        if against == "total":
            found = row.values.total or row.values.local
        targets = _targets(path)
        _deliver(value_figure(found, title=title or described(row), size=size), targets)


_Plotted = TypeVar("_Plotted", PlottedGap, PlottedNumerics)


def plotted(kind: type[_Plotted], result: Gap | Numerics) -> _Plotted:
    """The same result with `plot_errors`."""
    return kind(**{field.name: getattr(result, field.name) for field in fields(result)})


def _targets(path: Paths) -> list[str | os.PathLike[str]]:
    """The files to write. Raises `UsageError` for another suffix."""
    paths = [path] if path is None or isinstance(path, (str, os.PathLike)) else [*path]
    targets = [target for target in paths if target is not None]
    for target in targets:
        figures.checked_suffix(target)
    return targets


def _deliver(figure: Any, targets: list[str | os.PathLike[str]]) -> None:
    """Write the figure to files and show it. Raises `UsageError` if there is no place for it."""
    for target in targets:
        figures.save_figure(figure, target)
    if not figures.show_figure(figure) and not targets:
        raise UsageError(
            "there is no notebook to show the plot in", hint="name a file: 'errors.png'"
        )
