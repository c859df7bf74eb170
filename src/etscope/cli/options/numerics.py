"""Options of `etscope numerics` that compare the stages of a model, and what they write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    ErrorOptions,
    Function,
    GivenFiles,
    as_one_parameter,
    name_of,
    read_inputs,
)
from etscope.cli.options.evaluation import DatasetOptions
from etscope.cli.options.export import (
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
from etscope.errors import UsageError

if TYPE_CHECKING:
    from etscope.analysis.numerics.rows import Narrowed, Numerics
    from etscope.analysis.profile.trace import Trace
    from etscope.diagnosis.stages import NumericStages

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
    return replace(found, narrowed=narrowed_call(trace, found.device, given, errors.tolerance))


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
