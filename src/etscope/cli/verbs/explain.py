"""`etscope explain`: show why a run takes its time, and what to do."""

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
from etscope.cli.options.remedies import RemedyArguments, remedies_options, run_remedies
from etscope.cli.output.tables import OutputOptions
from etscope.cli.verb import verb

if TYPE_CHECKING:
    from etscope.explain import ExplainOptions

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
    found = explain(calls.of(files.open()), options=replace(options, source_unit=files.source_unit))
    tables = [method.table(files.named) for method in found]
    output.write_tables(tables, default=("finding", "time", "share", "low", "high", "sureness"))
    heavy = () if fail_on is None else SEVERITIES[: _FAILING.index(fail_on) + 1]
    return int(any(one.severity in heavy for method in found for one in method.findings))
