"""`etscope explain`: tell why a run takes its time, and what to do."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    ABOUT_RUN,
    ChosenCalls,
    GivenFiles,
    as_one_parameter,
    calls_options,
    output_options,
    peaks_option,
    run_files_options,
    unit_option,
)
from etscope.cli.options.export import ExportCommand
from etscope.cli.options.remedies import RemedyOptions, remedies_options, run_remedies
from etscope.cli.output.tables import OutputOptions
from etscope.cli.verb import verb

if TYPE_CHECKING:
    from etscope.explain import ExplainOptions

# Severities of the findings about time.
_FAILING = ("problem", "cost")


_NAMES = ("method", "rules", "least_share", "peaks", "unit")  # of the options of `explain`


def _options(**values: Any) -> ExplainOptions:
    from etscope.explain import ExplainOptions

    return ExplainOptions(**values)


_DETAILS = """\
Each finding names the time at stake with its 95 % interval over the runs, the operators and
lines, what it was told from, what to do, and how sure it is: measured (this run shows it),
likely (the time is measured, its reason is told from the program), or possible (other reasons
would look the same). Each has a section in the documentation, by its name:
https://etscope.github.io/etscope/reference/findings/

With the ETRecord of the export (-r) far more is found. With a calibration of the machine of the
run (etscope calibrate) rates are held against what it can do. --format md is for pull requests.

With --try, give a MODEL in place of RUN, as for etscope export: it is exported and run with the
options of an export below, and explained; each remedy that is a change of these options is
tried alone, those that help together, and the best once more. It ends with the command that
exports the fastest with the model's numbers, and with --keep writes its files. What is faster
with other numbers, as quantisation has them, is shown beside it; --allow quantize takes it.
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
@click.option("--method", "-m", help="Explain this method only.")
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
    help="Leave out findings with a smaller share of the method's time. Default: 2.",
)
@click.option(
    "--fail-on",
    type=click.Choice(_FAILING),
    help="Exit with 1 if there is a finding of this severity or a heavier one.",
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
    remedies: RemedyOptions,
    output: OutputOptions,
) -> int:
    """Show why RUN takes its time, and what to do. With --try, export and run a MODEL with each
    remedy, and keep what is faster.

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
    found = explain(calls.of(files.open()), options=replace(options, source_unit=files.source_unit))
    tables = [method.table(files.named) for method in found]
    output.write_tables(tables, default=("finding", "time", "share", "low", "high", "sureness"))
    heavy = () if fail_on is None else SEVERITIES[: _FAILING.index(fail_on) + 1]
    return int(any(one.severity in heavy for method in found for one in method.findings))
