"""`etscope diff`: compare the times of two dumps, operator by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    COUNT,
    FILE,
    as_view,
    choice_option,
    columns_option,
    file_option,
    limit_option,
    open_trace,
    output_options,
    source_unit_option,
    unit_option,
)
from etscope.cli.output.tables import OutputOptions, ViewOptions, row_filter, time_scale

if TYPE_CHECKING:
    from etscope.analysis.profile.trace import Trace

_Files = tuple[str | None, str | None]  # an ETRecord and a program
_JUNIT = "junit"
_FORMATS = ("table", "json", "jsonl", "csv", "tsv", "md", "parquet", _JUNIT)


def _share(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Parse a fraction: "3%" or "0.03"."""
    text = value.strip()
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a share: write 3% or 0.03") from None


@click.command()
@click.argument("before", metavar="BEFORE", type=FILE)
@click.argument("after", metavar="AFTER", type=FILE)
@file_option("--etrecord", "-r", metavar="ETRECORD", help="The ETRecord of BEFORE.")
@file_option("--etrecord-b", metavar="ETRECORD", help="The ETRecord of AFTER, if different.")
@file_option("--program", "-p", metavar="PTE", help="The program of BEFORE.")
@file_option("--program-b", metavar="PTE", help="The program of AFTER, if different.")
@click.option(
    "--baseline-noise", "noise", type=FILE, multiple=True, metavar="DUMP",
    help="Another dump of the program of BEFORE: its differences are noise. Repeatable.",
)  # fmt: skip
@click.option("--method", "-m", help="Compare this method only.")
@click.option(
    "--select", "-s", metavar="SELECTOR", help="Judge only what matches: 'op:conv* and …'."
)
@click.option(
    "--min-effect", default="3%", metavar="SHARE", callback=_share,
    help="The smallest change that matters.",
)  # fmt: skip
@click.option(
    "--confidence", default="0.99", metavar="SHARE", callback=_share,
    help="1 - the rate of false alarms.",
)  # fmt: skip
@click.option(
    "--warmup", type=COUNT, default=1, metavar="N",
    help="Leave out the first N runs of each dump.",
)  # fmt: skip
@click.option("--per-op", is_flag=True, help="Report a regressed operator as a finding, too.")
@click.option("--strict", is_flag=True, help="Exit with 4 when the runs cannot tell.")
@click.option(
    "--force", is_flag=True, help="Continue although files or dumps do not belong together."
)
@source_unit_option
@choice_option("--sort", ("change", "time", "run"), "Order of the operators.")
@limit_option
@unit_option
@columns_option
@lambda function: output_options(
    function,
    formats=_FORMATS,
    help="Output format. Default: by the suffix of --output (.xml: junit), else table.",
)
@as_view("select", "sort", "limit", "unit", "columns")
def command(
    before: str,
    after: str,
    etrecord: str | None,
    etrecord_b: str | None,
    program: str | None,
    program_b: str | None,
    noise: tuple[str, ...],
    method: str | None,
    min_effect: float,
    confidence: float,
    warmup: int,
    per_op: bool,
    strict: bool,
    force: bool,
    source_unit: str,
    view: ViewOptions,
    output: OutputOptions,
) -> int:
    """Compare the times of two ETDumps, BEFORE and AFTER, operator by operator.

    The verdict is regressed, improved, no difference or cannot tell; too few or too noisy runs
    never pass. With an ETRecord of each, operators of different exports are aligned by module. The
    changes of the rows add up to that of Method::execute.

    Exit code 1: the method's time regressed (with --per-op: or an operator's). 4: nothing could be
    compared, or with --strict the runs cannot tell. 3: dumps of different methods or backends.
    """
    from etscope.analysis.comparison.compare_samples import Policy, Verdict
    from etscope.analysis.comparison.diff import diff_traces
    from etscope.analysis.comparison.diff_table import shown_columns
    from etscope.cli.output.progress import progress
    from etscope.views.output import open_output
    from etscope.views.tables import junit

    with progress(f"comparing {before} with {after}"):
        first = open_trace(before, etrecord, None, program, force=force)
        second = _open_after(after, (etrecord_b, program_b), (etrecord, program), force)
        diff = diff_traces(
            first,
            second,
            Policy(min_effect, confidence),
            noise=[open_trace(path, etrecord, None, program, force=force) for path in noise],
            method=method,
            keep=row_filter(view.select),
            warmup=warmup,
            forced=force,
        )
    scale = time_scale(source_unit, view.unit)
    if output.format == _JUNIT or (output.format is None and output.path.endswith(".xml")):
        with open_output(output.path) as out:
            junit.write(diff, out, scale, per_op=per_op, strict=strict)
    else:
        rows: dict[str, Any] = {"sort": view.sort, "limit": view.limit, "per_op": per_op}
        tables = [one.table(scale, **rows) for one in diff.methods]
        output.write_tables(tables, view.columns, shown_columns(tables))
    verdict = diff.verdict(per_op=per_op)
    if verdict is Verdict.REGRESSED:
        return 1
    return 4 if strict and verdict is Verdict.CANNOT_TELL else 0


def _open_after(after: str, own: _Files, of_before: _Files, force: bool) -> Trace:
    """Open AFTER with its own record and program, else those of BEFORE if they match."""
    from etscope.errors import MismatchError

    if own != (None, None) or of_before == (None, None):
        return open_trace(after, own[0], None, own[1], force=force)
    try:
        return open_trace(after, of_before[0], None, of_before[1])
    except MismatchError:
        click.echo(
            f"note: {after} does not match the files given for BEFORE: operators are aligned by "
            "name; give its own ETRecord with --etrecord-b",
            err=True,
        )
        return open_trace(after, force=force)
