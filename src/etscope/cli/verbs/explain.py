"""`etscope explain`: show why a run takes its time, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    ABOUT_RUN,
    ChosenCalls,
    Function,
    GivenFiles,
    as_one_parameter,
    calls_options,
    chosen_setting,
    file_option,
    given_options,
    inputs_option,
    library_option,
    output_options,
    path_option,
    peaks_option,
    run_files_options,
    take_options,
    threads_option,
    timeout_option,
    unit_option,
)
from etscope.cli.options.export import (
    ExportCommand,
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
from etscope.cli.verb import verb

if TYPE_CHECKING:
    from etscope.explain import ExplainOptions
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
            raise UsageError(f"{given[0]} is for --try", hint="add --try, and name a MODEL")

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
        help="Begin no trial that ends later: 90s, 5m, 1h.",
    ),
    path_option(
        "--keep",
        "folder",
        metavar="DIR",
        help="Keep results, and the best export, in DIR. An earlier search in it continues.",
    ),
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
        report(model, "exporting and running it without changes")

        def tried(what: str, trial: Trial) -> None:
            report(what, trial.detail or "measured")

        source = load_model(model, inputs=values["inputs"], seed=runs.seed).generating(**generation)
        found = try_remedies(
            source, options=options, runs=runs, effort=effort, words=given.words, progress=tried
        )
    output.write_tables([found.table()], default=_COLUMNS)
    return 0


# Severities of the findings about time.
_FAILING = ("problem", "cost")


_NAMES = ("method", "rules", "least_share", "peaks", "unit")  # of `ExplainOptions`


def _options(**values: Any) -> ExplainOptions:
    from etscope.explain import ExplainOptions

    return ExplainOptions(**values)


_DETAILS = """\
Each finding has the time at stake with its 95 % interval over the runs, the operators and lines,
the evidence, and the fix. Its sureness is measured (this run shows it), likely (the run shows the
time, the program the reason), or possible (other reasons would look the same). The documentation
describes each finding: https://etscope.github.io/etscope/reference/findings/

With the ETRecord of the export, etscope finds far more. With a calibration of the run's machine
(etscope calibrate), it compares rates with the machine's peaks. --format md is for pull requests.

--try takes a MODEL in place of RUN, as etscope export does. etscope exports and runs it, and
tries each remedy alone that changes an option of the export; then the helpful ones together. At
the end stands the command for the fastest export with the same numbers; --keep writes its files.
Remedies that change the numbers, as quantization does, are listed separately; --allow quantize
takes them, too.
"""


@verb(
    {
        "Findings": ("--rule", "--least", "--fail-on"),
        "Run": ("--method", "--calls", "-X"),
        "Try": ("--try", "--backend", "--quantize", "--allow", "--budget", "--keep"),
        "Output": ("--format", "--output"),
    },
    details=_DETAILS + ABOUT_RUN,
    cls=ExportCommand,
)
@run_files_options
@click.option("--method", "-m", metavar="NAME", help="Explain this method only.")
@calls_options
@click.option(
    "--rule", "rules", multiple=True, metavar="NAME", help="Apply this rule only. Repeatable."
)
@click.option(
    "--least",
    "least_share",
    type=click.FloatRange(0, 100),
    default=2.0,
    metavar="PERCENT",
    callback=lambda context, option, percent: percent / 100,
    help="Exclude findings below this share of the method's time. Default: 2.",
)
@click.option(
    "--fail-on",
    type=click.Choice(_FAILING),
    help="Exit with 1 for a finding of this severity, or worse.",
)
@peaks_option
@unit_option
@partial(as_one_parameter, parameter="options", make=_options, names=_NAMES)
@remedies_options
@output_options
def command(
    files: GivenFiles,
    calls: ChosenCalls,
    options: ExplainOptions,
    fail_on: str | None,
    remedies: RemedyArguments,
    output: OutputOptions,
) -> int:
    """Show why RUN is slow, and what to do. With --try, export a MODEL, run it with each remedy,
    and keep the fastest.

    \b
    etscope explain
    etscope explain ran/ --format md
    etscope explain model.py:Model --try --backend xnnpack
    """
    from etscope.explain import explain
    from etscope.model.finding import SEVERITIES

    if remedies.tries:
        return run_remedies(
            files.model,
            remedies,
            output,
            method=options.method,
            least_share=options.least_share,
            rules=options.rules,
        )
    remedies.check_unused()
    if files.files.dump is None:  # its error comes below
        from etscope.analysis.faults.faults import faults_section

        faults = faults_section(files.open_graphs().export).table
        if len(faults):
            output.write_tables([faults])
    found = explain(calls.of(files.open()), options=replace(options, source_unit=files.source_unit))
    tables = [method.table(files.named) for method in found]
    output.write_tables(tables, default=("finding", "time", "share", "low", "high", "sureness"))
    heavy = () if fail_on is None else SEVERITIES[: _FAILING.index(fail_on) + 1]
    return int(any(one.severity in heavy for method in found for one in method.findings))
