"""Options of `etscope evaluate` for a language model on a text, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    POSITIVE,
    Function,
    as_one_parameter,
    file_option,
    name_of,
    path_option,
)
from etscope.cli.options.numerics import names_model
from etscope.cli.output.tables import OutputOptions, ViewOptions
from etscope.cli.settings import setting
from etscope.errors import UsageError

if TYPE_CHECKING:
    from etscope.evaluation import TokenEvaluation

SCHEMA = "etscope.agreement/1"
_TEXT_ROWS = 40  # of the tokens, without --limit


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Values of `token_options`, by the names of the options."""

    tokens: str | None
    tokenizer: str | None
    reference: str | None
    context: int | None
    stride: int | None
    prompt_length: int | None
    max_kl: float | None
    min_agreement: float | None
    by_token: bool
    save: Path | None

    def check(self, dataset: str | None, others: Sequence[str]) -> None:
        """Raise `UsageError` unless there is either a dataset or tokens, and for options of the
        other. others: the options of a dataset alone that were given."""
        if self.tokens is None:
            given = [one.name for one in fields(self) if getattr(self, one.name) not in _UNSET]
            if given:
                raise UsageError(f"{name_of(given[0])} needs tokens", hint="add --tokens FILE")
            if dataset is None:
                raise UsageError(
                    "there is nothing to evaluate the program on",
                    hint="give --dataset PATH, or for a language model --tokens FILE",
                )
            return
        if dataset is not None:
            raise UsageError("--tokens and --dataset exclude each other")
        if others:
            raise UsageError(f"{others[0]} is for the samples of a --dataset")

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `etscope.evaluation.evaluate_tokens`."""
        names = ("tokenizer", "context", "stride", "prompt_length", "save")
        return {name: getattr(self, name) for name in names}

    def opened_reference(self) -> Any:
        """Return the reference: a path, or the module that a name such as model.py:make gives."""
        name = self.reference
        if name is None or not names_model(name):
            if name is not None and not Path(name).is_file():
                from etscope.errors import MissingFileError

                raise MissingFileError(
                    f"reference not found: {name}",
                    hint="give a .pte, an ETRecord, or a model: file.py:attribute",
                )
            return name
        from etscope.cli.options.export import load_torch
        from etscope.export import LanguageModel, check_model_name, load_model

        check_model_name(name)
        load_torch("evaluate")
        model = load_model(name).model
        model = model.model if isinstance(model, LanguageModel) else model
        if not callable(model):
            raise UsageError(
                f"{name} is no torch.nn.Module", hint="a .pt2 has no tokens of any number to take"
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


_UNSET = (None, False)

_OPTIONS = (
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
        help="Predict N tokens in each window after the first. Default: the context.",
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
        help="Exit with 1 if the mean KL divergence from the reference is more.",
    ),
    click.option(
        "--min-agreement",
        type=click.FloatRange(0, 1),
        metavar="SHARE",
        help="Exit with 1 if the likeliest token is the reference's at a smaller share of tokens.",
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
    return as_one_parameter(function, "token_options", TokenOptions, _OPTIONS)
