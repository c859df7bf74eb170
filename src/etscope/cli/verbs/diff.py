"""`etscope diff`: compare dumps by their times, or programs by their content, with the first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    FILE,
    ChosenCalls,
    as_view,
    calls_options,
    choice_option,
    columns_option,
    files_option,
    force_option,
    limit_option,
    output_options,
    source_unit_option,
    unit_option,
)
from etscope.cli.options.kept_runs import kept_runs
from etscope.cli.output.tables import OutputOptions, ViewOptions, row_filter
from etscope.cli.verb import verb

if TYPE_CHECKING:
    from etscope.analysis.comparison.changes import Diff
    from etscope.analysis.comparison.programs import Side
    from etscope.analysis.profile.trace import Trace
    from etscope.capture.files import RunFiles

_JUNIT = "junit"
_ROWS = 30  # of each table of programs, in a text: fits a screen
_FORMATS = ("table", "json", "jsonl", "csv", "tsv", "md", "parquet", _JUNIT)


def _share(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Parse a fraction: "3%" or "0.03"."""
    text = value.strip()
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a share: write 3% or 0.03") from None


_DETAILS = """\
\b
etscope diff before.pte after.pte                     two programs
etscope diff before.etdp after.etdp                   two dumps
etscope diff before.etdp after.etdp a.etrecord b.etrecord
etscope diff one/ two/ three/                         run folders
etscope diff before.ptd after.ptd                     external weights

The verdict is regressed, improved, no difference or cannot tell; too few or too noisy runs
never pass. With an ETRecord for each dump, etscope aligns operators of different exports by
module. The changes of the rows add up to the change of Method::execute; --by adds them up over
backends and dtypes, too. Records and programs go with the dumps of the same name or folder, or
with the dumps that they fit.

Programs (.pte, .bpte) are compared by required kernels, bytes by owner, weights, instructions,
delegates and memory. An ETRecord for each adds names and modules. External weights (.ptd) alone
are compared by key.

Exit code 1: the method's time regressed in any dump (with --per-op: or an operator's), or the
programs or .ptd files differ. 3: the dumps have different methods or models. 4: there was nothing
to compare, or with --strict the runs cannot tell.
"""


@verb(
    {
        "Verdict": ("--per-op", "--min-effect", "--confidence", "--baseline-noise", "--strict"),
        "Rows": ("--by", "--select", "--limit", "--calls"),
        "Output": ("--format", "--output", "-X"),
    },
    details=_DETAILS,
)
@click.argument("files", nargs=-1, metavar="[BEFORE AFTER]...", type=FILE, callback=kept_runs(2))
@files_option(
    "--etrecord",
    "-r",
    "etrecords",
    metavar="ETRECORD",
    help="The ETRecord of all dumps that it fits; or one for each dump, in order. Repeatable.",
)
@files_option(
    "--program",
    "-p",
    "programs",
    metavar="PTE",
    help="The program of all dumps that it fits; or one for each dump, in order. Repeatable.",
)
@files_option(
    "--data",
    "data",
    metavar="PTD",
    help="External weights of the programs with the same keys; or one for each. Repeatable.",
)
@click.option(
    "--baseline-noise", "noise", type=FILE, multiple=True, metavar="DUMP",
    help="Another dump of the first program; differences between the two are noise. Repeatable.",
)  # fmt: skip
@click.option("--method", "-m", metavar="NAME", help="Compare this method only.")
@calls_options
@click.option(
    "--select",
    "-s",
    metavar="SELECTOR",
    help="Judge matching operators only: 'op:conv* and module:head'.",
)
@click.option(
    "--min-effect", default="3%", metavar="SHARE", callback=_share,
    help="Smallest change to report.",
)  # fmt: skip
@click.option(
    "--confidence", default="0.99", metavar="SHARE", callback=_share,
    help="Confidence of the verdict: 1 minus the rate of false alarms.",
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(("module", "op", "type", "source", "delegate")),
    help="Add up the changes by group.",
)  # fmt: skip
@click.option("--per-op", is_flag=True, help="Judge each operator, not only the method.")
@click.option("--strict", is_flag=True, help='Exit with 4 if the verdict is "cannot tell".')
@force_option
@source_unit_option
@choice_option("--sort", ("change", "time", "run"), "Order of the operators.")
@limit_option
@unit_option
@columns_option
@lambda function: output_options(
    function,
    formats=_FORMATS,
    help="Output format. Default: from the suffix of --output (.xml: junit), else table.",
)
@as_view("by", "select", "sort", "limit", "unit", "columns", "method", "source_unit")
def command(
    files: tuple[str, ...],
    etrecords: tuple[str, ...],
    programs: tuple[str, ...],
    data: tuple[str, ...],
    noise: tuple[str, ...],
    calls: ChosenCalls,
    min_effect: float,
    confidence: float,
    per_op: bool,
    strict: bool,
    force: bool,
    view: ViewOptions,
    output: OutputOptions,
) -> int:
    """Compare runs with the first one, operator by operator; or compare programs. Default: the last
    two runs.

    \b
    etscope diff
    etscope diff before/ after/ --strict
    etscope diff before.pte after.pte
    """
    if _are_external(files):
        return _diff_external(files, view, output)
    runs = _runs(files, etrecords, programs)
    if runs[0].dump is None:
        data = (*map(str, runs[0].data), *data)
        return _diff_programs(runs, data, len(etrecords) == 1, force, view, output)
    if data:
        raise click.UsageError("--data is for programs, not for times")

    from etscope.analysis.comparison.diff import diff_traces
    from etscope.analysis.statistics.compare_samples import Policy, Verdict, overall
    from etscope.cli.output.progress import progress

    names = [run.name for run in runs]
    policy, keep = Policy(min_effect, confidence, dumps=len(runs) - 1), row_filter(view.select)
    with progress(f"comparing {names[0]} with {', '.join(names[1:])}"):
        opened = _opened(runs, len(etrecords) < 2, len(programs) < 2, force)
        first, *others = map(calls.of, opened)
        repeats = [calls.of(replace(runs[0], dump=Path(path)).open(force=force)) for path in noise]
        options: dict[str, Any] = {"noise": repeats, "method": view.method}
        diffs = []
        for name, other in zip(names[1:], others, strict=True):
            with _naming(name if len(others) > 1 else None):
                diffs.append(diff_traces(first, other, policy, keep=keep, forced=force, **options))
    _write(diffs, names, view, output, (per_op, strict))
    verdict = overall(diff.verdict(per_op=per_op) for diff in diffs)
    if verdict is Verdict.REGRESSED:
        return 1
    return 4 if strict and verdict is Verdict.CANNOT_TELL else 0


@contextmanager
def _naming(dump: str | None) -> Iterator[None]:
    """Add the name of the dump to a `MismatchError`."""
    from etscope.errors import MismatchError

    try:
        yield
    except MismatchError as error:
        if dump is None:
            raise
        raise MismatchError(f"{dump}: {error.message}", hint=error.hint) from error


def _runs(
    files: Sequence[str], etrecords: Sequence[str], programs: Sequence[str]
) -> list[RunFiles]:
    """Return the runs with their records and programs; without a dump the programs, in the order of
    the files."""
    from etscope.capture.files import one_of_each, runs_of_files
    from etscope.errors import UsageError

    found = runs_of_files(files)
    of_programs = all(run.dump is None and run.program is not None for run in found)
    count = len(found) if of_programs else sum(run.dump is not None for run in found)
    what = "program" if of_programs else "dump"
    if count < 2:
        if count and not of_programs and found[0].program is not None:
            raise UsageError(
                "a dump is not comparable with a program",
                hint="name two dumps to compare times, or two programs to compare their content",
            )
        raise UsageError(
            f"diff needs two {what}s, but the files have {count}",
            hint="etscope diff BEFORE AFTER…",
        )
    if of_programs:
        _check_options(_OF_PROGRAMS, "programs")
    kind = "programs" if of_programs else "dumps"
    found = one_of_each(found, "record", etrecords, kind)
    return one_of_each(found, "program", programs, kind)


# Parameters for comparisons of .ptd files and of programs; the others are for times.
_OF_EXTERNAL = {"files", "limit", "format", "output", "color"}
_OF_PROGRAMS = {*_OF_EXTERNAL, "etrecords", "data", "force"}


def _check_options(known: Collection[str], what: str) -> None:
    """Raise `UsageError` for an option that a comparison of `what` does not take. known: parameters
    that it takes."""
    from etscope.errors import UsageError

    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and (name not in known or context.params.get(name) == _JUNIT):
            option = "--format junit" if name == "format" else parameter.opts[0]
            if name in _OF_PROGRAMS and name != "format":
                raise UsageError(
                    f"{option} is for programs, not for {what}",
                    hint="compare the programs: etscope diff a.pte b.pte --data a.ptd --data b.ptd",
                )
            raise UsageError(
                f"{option} is for times, not for {what}",
                hint="name the dumps of two runs to compare times",
            )


def _are_external(files: Sequence[str]) -> bool:
    """Return True if all files are .ptd files."""
    from etscope.errors import FormatError
    from etscope.formats.identify import PTD, identify

    try:
        return bool(files) and all(identify(file) == PTD for file in files)
    except FormatError:
        return False


def _diff_external(files: Sequence[str], view: ViewOptions, output: OutputOptions) -> int:
    """Compare .ptd files with the first one, by key."""
    from etscope.analysis.comparison.program_report import EXTERNAL_SCHEMA, external_diff_report
    from etscope.errors import UsageError
    from etscope.formats.program.ptd import read_ptd

    _check_options(_OF_EXTERNAL, ".ptd files")
    if len(files) < 2:
        raise UsageError(
            "diff needs two .ptd files, but there is 1", hint="etscope diff before.ptd after.ptd"
        )
    names = [Path(file).name for file in files]
    if len(set(names)) < len(names):
        names = [*files]
    first, *others = map(read_ptd, files)
    reports = [
        external_diff_report((names[0], name), first, other)
        for name, other in zip(names[1:], others, strict=True)
    ]
    output.write_reports(reports, EXTERNAL_SCHEMA, limit=view.limit, text_limit=_ROWS)
    return 0 if all(report.about["result"] == "identical" for report in reports) else 1


def _diff_programs(
    runs: Sequence[RunFiles],
    data: Sequence[str],
    one_record: bool,
    force: bool,
    view: ViewOptions,
    output: OutputOptions,
) -> int:
    """Compare programs with the first one. data: their .ptd files. one_record: the only record is
    for the programs that it fits."""
    from etscope.analysis.comparison.program_report import SCHEMA, program_diff_report
    from etscope.analysis.comparison.programs import Side, diff_programs
    from etscope.cli.output.progress import progress
    from etscope.errors import MismatchError
    from etscope.formats.etrecord.reader import read_etrecord
    from etscope.formats.program.bpte import read_program_file

    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.program) for run in runs]
    sides: list[Side] = []
    misfits: list[MismatchError] = []
    for name, run in zip(names, runs, strict=True):
        record = None if run.record is None else read_etrecord(run.record)
        side = Side(name, read_program_file(str(run.program))[0], record)
        if one_record and not force:
            try:
                side.check_record()
            except MismatchError as error:
                misfits.append(error)
                side = replace(side, record=None)
        sides.append(side)
    if len(misfits) == len(sides):
        raise misfits[0]
    if any(side.record is None for side in sides) and any(side.record for side in sides):
        without = ", ".join(side.name for side in sides if side.record is None)
        click.echo(
            f"note: {without} has no ETRecord: names and modules need one for each program",
            err=True,
        )
    first, *others = _with_external(sides, data)
    with progress(f"comparing {names[0]} with {', '.join(names[1:])}"):
        diffs = [diff_programs(first, other, force=force) for other in others]
        reports = [program_diff_report(diff) for diff in diffs]
    output.write_reports(reports, SCHEMA, limit=view.limit, text_limit=_ROWS)
    return 0 if all(diff.identical for diff in diffs) else 1


def _with_external(sides: Sequence[Side], paths: Sequence[str]) -> list[Side]:
    """Add the .ptd files of programs, or print a note that they are missing."""
    from etscope.formats.program.ptd import match_external, read_ptd

    if not paths:
        names = ", ".join(side.name for side in sides if side.external)
        if names:
            click.echo(
                f"note: weights of {names} are in a .ptd file and compared by key only; "
                "name the .ptd of each to compare their content",
                err=True,
            )
        return [*sides]
    files = match_external([side.program for side in sides], [read_ptd(path) for path in paths])
    return [replace(side, data=data) for side, data in zip(sides, files, strict=True)]


def _opened(
    runs: Sequence[RunFiles], shares_record: bool, shares_program: bool, force: bool
) -> Iterator[Trace]:
    """Yield the traces. shares_record, shares_program: later dumps may share the file of the first;
    a dump that does not match is opened without it."""
    from etscope.errors import MismatchError

    first = runs[0]
    yield first.open(force=force)
    for run in runs[1:]:
        own = replace(
            run,
            record=None if shares_record and run.record == first.record else run.record,
            program=None if shares_program and run.program == first.program else run.program,
        )
        if own == run:
            yield run.open(force=force)
            continue
        try:
            yield run.open()
        except MismatchError:
            click.echo(
                f"note: {run.dump} does not match the files of {first.dump}; operators are aligned "
                "by name. Name an ETRecord for each dump",
                err=True,
            )
            yield own.open(force=force)


def _write(
    diffs: Sequence[Diff],
    names: Sequence[str],
    view: ViewOptions,
    output: OutputOptions,
    judged: tuple[bool, bool],
) -> None:
    """Write tables or JUnit XML. judged: `--per-op` and `--strict`."""
    from etscope.analysis.comparison.changes import Diff
    from etscope.analysis.comparison.diff_table import (
        diff_table,
        several_table,
        shown_columns,
        shown_names,
    )
    from etscope.analysis.comparison.waterfall import SHOWN, waterfall_table
    from etscope.views.output import open_output
    from etscope.views.tables import junit

    scale, (per_op, strict) = view.scale, judged
    several = len(diffs) > 1
    if output.format == _JUNIT or (output.format is None and output.path.endswith(".xml")):
        methods = [
            replace(one, method=f"{one.method or 'method'}: {name}") if several else one
            for name, diff in zip(names[1:], diffs, strict=True)
            for one in diff.methods
        ]
        with open_output(output.path) as out:
            junit.write(Diff(tuple(methods)), out, scale, per_op=per_op, strict=strict)
        return
    keep = row_filter(view.select)
    rows: dict[str, Any] = {"sort": view.sort, "limit": view.limit}
    if several:
        by_method = [{one.sides.before.title(): one for one in diff.methods} for diff in diffs]
        methods_ran = dict.fromkeys(name for found in by_method for name in found)
        tables = [
            several_table(
                list(zip(names, [None, *(found.get(name) for found in by_method)], strict=True)),
                scale,
                by=view.by,
                keep=keep,
                **rows,
            )
            for name in methods_ran
        ]
        shown = shown_columns(tables, shown_names(view.by, len(names)))
    elif view.by is None:
        tables = [diff_table(one, scale, per_op=per_op, **rows) for one in diffs[0].methods]
        shown = shown_columns(tables)
    else:
        tables = [
            waterfall_table(one, scale, view.by, keep=keep, **rows) for one in diffs[0].methods
        ]
        shown = shown_columns(tables, (view.by, *SHOWN))
    output.write_tables(tables, view.columns, shown)
