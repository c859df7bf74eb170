"""Options of the verbs that evaluate a dataset, and the tables they show."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    COUNT,
    POSITIVE,
    Function,
    as_one_parameter,
    file_option,
    name_of,
    some_of,
)
from etscope.cli.output.tables import OutputOptions, ViewOptions
from etscope.cli.settings import setting, switch

if TYPE_CHECKING:
    from etscope.evaluation import Evaluation
    from etscope.model.table import Table

SUMMARY, OPERATORS, SAMPLES, FLIPS = "summary", "operators", "samples", "flips"
SHOWN = (SUMMARY, OPERATORS, SAMPLES, FLIPS)
_TEXT_COLUMNS = {
    OPERATORS: (
        "instruction", "op", "wrong", "share", "together", "nan", "local_median", "local_worst",
        "quantization_worst", "total_worst", "worst_sample", "source",
    ),
    SAMPLES: (
        "sample", "verdict", "quantization", "output", "flips", "op", "local", "limit", "source",
        "reason",
    ),
}  # fmt: skip
_DEFAULTS = {"scores": 0, "worst": 10}


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """Values of `dataset_options`, by the names of the options."""

    dataset: str | None
    samples: int | None
    labels: str | None
    top: int | None
    scores: int
    keep_going: bool
    show: tuple[str, ...]
    worst: int
    max_flips: float | None

    def check(self, output: OutputOptions) -> None:
        """Raise `UsageError` for options that contradict each other, before anything runs."""
        from etscope.errors import UsageError

        if self.dataset is None:
            given = [
                name_of(field.name)
                for field in fields(self)
                if getattr(self, field.name) not in (None, (), False, _DEFAULTS.get(field.name))
            ]
            if given:
                raise UsageError(f"{given[0]} needs a dataset", hint="add --dataset PATH")
        if FLIPS in self.show and not self._has_classes:
            raise UsageError(
                "--show flips needs the classes of the samples",
                hint="add --top K, or --labels FILE",
            )
        if len(self.show) > 1 and not output.is_text:
            raise UsageError(
                "this format holds one table",
                hint=f"--show {', or '.join(SHOWN)}; table and md hold several",
            )

    @property
    def _has_classes(self) -> bool:
        return not (self.top is None and self.labels is None and self.max_flips is None)

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `etscope.evaluation.evaluate` and `evaluate_dump`."""
        return {
            "samples": self.samples,
            "labels": self.labels,
            "top": 5 if self.top is None and self._has_classes else self.top,
            "output": self.scores,
            "keep_going": self.keep_going,
        }

    def write(self, found: Evaluation, output: OutputOptions, view: ViewOptions) -> int:
        """Write the tables; return 1 for findings or too many flips, 3 for skipped samples."""
        task = found.task
        flipped = task is not None and (task.flipped or task.quantization_flips)
        default = (OPERATORS, SAMPLES, FLIPS) if flipped else (OPERATORS, SAMPLES)
        shown = self.show or (default if output.is_text else (OPERATORS,))
        tables = [self._table(found, name, view) for name in shown]
        if output.is_text and view.columns is None:
            empty = {
                "nan": not any(operator.nan for operator in found.operators),
                "quantization": not found.has_float,
                "quantization_worst": not found.has_float,
                "together": not found.deviating,
                "flips": found.task is None,
                "reason": not found.skipped,
            }
            tables = [
                table.select([column for column in _TEXT_COLUMNS[name] if not empty.get(column)])
                if name in _TEXT_COLUMNS
                else table
                for name, table in zip(shown, tables, strict=True)
            ]
            # All tables have the same notes: show them once, at the end.
            tables = [replace(table, notes=()) for table in tables]
            tables[-1] = replace(tables[-1], notes=found.notes)
        output.write_tables(tables, view.columns)
        share = None if found.task is None else found.task.flip_share
        too_many = self.max_flips is not None and (share is None or share > self.max_flips)
        if too_many or found.is_finding:
            return 1
        return 3 if found.skipped else 0

    def _table(self, found: Evaluation, name: str, view: ViewOptions) -> Table:
        if name == SAMPLES:
            return found.samples_table(self.worst)
        if name == FLIPS:
            return found.flips_table(view.limit)
        if name == SUMMARY:
            return found.summary_table()
        table = found.operators_table(view.sort or "run")
        return table.take(range(len(table))[: view.limit])


_OPTIONS = (
    click.option("--samples", type=POSITIVE, metavar="N", help="Take the first N samples."),
    file_option(
        "--labels",
        help="True classes: integers in a .npy, .npz, .pt or .safetensors file, or lines of "
        "[name,]label.",
    ),
    click.option(
        "--top",
        type=POSITIVE,
        metavar="K",
        help="Compare classes: the best K of each sample. Default with --labels: 5.",
    ),
    setting(
        "scores",
        type=COUNT,
        default=_DEFAULTS["scores"],
        metavar="N",
        help="Index of the output that holds the scores of the classes.",
    ),
    click.option(
        "--max-flips",
        type=click.FloatRange(0, 1),
        metavar="SHARE",
        help="Exit with 1 if more than this share gets another class than in the reference.",
    ),
    switch(
        "keep_going",
        False,
        "Skip samples that cannot be run or compared; exit with 3 if nothing else is wrong.",
    ),
    click.option(
        "--show",
        callback=some_of(SHOWN),
        metavar="TABLE,…",
        help="summary, operators, samples, flips. Default: the last three; operators in formats "
        "for programs.",
    ),
    setting(
        "worst",
        type=COUNT,
        default=_DEFAULTS["worst"],
        metavar="N",
        help="List the N worst samples.",
    ),
)


def dataset_options(function: Function, *, required: bool = True) -> Function:
    """Add `--dataset` and its options: the parameter `dataset_options`, a `DatasetOptions`."""
    dataset = file_option(
        "--dataset",
        required=required,
        metavar="PATH",
        help="Samples: a folder of files of inputs (.npz, .npy, .pt, .safetensors), or one such "
        "file whose first axis, or list, counts them.",
    )
    return as_one_parameter(function, "dataset_options", DatasetOptions, (dataset, *_OPTIONS))
