"""What the verbs that go through a dataset are told about it, and what they show of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from etscope.cli.options.common import gathered, some_of
from etscope.cli.options.files import FILE

if TYPE_CHECKING:
    from etscope.evaluation import Evaluation
    from etscope.model.table import Table

__all__ = ["DatasetOptions", "dataset_options"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

SUMMARY, OPERATORS, SAMPLES, FLIPS = "summary", "operators", "samples", "flips"
SHOWN = (SUMMARY, OPERATORS, SAMPLES, FLIPS)
_PEOPLE = {
    OPERATORS: (
        "instruction", "op", "wrong", "share", "nan", "local_median", "local_worst",
        "total_worst", "worst_sample", "source",
    ),
    SAMPLES: (
        "sample", "verdict", "output", "flips", "op", "local", "limit", "source", "reason",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """The options that `dataset_options` adds, by their names."""

    dataset: str | None
    samples: int | None
    labels: str | None
    top: int | None
    scores: int
    keep_going: bool
    show: tuple[str, ...]
    worst: int
    max_flips: float | None

    def check(self, people: bool) -> None:
        """Raise `UsageError` for options that contradict each other, before anything runs."""
        from etscope.errors import UsageError

        if self.dataset is None:
            given = [
                f"--{field.name.replace('_', '-')}"
                for field in fields(self)
                if getattr(self, field.name) not in (None, (), False, _DEFAULTS.get(field.name))
            ]
            if given:
                raise UsageError(f"{given[0]} is of a dataset, and there is none", hint="--dataset")
        if FLIPS in self.show and not self._classes:
            raise UsageError("classes are not looked at", hint="add --top K, or --labels FILE")
        if len(self.show) > 1 and not people:
            raise UsageError(
                "this format takes one table",
                hint=f"--show {', or '.join(SHOWN)}; several go with table and md",
            )

    @property
    def _classes(self) -> bool:
        return not (self.top is None and self.labels is None and self.max_flips is None)

    @property
    def asked(self) -> dict[str, Any]:
        """For `etscope.evaluation.evaluate` and `evaluate_dump`."""
        return {
            "samples": self.samples,
            "labels": self.labels,
            "top": 5 if self.top is None and self._classes else self.top,
            "output": self.scores,
            "keep_going": self.keep_going,
        }

    def write(
        self,
        found: Evaluation,
        sort: str,
        limit: int | None,
        plot: Path | None,
        columns: str | None,
        format: str | None,
        output: Path | None,
        color: str,
    ) -> int:
        """Write the plot and the tables; the exit code."""
        from etscope.cli.output.output import for_people, write_tables

        if plot is not None:
            save_plot(found, plot)
        people = for_people(format, output)
        shown = self.show or (self._for_people(found) if people else (OPERATORS,))
        names = None if columns is None else [name.strip() for name in columns.split(",")]
        tables = [self._table(found, name, sort, limit) for name in shown]
        if people and names is None:
            tables = [
                table.select(_columns(name, found)) if name in _PEOPLE else table
                for name, table in zip(shown, tables, strict=True)
            ]
            # The notes are of all of them, and come last.
            tables = [*(replace(table, notes=()) for table in tables[:-1]), *tables[-1:]]
            tables[-1] = replace(tables[-1], notes=found.notes)
        write_tables(tables, names, None, format, output, color)
        return self.exit_code(found)

    def _for_people(self, found: Evaluation) -> tuple[str, ...]:
        flipped = found.task is not None and found.task.flipped
        return (OPERATORS, SAMPLES, FLIPS) if flipped else (OPERATORS, SAMPLES)

    def _table(self, found: Evaluation, name: str, sort: str, limit: int | None) -> Table:
        if name == SAMPLES:
            return found.samples_table(self.worst)
        if name == FLIPS:
            return found.flips_table(limit)
        if name == SUMMARY:
            return found.summary_table()
        table = found.operators_table(sort)
        return table if limit is None else table.take(range(min(limit, len(table))))

    def exit_code(self, found: Evaluation) -> int:
        """1 for findings and too many flips, 3 when samples were skipped."""
        share = None if found.task is None else found.task.flip_share
        if self.max_flips is not None and (share is None or share > self.max_flips):
            return 1
        if found.findings:
            return 1
        return 3 if found.skipped else 0


def _columns(table: str, found: Evaluation) -> list[str]:
    """The columns for people: without those that say nothing here."""
    idle = {
        "nan": not any(operator.nan for operator in found.operators),
        "flips": found.task is None,
        "reason": not found.skipped,
    }
    return [name for name in _PEOPLE[table] if not idle.get(name)]


def save_plot(found: Evaluation, path: Path) -> None:
    """Write the plot of each operator's worst own error over the samples."""
    from etscope.model.table import Column, Kind
    from etscope.views.plots.metric_plots import save_error_plot

    table = found.operators_table()
    name = found.metric.name
    measured = replace(
        table,
        columns=(*table.columns, Column(name, Kind.FLOAT)),
        values={**table.values, name: table.values["local_worst"]},
    )
    title = f"Worst local error of {found.method} in {len(found.compared)} samples"
    save_error_plot(measured, path, name, title=title)


_DEFAULTS = {"scores": 0, "worst": 10}
_OPTIONS = (
    click.option(
        "--samples", type=click.IntRange(min=1), metavar="N", help="Take the first N samples."
    ),
    click.option(
        "--labels",
        type=FILE,
        metavar="FILE",
        help="Right classes: integers in a .npy, .npz, .pt or .safetensors file, or lines of "
        "[name,]label.",
    ),
    click.option(
        "--top",
        type=click.IntRange(min=1),
        metavar="K",
        help="Look at classes, and at the best K. With --labels: 5.",
    ),
    click.option(
        "--scores",
        type=click.IntRange(min=0),
        default=_DEFAULTS["scores"],
        show_default=True,
        metavar="N",
        help="Which output has the scores of classes.",
    ),
    click.option(
        "--max-flips",
        type=click.FloatRange(0, 1),
        metavar="SHARE",
        help="Exit with 1 if more than this share has another class than the reference.",
    ),
    click.option(
        "--keep-going",
        is_flag=True,
        help="Skip samples that cannot be run or compared; exit with 3 if nothing else is wrong.",
    ),
    click.option(
        "--show",
        callback=some_of(SHOWN),
        metavar="WHAT,…",
        help="summary, operators, samples, flips. Default: the last three; in forms for programs "
        "operators.",
    ),
    click.option(
        "--worst",
        type=click.IntRange(min=0),
        default=_DEFAULTS["worst"],
        show_default=True,
        metavar="N",
        help="How many samples to name.",
    ),
)


def dataset_options(function: _Function, *, required: bool = True) -> _Function:
    """Add `--dataset` and all that goes with it; the function gets them as one parameter,
    `dataset_options`."""
    dataset = click.option(
        "--dataset",
        "-d",
        type=FILE,
        required=required,
        metavar="PATH",
        help="Samples: a folder of files of inputs (.npz, .npy, .pt, .safetensors), or one such "
        "file whose first axis, or list, counts them.",
    )
    return gathered(
        function,
        [dataset, *_OPTIONS],
        names=[field.name for field in fields(DatasetOptions)],
        parameter="dataset_options",
        make=DatasetOptions,
    )
