"""Options of the verbs that evaluate a dataset or a text, and the tables they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    COUNT,
    POSITIVE,
    Function,
    as_one_parameter,
    file_option,
    given_options,
    names_model,
    names_of,
    path_option,
    some_of,
    split_values,
)
from etscope.cli.options.export import load_torch
from etscope.cli.output.tables import OutputOptions, ViewOptions
from etscope.cli.settings import setting, switch
from etscope.errors import UsageError

if TYPE_CHECKING:
    from etscope.evaluation import (
        EvaluateOptions,
        EvaluateTokensOptions,
        Evaluation,
        TokenEvaluation,
    )
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
# The parameters of `dataset_options`; an error names the first that was given.
OF_SAMPLES = (
    "samples", "labels", "top", "scores", "keep_going", "show", "worst", "max_flips"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """Values of `dataset_options`. of_run: the options of `etscope.evaluation.evaluate`."""

    of_run: EvaluateOptions
    dataset: str | None
    show: tuple[str, ...]
    worst: int
    max_flips: float | None

    def check(self, output: OutputOptions) -> None:
        """Raise `UsageError` for options that contradict each other, before anything runs."""
        if self.dataset is None and (given := given_options(OF_SAMPLES)):
            raise UsageError(f"{given[0]} needs a dataset", hint="add --dataset PATH")
        no_classes = self.of_run.top is None and self.of_run.labels is None
        if FLIPS in self.show and no_classes:
            raise UsageError(
                "--show flips needs the classes of the samples",
                hint="add --top K, or --labels FILE",
            )
        if len(self.show) > 1 and not output.is_text:
            raise UsageError(
                "this format holds one table",
                hint=f"choose one of --show {', or '.join(SHOWN)}, or a format with several "
                "tables: table, md",
            )

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


_DATASET = (
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
        default=0,
        metavar="N",
        help="Index of the output that holds the scores of the classes.",
    ),
    click.option(
        "--max-flips",
        type=click.FloatRange(0, 1),
        metavar="SHARE",
        help="Exit with 1 if a larger share of the classes differs from the reference's.",
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
        help="Tables: summary, operators, samples, flips. Default: the last three; in formats "
        "for programs only operators.",
    ),
    setting(
        "worst",
        type=COUNT,
        default=10,
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
    return as_one_parameter(function, "dataset_options", _dataset_options, (dataset, *_DATASET))


def _dataset_options(scores: int, top: int | None, **values: Any) -> DatasetOptions:
    from etscope.evaluation import DEFAULT_TOP, EvaluateOptions

    if top is None and values["max_flips"] is not None:  # flips are of classes
        top = DEFAULT_TOP
    return split_values(DatasetOptions, EvaluateOptions, {"output": scores, "top": top, **values})


# -- A language model on a text.

SCHEMA = "etscope.agreement/1"
_TEXT_ROWS = 40  # of the tokens, without --limit


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Values of `token_options`. of_run: the options of `etscope.evaluation.evaluate_tokens`."""

    of_run: EvaluateTokensOptions
    tokens: str | None
    max_kl: float | None
    min_agreement: float | None
    by_token: bool

    def check(self, dataset: str | None, others: Sequence[str]) -> None:
        """Raise `UsageError` unless there is either a dataset or tokens, and for options of the
        other. others: the options of a dataset alone that were given."""
        if self.tokens is None:
            if given := given_options(names_of(_TOKENS)):
                raise UsageError(f"{given[0]} needs tokens", hint="add --tokens FILE")
            if dataset is None:
                raise UsageError(
                    "evaluate needs a dataset or tokens",
                    hint="give --dataset PATH, or for a language model --tokens FILE",
                )
            return
        if dataset is not None:
            raise UsageError("--tokens and --dataset exclude each other")
        if others:
            raise UsageError(f"{others[0]} needs samples of a --dataset")

    def opened_reference(self) -> Any:
        """Return the reference: a path, or the module that a name such as model.py:make gives."""
        name = self.of_run.reference
        if name is None or not names_model(name):
            if name is not None and not Path(name).is_file():
                from etscope.errors import MissingFileError

                raise MissingFileError(
                    f"reference not found: {name}",
                    hint="give a .pte, an ETRecord, or a model: file.py:attribute",
                )
            return name
        from etscope.export import LanguageModel, check_model_name, load_model

        check_model_name(name)
        load_torch("evaluate")
        model = load_model(name).model
        model = model.model if isinstance(model, LanguageModel) else model
        if not callable(model):
            raise UsageError(
                f"{name} is no torch.nn.Module",
                hint="a .pt2 has a fixed number of tokens: name a model in PyTorch",
            )
        return model

    def write(self, found: TokenEvaluation, output: OutputOptions, view: ViewOptions) -> int:
        """Write the result; return 1 for one that is not within the limits, or NaN."""
        wide = output.chosen_format not in ("table", "md", "json")
        if self.by_token and (wide or view.columns is not None):
            table = found.token_table(view.sort)
            output.write_tables([table.take(range(len(table))[: view.limit])], view.columns)
        else:
            if view.columns is not None:
                raise UsageError("--columns are those of --by-token")
            report = found.report(by_token=self.by_token, sort=view.sort)
            output.write_reports([report], SCHEMA, limit=view.limit, text_limit=_TEXT_ROWS)
        fine = found.is_within(self.max_kl, self.min_agreement) and not found.is_finding
        return 0 if fine else 1


_TOKENS = (
    click.option(
        "--tokens",
        metavar="IDS|FILE",
        help="For a language model: a text to compare logits on, ids (1,5,9) or a file of them: "
        "text, .npy or .npz; with --tokenizer a file of text.",
    ),
    file_option("--tokenizer", help="The model's tokenizer.json."),
    click.option(
        "--reference",
        metavar="FILE|MODEL",
        help="With --tokens: another program (.pte), an ETRecord, or a model in PyTorch "
        "(file.py:attribute). Default: the program's ETRecord.",
    ),
    setting(
        "context",
        type=POSITIVE,
        metavar="N",
        help="Cut the text into windows of N tokens. Default: what the program takes.",
    ),
    setting(
        "stride",
        type=POSITIVE,
        metavar="N",
        help="Predict N tokens in each window after the first, from the tokens before them. "
        "Default: the context.",
    ),
    setting(
        "prompt_length",
        type=POSITIVE,
        metavar="N",
        help="Give the program the first N tokens of a window at once, and the others one by one. "
        "Default: all at once, or one if it gives logits of the last token alone.",
    ),
    click.option(
        "--max-kl",
        type=click.FloatRange(min=0),
        metavar="NATS",
        help="Exit with 1 if the mean KL divergence from the reference exceeds this.",
    ),
    click.option(
        "--min-agreement",
        type=click.FloatRange(0, 1),
        metavar="SHARE",
        help="Exit with 1 if less than this share of the tokens has the reference's likeliest "
        "token.",
    ),
    click.option("--by-token", is_flag=True, help="Show each token."),
    path_option(
        "--save",
        metavar="DIR",
        help="Record the call of the first token that differs, with its values, in this folder: "
        "for etscope numerics DIR --calls N.",
    ),
)


def token_options(function: Function) -> Function:
    """Add `--tokens` and its options: the parameter `token_options`, a `TokenOptions`."""
    return as_one_parameter(function, "token_options", _token_options, _TOKENS)


def _token_options(**values: Any) -> TokenOptions:
    from etscope.evaluation import EvaluateTokensOptions

    return split_values(TokenOptions, EvaluateTokensOptions, values)
