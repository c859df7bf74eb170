"""`etscope diff`: what got slower between two dumps, operator by operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import UNITS
from etscope.cli.options.files import FILE, source_unit_option

if TYPE_CHECKING:
    from etscope.analysis.comparison.diff import Diff
    from etscope.analysis.profile.trace import Trace

_JUNIT = "junit"
_FORMATS = ("table", "json", "jsonl", "csv", "tsv", "md", "parquet", _JUNIT)


def _share(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """A fraction: "3%" or "0.03"."""
    text = value.strip()
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no share: write 3% or 0.03") from None


@click.command(short_help="Tell what got slower between two dumps.")
@click.argument("before", metavar="BEFORE", type=FILE)
@click.argument("after", metavar="AFTER", type=FILE)
@click.option("--etrecord", "-r", type=FILE, metavar="ETRECORD", help="The ETRecord of BEFORE.")
@click.option("--etrecord-b", type=FILE, metavar="ETRECORD", help="That of AFTER, if another.")
@click.option("--program", "-p", type=FILE, metavar="PTE", help="The program of BEFORE.")
@click.option("--program-b", type=FILE, metavar="PTE", help="That of AFTER, if another.")
@click.option(
    "--baseline-noise", "noise", type=FILE, multiple=True, metavar="DUMP",
    help="Another dump of what BEFORE ran: its differences are noise. Repeatable.",
)  # fmt: skip
@click.option("--method", "-m", help="Compare this method only.")
@click.option("--select", "-s", metavar="SELECTOR", help="Judge what matches: 'op:conv* and …'.")
@click.option(
    "--min-effect", default="3%", show_default=True, metavar="SHARE", callback=_share,
    help="The smallest change that matters.",
)  # fmt: skip
@click.option(
    "--confidence", default="0.99", show_default=True, metavar="SHARE", callback=_share,
    help="1 - the rate of false alarms.",
)  # fmt: skip
@click.option(
    "--warmup", type=click.IntRange(min=0), default=1, show_default=True, metavar="N",
    help="Leave out the first N runs of each dump.",
)  # fmt: skip
@click.option("--per-op", is_flag=True, help="An operator that regressed is a finding, too.")
@click.option("--strict", is_flag=True, help="Exit with 4 when it cannot be told.")
@click.option("--force", is_flag=True, help="Go on though files or dumps do not belong together.")
@source_unit_option
@click.option(
    "--sort", type=click.Choice(["change", "time", "run"]), default="change", show_default=True,
    help="Order of the operators.",
)  # fmt: skip
@click.option(
    "--limit", "-n", type=click.IntRange(min=0), metavar="N", help="Show N operators at most."
)
@click.option("--unit", type=click.Choice(UNITS), help="Unit of the times shown.")
@click.option("--columns", metavar="NAME,…", help="Show these columns, in order.")
@click.option(
    "--format", "-f", type=click.Choice(_FORMATS),
    help="Form of the output. Default: by the suffix of --output (.xml: junit), else table.",
)  # fmt: skip
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE", help="Write to FILE; - is standard output.",
)  # fmt: skip
@click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
    help="Colour the table; auto: on a terminal, unless NO_COLOR is set.",
)  # fmt: skip
def command(
    before: str,
    after: str,
    etrecord: str | None,
    etrecord_b: str | None,
    program: str | None,
    program_b: str | None,
    noise: tuple[str, ...],
    method: str | None,
    select: str | None,
    min_effect: float,
    confidence: float,
    warmup: int,
    per_op: bool,
    strict: bool,
    force: bool,
    source_unit: str,
    sort: str,
    limit: int | None,
    unit: str | None,
    columns: str | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> int:
    """Compare the times of two ETDumps, BEFORE and AFTER, operator by operator.

    The verdict is regressed, improved, no difference or cannot tell; too few or too noisy runs are
    never a pass. With an ETRecord of each, operators of different exports are aligned by module.
    The changes of the rows add up to that of Method::execute.

    Exit code 1: the method's time regressed (with --per-op: or an operator's). 4: nothing could be
    compared, or with --strict it cannot be told. 3: dumps of different methods or backends.
    """
    from etscope.analysis.comparison.compare_samples import Policy
    from etscope.analysis.comparison.diff import diff_traces
    from etscope.cli.options.files import open_trace
    from etscope.cli.output.profiles import _keep
    from etscope.cli.output.progress import progress

    policy = Policy(min_effect, confidence)
    with progress(f"comparing {before} with {after}"):
        first = open_trace(before, etrecord, None, program, force=force)
        second = _second(after, (etrecord, program), (etrecord_b, program_b), force)
        diff = diff_traces(
            first,
            second,
            policy,
            noise=[open_trace(path, etrecord, None, program, force=force) for path in noise],
            method=method,
            keep=_keep(select),
            warmup=warmup,
            forced=force,
        )
    _write(diff, source_unit, unit, sort, limit, columns, format, output, color, per_op, strict)
    return _exit_code(diff, per_op, strict)


def _second(
    path: str,
    first: tuple[str | None, str | None],
    second: tuple[str | None, str | None],
    force: bool,
) -> Trace:
    """The trace of AFTER, with files of its own or else those of BEFORE if they are its as well."""
    from etscope.cli.options.files import open_trace
    from etscope.errors import MismatchError

    if second != (None, None) or first == (None, None):
        return open_trace(path, second[0], None, second[1], force=force)
    try:
        return open_trace(path, first[0], None, first[1])
    except MismatchError:
        click.echo(
            f"note: {path} is not of the files given for BEFORE: without its own (--etrecord-b) "
            "operators are aligned by name",
            err=True,
        )
        return open_trace(path, force=force)


def _write(
    diff: Diff,
    source_unit: str,
    unit: str | None,
    sort: str,
    limit: int | None,
    columns: str | None,
    format: str | None,
    output: Path | None,
    color: str,
    per_op: bool,
    strict: bool,
) -> None:
    from etscope.analysis.comparison.diff_table import shown_columns
    from etscope.analysis.profile.scale import Scale
    from etscope.cli.output.output import write_tables
    from etscope.cli.output.profiles import _default_unit
    from etscope.units import TimeScale
    from etscope.views.output import open_output
    from etscope.views.tables import junit

    scale = Scale(TimeScale(source_unit), TimeScale(unit or _default_unit(source_unit)))
    if format == _JUNIT or (format is None and output is not None and output.suffix == ".xml"):
        with open_output("-" if output is None else output) as out:
            junit.write(diff, out, scale, per_op=per_op, strict=strict)
        return
    tables = [one.table(scale, sort=sort, limit=limit, per_op=per_op) for one in diff.methods]
    names = None if columns is None else tuple(name.strip() for name in columns.split(","))
    write_tables(tables, names, shown_columns(tables), format, output, color)


def _exit_code(diff: Diff, per_op: bool, strict: bool) -> int:
    from etscope.analysis.comparison.compare_samples import Verdict

    verdict = diff.verdict(per_op=per_op)
    if verdict is Verdict.REGRESSED:
        return 1
    return 4 if strict and verdict is Verdict.CANNOT_TELL else 0
