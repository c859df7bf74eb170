"""`etscope numerics`: find the operator with wrong numbers, and its line of Python."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    ABOUT_RUN,
    COUNT,
    ChosenCalls,
    ErrorOptions,
    Function,
    GivenFiles,
    as_one_parameter,
    as_view,
    calls_options,
    choice_option,
    columns_option,
    error_options,
    inputs_option,
    limit_option,
    name_of,
    names_model,
    output_options,
    read_inputs,
    run_files_options,
)
from etscope.cli.options.evaluation import (
    DatasetOptions,
    dataset_options,
)
from etscope.cli.options.export import (
    ExportCommand,
    backend_option,
    backend_options_option,
    calibration_option,
    float_model_option,
    keep_float_option,
    load_torch,
    quantize_option,
    seed_option,
    strict_option,
)
from etscope.cli.output.tables import OutputOptions, ViewOptions
from etscope.cli.settings import setting
from etscope.cli.verb import verb
from etscope.errors import MismatchError, MissingDataError, NumericGapError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etscope.analysis.numerics.rows import Narrowed, Numerics
    from etscope.analysis.profile.trace import Trace
    from etscope.diagnosis.stages import NumericStages
    from etscope.evaluation import Evaluation
    from etscope.model.table import Table

_MODEL_OPTIONS = (
    "backend", "backend_options", "quantize", "calibration", "keep_float", "float_model", "strict",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StagesOptions:
    """Values of `stages_options`, by the names of the options."""

    stages: bool
    narrow: bool
    model: str | None
    backend: str | None
    backend_options: Mapping[str, str]
    quantize: str | None
    calibration: tuple[str, ...]
    keep_float: tuple[str, ...]
    float_model: str | None
    strict: bool | None
    seed: int

    def check_files(self) -> None:
        """Raise `UsageError` for options that are for a model, with the files of a run."""
        unset: tuple[Any, ...] = (None, (), False, {})
        given = [name for name in _MODEL_OPTIONS if getattr(self, name) not in unset]
        if given:
            raise UsageError(
                f"{name_of(given[0])} applies to an export, but RUN is a finished run",
                hint="name a model instead of RUN: etscope numerics model.py:make",
            )
        if self.model is not None and not (self.stages or self.narrow):
            raise UsageError("-X model needs --stages", hint="add --stages")


def stages_options(function: Function) -> Function:
    """Add the options: the parameter `staging`, a `StagesOptions`."""
    options = (
        click.option(
            "--stages",
            is_flag=True,
            help="Show where the error enters: compare each stage with the one before.",
        ),
        click.option(
            "--narrow",
            is_flag=True,
            help="Export a wrong delegate call again with taps and run it here, until one line "
            "remains.",
        ),
        setting("model", metavar="MODEL", help="The eager model that was exported, for --stages."),
        backend_option(None, "Backend of the operators of a MODEL. Default: portable."),
        backend_options_option,
        quantize_option,
        calibration_option,
        keep_float_option,
        float_model_option,
        strict_option,
        seed_option,
    )
    return as_one_parameter(function, "staging", StagesOptions, options)


def refuse(what: str, given: Mapping[str, Any]) -> None:
    """Raise `UsageError` for an option that excludes `what`. given: the options with their
    values.
    """
    for name, value in given.items():
        if value is not None and value is not False:
            raise UsageError(f"{what} and {name} exclude each other")


def numerics_of_model(
    name: str,
    inputs: str | None,
    dataset: DatasetOptions,
    errors: ErrorOptions,
    staging: StagesOptions,
    method: str | None,
) -> NumericStages:
    """Build the model of that name, run it and compare its stages."""
    from etscope.cli.output.progress import progress, saying
    from etscope.export import check_model_name, load_model
    from etscope.search.numerics import model_stages
    from etscope.search.trial import read_samples
    from etscope.support.quiet import quiet

    for one in filter(None, (name, staging.float_model)):
        check_model_name(one)
    load_torch("numerics")
    with progress(f"loading {name}"), quiet():
        source = load_model(name, seed=staging.seed)
        plain = staging.float_model
        floats = None if plain is None else load_model(plain, seed=staging.seed)
        samples = [] if dataset.dataset is None else read_samples(source, [dataset.dataset])
        sets = [source.read_inputs(file) for file in staging.calibration] or None
    with saying(source.name) as say, quiet():
        return model_stages(
            source,
            inputs,
            samples=samples[: dataset.of_run.samples],
            backend=staging.backend or "portable",
            backend_options=staging.backend_options,
            quantize=staging.quantize or False,
            calibration=sets,
            keep_float=staging.keep_float,
            float_model=floats,
            strict=staging.strict,
            metric=errors.metric,
            tolerance=errors.tolerance,
            method=method,
            say=say,
        )


def stages_of_files(
    trace: Trace,
    files: GivenFiles,
    inputs: str | None,
    errors: ErrorOptions,
    staging: StagesOptions,
    chosen: dict[str, Any],
) -> NumericStages:
    """Compare the stages that the files of a run hold, and the eager model if it is named."""
    from etscope.analysis.numerics.runs import method_that_ran
    from etscope.cli.output.progress import progress
    from etscope.diagnosis.numerics import RunToCompare
    from etscope.diagnosis.stage_comparison import numeric_stages
    from etscope.support.quiet import quiet

    eager = None
    if staging.model is not None:
        from etscope.diagnosis.stage_comparison import EagerModel
        from etscope.export import check_model_name, load_model

        check_model_name(staging.model)
        load_torch("numerics")
        with progress(f"loading {staging.model}"), quiet():
            source = load_model(staging.model, seed=staging.seed)
        eager = EagerModel.of(source.model, source.inputs)
    given = None
    if inputs is not None:
        given = read_inputs(trace, method_that_ran(trace, chosen["method"]), inputs)
    with progress("comparing the stages"), quiet():
        asked = RunToCompare(
            metric=errors.metric,
            tolerance=errors.tolerance,
            inputs=given,
            bundle=files.files.bundle,
            **chosen,
        )
        found = numeric_stages(trace, asked, eager)
    if not staging.narrow:
        return found
    narrowed = narrowed_call(trace, found.device, given, errors.tolerance)
    if narrowed is None:
        from etscope.analysis.numerics.rows import why_not_narrowed

        return replace(found, absent=(*found.absent, why_not_narrowed(found.device)))
    return replace(found, narrowed=narrowed)


def narrowed_call(
    trace: Trace, found: Numerics, inputs: Any, tolerance: float | None
) -> Narrowed | None:
    """Narrow the first wrong delegate call down to a line."""
    from etscope.cli.output.progress import saying
    from etscope.search.numerics import narrow
    from etscope.support.quiet import quiet

    with saying(found.method) as say, quiet():
        return narrow(trace, found, inputs=inputs, tolerance=tolerance, say=say)


def write_stages(found: NumericStages, output: OutputOptions, view: ViewOptions) -> int:
    """Write the table of the stages; return 1 if an operator is wrong."""
    table = found.table(view.sort or "run")
    table = table.take(range(len(table))[: view.limit])
    default = [
        "op", *(stage.name for stage in found.stages), "wrong_in", "module", "source"
    ]  # fmt: skip
    output.write_tables([table], view.columns, default)
    return 0 if found.is_fine else 1


_COLUMNS = (
    "instruction", "op", "node", "quantization", "total", "local", "inherited", "noise", "limit",
    "verdict", "non_finite", "module", "source",
)  # fmt: skip
_QUANTIZATION_COLUMNS = (
    "op", "node", "total", "own", "alone", "saturated", "quantized_range", "float_range", "module",
    "source",
)  # fmt: skip


_DETAILS = """\
etscope compares each recorded value with the reference (total). PyTorch then computes the
operator from the device's own inputs: local compares the recorded value with this result, and
inherited compares this result with the reference. An operator is wrong if its local error exceeds
the limit: the tolerance, or a multiple of the rounding error (noise).

--values 'aten_relu_default', 'id:7' or 'op:conv*' shows the values behind the verdict. A wrong
operator's values stand next to PyTorch's result from the same inputs; other values next to the
reference. Formats for programs hold both.

If the model is quantized and its record has the float graph, the cost of quantization
(quantization) is separate from the error of the backend (backend: the total error to the quantized
reference).

--dataset: each sample is the inputs of one run, in order. The report covers all runs.

--stages compares each stage of the model with the one before: eager (-X model), exported,
quantized, edge, device. A MODEL in place of RUN, as for etscope export, is exported and run here,
and its stages are compared. --narrow narrows a wrong delegate call down to a line.

--calls chooses a call of a language model: the first one with values. PyTorch replays the calls
before it, to fill the cache.

If several methods ran, etscope checks each in its first run with values. With --inputs, --run,
--dataset and --values it checks forward, or --method.

Exit code 1: an operator is wrong, or has NaN where the reference has none.
"""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The values to compare, and the table or report to show."""

    inputs: str | None
    method: str | None
    run: int | None
    coverage: bool
    quantization: bool
    values: str | None

    @property
    def tables(self) -> dict[str, Any]:
        """The options that choose another table or report, with their values."""
        return {
            "--coverage": self.coverage,
            "--values": self.values,
            "--quantization": self.quantization,
        }

    @property
    def is_of_one(self) -> bool:
        """True for options that apply to one method."""
        of_one = (self.method, self.inputs, self.run, self.values)
        return self.quantization or any(one is not None for one in of_one)

    def check_model(self, files: GivenFiles, calls: ChosenCalls) -> None:
        """Raise `UsageError` for an option of a run, with a MODEL."""
        of_runs = {
            "--etrecord": files.etrecord,
            "--debug-buffer": files.debug_buffer,
            "--program": files.program,
            "--calls": calls.is_given,
            "--run": self.run,
        }
        refuse("a MODEL", {**self.tables, **of_runs})


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
@run_files_options
@inputs_option
@functools.partial(dataset_options, required=False)
@error_options
@click.option(
    "--method", "-m", metavar="NAME", help="Check this method only. Default: all methods that ran."
)
@click.option("--run", type=COUNT, metavar="N", help="Index of the run; the first is 0.")
@functools.partial(calls_options, statistics=False)
@choice_option("--sort", ("run", "error"), "Order of the rows: of execution, or the worst first.")
@limit_option
@click.option("--coverage", is_flag=True, help="Show which values were not compared, and why.")
@click.option(
    "--quantization",
    is_flag=True,
    help="Show the cost of quantizing each operator. Needs the float graph in the record.",
)
@click.option(
    "--values",
    metavar="SELECTOR",
    help="Show values of these operators: distribution, error by channel, worst elements.",
)
@stages_options
@columns_option
@output_options
@as_view("columns", "sort", "limit")
@functools.partial(as_one_parameter, parameter="asked", make=_Asked)
def command(
    files: GivenFiles,
    asked: _Asked,
    dataset_options: DatasetOptions,
    errors: ErrorOptions,
    calls: ChosenCalls,
    staging: StagesOptions,
    view: ViewOptions,
    output: OutputOptions,
) -> int:
    """Find the operator with wrong numbers, and its line of Python. RUN needs values (etscope run
    --debug-level intermediate_outputs); or name a MODEL.

    \b
    etscope numerics
    etscope numerics @1 --narrow
    etscope numerics model.py:Model --backend xnnpack --quantize
    """
    dataset_options.check(output)
    dataset = dataset_options.dataset
    if calls.is_given:
        refuse("--calls", {"--run": asked.run, "--method": asked.method, "--dataset": dataset})
    if names_model(files.given[0]):
        asked.check_model(files, calls)
        built = numerics_of_model(
            files.model, asked.inputs, dataset_options, errors, staging, asked.method
        )
        return write_stages(built, output, view)
    staging.check_files()
    if staging.stages:
        refuse("--stages", {**asked.tables, "--dataset": dataset})
    trace = files.open(with_values=True)
    chosen: dict[str, Any] = {"method": asked.method, "run": asked.run, **calls.run_of(trace)}
    if staging.stages:
        compared = stages_of_files(trace, files, asked.inputs, errors, staging, chosen)
        return write_stages(compared, output, view)
    chosen |= errors.arguments()
    if dataset is not None:
        refuse("--dataset", {"--inputs": asked.inputs, **asked.tables})
        evaluation = _evaluation(trace, dataset_options, chosen)
        return dataset_options.write(evaluation, output, view)
    is_of_one = asked.is_of_one or calls.is_given or staging.narrow
    if not is_of_one and (several := _several(trace, files, chosen)):
        tables = _tables_of_methods(several, view, coverage=asked.coverage)
        names = () if asked.coverage else ("method", *_COLUMNS)
        output.write_tables(tables, view.columns, _filled(tables, names))
        return 0 if all(one.is_fine for one in several) else 1
    found = _diagnosed(trace, files, asked, chosen, replays=calls.is_given)
    if asked.values is not None:
        _write_values(found, output, view)
        return 0 if found.is_fine else 1
    table, default = _table_of_one(found, asked, view)
    if staging.narrow:
        notes = _narrowed_notes(trace, found, asked.inputs, errors.tolerance)
        table = replace(table, notes=(*table.notes[:1], *notes, *table.notes[1:]))
    table = table.take(range(len(table))[: view.limit])
    output.write_tables([table], view.columns, _filled([table], default))
    return 0 if found.is_fine else 1


def _narrowed_notes(
    trace: Trace, found: Numerics, inputs: str | None, tolerance: float | None
) -> Sequence[str]:
    """Return the result of `--narrow` in sentences, or why there is none."""
    from etscope.analysis.numerics.rows import why_not_narrowed

    given = None if inputs is None else read_inputs(trace, found.method, inputs)
    narrowed = narrowed_call(trace, found, given, tolerance)
    return (why_not_narrowed(found),) if narrowed is None else narrowed.notes


def _diagnosed(
    trace: Trace, files: GivenFiles, asked: _Asked, chosen: dict[str, Any], *, replays: bool
) -> Numerics:
    """Diagnose one run. replays: PyTorch runs the calls before, which takes a while."""
    from etscope.cli.output.progress import counting, progress
    from etscope.support.quiet import quiet

    if replays:
        with counting("replaying the calls before") as count, quiet():
            return _numerics(trace, files, asked, chosen, count)
    with progress("computing the reference"), quiet():
        return _numerics(trace, files, asked, chosen)


def _table_of_one(found: Numerics, asked: _Asked, view: ViewOptions) -> tuple[Table, Sequence[str]]:
    """Return the table of one method, and its default columns."""
    if not asked.quantization:
        return _table(found, view, coverage=asked.coverage), () if asked.coverage else _COLUMNS
    if found.quantization is None:
        raise MissingDataError(
            "the record does not have the float graph",
            hint="etscope export --quantize (or -X float_model) records the float graph; in a "
            "script, call ETRecord.add_float_program()",
        )
    return found.quantization.table(view.sort or "run"), _QUANTIZATION_COLUMNS


def _table(found: Numerics, view: ViewOptions, *, coverage: bool) -> Table:
    if coverage:
        return replace(found.coverage.table(), notes=found.notes)
    return found.table(view.sort or "run")


def _filled(tables: Sequence[Table], names: Sequence[str]) -> list[str] | None:
    """Return the columns that have a value; None without names."""
    return [
        name
        for name in names
        if any(cell is not None for table in tables for cell in table.values.get(name, ()))
    ] or None


def _tables_of_methods(
    found: Sequence[Numerics], view: ViewOptions, *, coverage: bool
) -> list[Table]:
    """Return a table for each method, all with the same columns."""
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


def _several(trace: Trace, files: GivenFiles, chosen: dict[str, Any]) -> list[Numerics]:
    """Diagnose each method that ran; empty for one method, or none. Raises the error of the first
    method that cannot be compared."""
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
        raise UsageError("--columns does not go with --values, which shows reports")
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
        return evaluate_dump(
            trace, options.dataset, options=options.of_run, progress=progress, **chosen
        )


def _numerics(
    trace: Trace,
    files: GivenFiles,
    asked: _Asked | None,
    chosen: dict[str, Any],
    count: Callable[[int, int | None], None] | None = None,
) -> Numerics:
    """Diagnose one run. asked: its inputs, and the values to keep; None for neither."""
    from etscope.analysis.numerics.runs import method_that_ran
    from etscope.diagnosis.numerics import RunToCompare, numerics_of

    inputs, values = (None, None) if asked is None else (asked.inputs, asked.values)
    given = None
    if inputs is not None:
        given = read_inputs(trace, method_that_ran(trace, chosen["method"]), inputs)
    compared = RunToCompare(inputs=given, bundle=files.files.bundle, **chosen)
    return numerics_of(trace, compared, values=values, costs=values is None, progress=count)
