"""`etscope explain MODEL --try`: its options, and the command itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    Function,
    as_one_parameter,
    chosen_setting,
    file_option,
    given_options,
    inputs_option,
    library_option,
    path_option,
    take_options,
    threads_option,
    timeout_option,
)
from etscope.cli.options.export import (
    backend_option,
    backend_options_option,
    group_size_option,
    keep_float_option,
    language_model_options,
    load_torch,
    passes_option,
    quantize_option,
    seed_option,
    strict_option,
)
from etscope.cli.output.tables import OutputOptions
from etscope.cli.settings import Setting, setting, switch

if TYPE_CHECKING:
    from etscope.search.remedies import Trial

RUNNERS = ("auto", "python", "native")
_COLUMNS = (
    "remedy", "role", "verdict", "faster", "low", "high", "sqnr", "before", "after"
)  # fmt: skip
_GENERATION = ("context", "prompt", "logits", "sdpa")
_UNITS = {"s": 1, "m": 60, "h": 3600}


class _Duration(click.types.StringParamType):
    """A length of time, in seconds: 90, 90s, 5m, 1h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([smh]?)", str(value))
        if found is None or not float(found[1]):
            self.fail(f"{value!r} is not a length of time: 90s, 5m, 1h")
        return float(found[1]) * _UNITS[found[2] or "s"]


@dataclass(frozen=True, slots=True)
class RemedyArguments:
    """Values of `remedies_options`, by the names of the options."""

    tries: bool
    values: dict[str, Any]

    def check_unused(self) -> None:
        """Raise `UsageError` for an option that was given without `--try`."""
        from etscope.errors import UsageError

        if given := given_options(self.values):
            raise UsageError(f"{given[0]} is for --try", hint="add --try, and a MODEL")

    @property
    def words(self) -> list[str]:
        """The options of `etscope export` that name inputs and seed, and those of a language
        model.
        """
        given = {"seed": self.values["seed"] or None}
        given.update((name, self.values[name]) for name in _GENERATION)
        settings = [f"{name}={value}" for name, value in given.items() if value is not None]
        inputs = [] if self.values["inputs"] is None else ["--inputs", self.values["inputs"]]
        return [*inputs, *(word for text in settings for word in ("-X", text))]


_OPTIONS = (
    click.option(
        "--try",
        "tries",
        is_flag=True,
        help="Try the remedies of the findings of a MODEL: export, run, compare.",
    ),
    switch("everything", False, "Try general changes, too: XNNPACK, threads, layout, passes."),
    click.option(
        "--allow",
        multiple=True,
        type=click.Choice(("quantize",)),
        help="With --try: accept faster programs with other numbers, too. With -X "
        "everything=true, also try quantization.",
    ),
    setting(
        "tolerance",
        type=float,
        default=20.0,
        metavar="DB",
        help="The least SQNR of the outputs of a quantized program, against the model in "
        "PyTorch. Default: 20.",
    ),
    setting(
        "rounds",
        type=click.IntRange(2, 10_000),
        default=15,
        help="Rounds of each comparison of times.",
    ),
    click.option(
        "--budget",
        type=_Duration(),
        metavar="TIME",
        help="Begin no trial after this time: 90s, 5m, 1h.",
    ),
    path_option(
        "--keep", "folder", metavar="DIR", help="Keep results, and the best export, in DIR."
    ),
    click.option("--resume", is_flag=True, help="Continue from the results in DIR."),
    backend_option("portable"),
    backend_options_option,
    quantize_option,
    group_size_option,
    keep_float_option,
    passes_option,
    file_option(
        "--calibration",
        cls=Setting,
        metavar="DATA",
        multiple=True,
        help="Inputs to calibrate int8 ranges on: files, or folders of them.",
    ),
    inputs_option,
    seed_option,
    strict_option,
    threads_option,
    chosen_setting("runner", RUNNERS, "native: each run of a round in its own process."),
    library_option,
    timeout_option,
    *language_model_options,
)


def remedies_options(function: Function) -> Function:
    """Add the options of `--try`: the parameter `remedies`, `RemedyArguments`."""

    def arguments(tries: bool, **values: Any) -> RemedyArguments:
        return RemedyArguments(tries, values)

    return as_one_parameter(function, "remedies", arguments, _OPTIONS)


def run_remedies(
    model: str,
    given: RemedyArguments,
    output: OutputOptions,
    *,
    method: str | None,
    least_share: float,
    rules: Sequence[str],
) -> int:
    """Try the remedies of a model, write their table, and return the exit code."""
    from etscope.cli.output.progress import reporting
    from etscope.export import check_model_name, load_model
    from etscope.search.remedies import Effort, RemedyOptions, Runs, try_remedies

    check_model_name(model)
    load_torch("explain --try")
    values = {**given.values, "method": method, "least_share": least_share, "rules": rules}
    values["quantize"] = values["quantize"] or False
    runs, effort = take_options(Runs, values), take_options(Effort, values)
    options = take_options(RemedyOptions, values)
    generation = {name: values[name] for name in _GENERATION}
    with reporting(f"trying remedies of {model}") as report:

        def tried(what: str, trial: Trial) -> None:
            report(what, trial.detail or "measured")

        source = load_model(model, inputs=values["inputs"], seed=runs.seed).generating(**generation)
        found = try_remedies(
            source, options=options, runs=runs, effort=effort, words=given.words, progress=tried
        )
    output.write_tables([found.table()], default=_COLUMNS)
    return 0
