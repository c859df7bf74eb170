"""`etscope numerics`: find the operator whose numbers go wrong, and its line of Python."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    ABOUT_RUN,
    COUNT,
    ChosenCalls,
    ErrorOptions,
    TraceOptions,
    as_view,
    calls_options,
    choice_option,
    columns_option,
    error_options,
    inputs_option,
    limit_option,
    output_options,
    read_inputs,
    trace_options,
)
from etscope.cli.options.evaluation import (
    DatasetOptions,
    dataset_options,
)
from etscope.cli.options.export import ExportCommand
from etscope.cli.options.numerics import (
    StagesOptions,
    names_model,
    narrowed_call,
    numerics_of_model,
    refuse,
    stages_of_files,
    stages_options,
    write_stages,
)
from etscope.cli.output.tables import OutputOptions, ViewOptions
from etscope.cli.verb import verb
from etscope.errors import MismatchError, MissingDataError, NumericGapError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etscope.analysis.numerics.rows import Numerics
    from etscope.analysis.profile.trace import Trace
    from etscope.evaluation import Evaluation
    from etscope.model.table import Table

_COLUMNS = (
    "instruction", "op", "node", "quantization", "total", "local", "inherited", "noise", "limit",
    "verdict", "non_finite", "module", "source",
)  # fmt: skip
_QUANTIZATION_COLUMNS = (
    "op", "node", "total", "own", "alone", "saturated", "quantized_range", "float_range", "module",
    "source",
)  # fmt: skip


_DETAILS = """\
Each recorded value is compared with the reference (total). PyTorch then computes the operator
from the device's own inputs: the recorded value is compared with that result (local), and that
result with the reference (inherited). An operator is wrong when its local error is worse than
the limit: the tolerance, or a multiple of the error of rounding alone (noise).

With --values 'aten_relu_default', 'id:7' or 'op:conv*' the values behind the verdict are shown:
those of the device beside PyTorch's from the same inputs for an operator that is wrong, and
beside the reference for any other (formats for programs hold both).

Of a quantised model whose record has the float graph, what quantisation costs (quantization) is
apart from what the backend adds (backend: the total error to the quantised reference).

With --dataset each sample is the inputs of one run, in order, and all runs are summarised.

With --stages each stage of the model is compared with the one before: eager (-X model),
exported, quantised, edge, device. In place of RUN, a MODEL as for `etscope export` is
exported, run here, and compared in this way; a wrong delegate call is narrowed down to a line.

Of a language model, --calls chooses the call to diagnose: the first of them that
has values. The calls before it are replayed in PyTorch, for the state of the cache.

Where several methods ran, each is diagnosed, the first of its runs that has values. With
--inputs, --run, --dataset, and --values it is forward, or the one that --method names.

Exit code 1 when an operator is wrong, or has NaN where the reference has none.
"""


@verb(
    {
        "Values": ("--inputs", "--values", "--narrow", "--stages"),
        "Limits": ("--metric", "--tolerance"),
        "Rows": ("--method", "--calls"),
        "Model": ("--backend", "--quantize", "-X"),
        "Output": ("--format", "--output"),
    },
    details=_DETAILS + ABOUT_RUN,
    cls=ExportCommand,
)
@trace_options
@inputs_option
@functools.partial(dataset_options, required=False)
@error_options
@click.option("--method", "-m", metavar="NAME", help="The method. Default: all that ran.")
@click.option("--run", type=COUNT, metavar="N", help="Index of the run, from 0.")
@functools.partial(calls_options, statistics=False)
@choice_option("--sort", ("run", "error"), "Order of execution, or the worst first.")
@limit_option
@click.option("--coverage", is_flag=True, help="Show the values that were not compared, and why.")
@click.option(
    "--quantization",
    is_flag=True,
    help="Show what quantising each operator costs, if the record has the float graph.",
)
@click.option(
    "--values",
    metavar="SELECTOR",
    help="Show the values of these operators: distribution, error by channel, worst elements.",
)
@stages_options
@columns_option
@output_options
@as_view("columns", "sort", "limit")
def command(
    files: TraceOptions,
    inputs: str | None,
    dataset_options: DatasetOptions,
    errors: ErrorOptions,
    method: str | None,
    run: int | None,
    calls: ChosenCalls,
    coverage: bool,
    quantization: bool,
    values: str | None,
    staging: StagesOptions,
    view: ViewOptions,
    output: OutputOptions,
) -> int:
    """Find the operator of RUN that goes wrong, and its line of Python. RUN has values (etscope
    run --debug-level intermediate_outputs), or is a MODEL.

    \b
    etscope numerics
    etscope numerics @1 --narrow
    etscope numerics model.py:Model --backend xnnpack --quantize
    """
    from etscope.cli.output.progress import counting, progress
    from etscope.support.quiet import quiet

    dataset_options.check(output)
    alone: dict[str, Any] = {"--coverage": coverage, "--values": values}
    alone["--quantization"] = quantization
    chosen: dict[str, Any] = {"method": method, "run": run}
    if calls.is_given:
        refuse("--calls", {"--run": run, "--method": method, "--dataset": dataset_options.dataset})
    if names_model(files.given[0]):
        alone |= {"--etrecord": files.etrecord, "--debug-buffer": files.debug_buffer}
        alone |= {"--program": files.program, "--calls": calls.is_given, "--run": run}
        refuse("a MODEL", alone)
        built = numerics_of_model(files.model, inputs, dataset_options, errors, staging, method)
        return write_stages(built, output, view)
    staging.check_files()
    if staging.stages:
        refuse("--stages", {**alone, "--dataset": dataset_options.dataset})
        trace = files.open(with_values=True)
        chosen |= calls.run_of(trace)
        compared = stages_of_files(trace, files, inputs, errors, staging, chosen)
        return write_stages(compared, output, view)
    trace = files.open(with_values=True)
    chosen |= errors.arguments() | calls.run_of(trace)
    if dataset_options.dataset is not None:
        given = {
            "--inputs": inputs,
            "--coverage": coverage or None,
            "--quantization": quantization or None,
            "--values": values,
        }
        if other := next((name for name, value in given.items() if value is not None), None):
            raise UsageError(f"--dataset and {other} exclude each other")
        evaluation = _evaluation(trace, dataset_options, chosen)
        return dataset_options.write(evaluation, output, view)
    of_one = calls.is_given or any(x is not None for x in (method, inputs, run, values))
    if not (of_one or quantization or staging.narrow):
        several = _several(trace, files, chosen)
        if several:
            tables = _tables_of_methods(several, view, coverage=coverage)
            names = () if coverage else ("method", *_COLUMNS)
            output.write_tables(tables, view.columns, _filled(tables, names))
            return 0 if all(one.is_fine for one in several) else 1
    # The reports of --values are without the notes, which tell the costs.
    if calls.is_given:
        with counting("replaying the calls before") as count, quiet():
            found = _numerics(trace, files, inputs, chosen, values, count)
    else:
        with progress("computing the reference"), quiet():
            found = _numerics(trace, files, inputs, chosen, values)
    if values is not None:
        _write_values(found, output, view)
        return 0 if found.is_fine else 1
    default: Sequence[str]
    if quantization:
        if found.quantization is None:
            from etscope.errors import MissingDataError

            raise MissingDataError(
                "the record has no graph of the model before it was quantised",
                hint="etscope export --quantize (or -X float_model) records it, "
                "ETRecord.add_float_program() in a script of your own",
            )
        table = found.quantization.table(view.sort or "run")
        default = _QUANTIZATION_COLUMNS
    else:
        table = _table(found, view, coverage=coverage)
        default = () if coverage else _COLUMNS
    if staging.narrow:
        own = None if inputs is None else read_inputs(trace, found.method, inputs)
        narrowed = narrowed_call(trace, found, own, errors.tolerance)
        if narrowed is not None:
            table = replace(table, notes=(*table.notes[:1], *narrowed.notes, *table.notes[1:]))
    table = table.take(range(len(table))[: view.limit])
    output.write_tables([table], view.columns, _filled([table], default))
    return 0 if found.is_fine else 1


def _table(found: Numerics, view: ViewOptions, *, coverage: bool) -> Table:
    if coverage:
        return replace(found.coverage.table(), notes=found.notes)
    return found.table(view.sort or "run")


def _filled(tables: Sequence[Table], names: Sequence[str]) -> list[str] | None:
    """The columns that have a value; None without names."""
    return [
        name
        for name in names
        if any(cell is not None for table in tables for cell in table.values.get(name, ()))
    ] or None


def _tables_of_methods(
    found: Sequence[Numerics], view: ViewOptions, *, coverage: bool
) -> list[Table]:
    """A table for each method, all of the same columns."""
    from etscope.model.table import Column

    tables = []
    for one in found:
        table = _table(one, view, coverage=coverage)
        named = replace(
            table,
            columns=(Column("method"), *table.columns),
            values={"method": [one.method] * len(table), **table.values},
            notes=tuple(f"{one.method}: {note}" for note in table.notes),
        )
        tables.append(named)
    common = [name for name in tables[0].names if all(name in one.names for one in tables)]
    return [one.select(common).take(range(len(one))[: view.limit]) for one in tables]


def _several(trace: Trace, files: TraceOptions, chosen: dict[str, Any]) -> list[Numerics]:
    """Diagnose each method that ran; empty if it is one, or none. Where one cannot be compared,
    that is its error."""
    from etscope.analysis.numerics.runs import methods_that_ran
    from etscope.cli.output.progress import progress
    from etscope.support.quiet import quiet

    methods = methods_that_ran(trace)
    if len(methods) < 2:
        return []
    found, name = [], ""
    try:
        for name in methods:
            with progress(f"computing the reference of {name}"), quiet():
                found.append(_numerics(trace, files, None, {**chosen, "method": name}))
    except (MismatchError, MissingDataError, NumericGapError) as error:
        error.message = f"the method {name!r}: {error.message}"
        raise
    return found


def _write_values(found: Numerics, output: OutputOptions, view: ViewOptions) -> None:
    """Write the reports of the rows that keep their values."""
    from etscope.analysis.numerics.value_report import row_reports

    if view.columns is not None:
        raise UsageError("--values shows reports, which have no --columns")
    rows = [row for row in found.rows if row.values is not None]
    if view.sort == "error":
        rows.sort(key=lambda row: row.excess, reverse=True)
    shown = rows[: view.limit]
    reports = [one for row in shown for one in row_reports(row, text=output.is_text)]
    output.write_reports(reports, "etscope.values/1")
    if len(shown) < len(rows):
        click.echo(f"{len(rows) - len(shown):,} more values match", err=True)


def _evaluation(trace: Trace, options: DatasetOptions, chosen: dict[str, Any]) -> Evaluation:
    from etscope.cli.output.progress import counting
    from etscope.evaluation import evaluate_dump
    from etscope.support.quiet import quiet

    with counting("comparing runs") as progress, quiet():
        arguments = {**chosen, **options.arguments()}
        return evaluate_dump(trace, options.dataset, progress=progress, **arguments)


def _numerics(
    trace: Trace,
    files: TraceOptions,
    inputs: str | None,
    chosen: dict[str, Any],
    values: str | None = None,
    count: Callable[[int, int | None], None] | None = None,
) -> Numerics:
    from etscope.analysis.numerics.runs import method_that_ran
    from etscope.diagnosis.numerics import RunToCompare, numerics_of

    given = None
    if inputs is not None:
        given = read_inputs(trace, method_that_ran(trace, chosen["method"]), inputs)
    asked = RunToCompare(inputs=given, bundle=files.bundle(), **chosen)
    return numerics_of(trace, asked, values=values, costs=values is None, progress=count)
