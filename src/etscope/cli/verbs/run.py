"""`etscope run`: run a model or a program on the ExecuTorch runtime, and show what it did."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    FILE,
    GivenFiles,
    all_runs_option,
    as_view,
    by_option,
    given_options,
    limit_option,
    output_options,
    program_files_options,
)
from etscope.cli.options.export import (
    ExportCommand,
    export_options,
    exported,
    inputs_by_kind,
)
from etscope.cli.options.run import VERIFICATION, RunArguments, run_options
from etscope.cli.output.tables import OutputOptions, ViewOptions
from etscope.cli.verb import verb
from etscope.errors import UsageError

if TYPE_CHECKING:
    from etscope.run import Call, Run

_PROGRAMS = (".pte", ".bpte", ".etrecord")
# Parameters that only one of the two takes; `options`, `view` and `output` go with both.
_OF_PROGRAM = ("data", "etrecord", "force", "pools", "testset_index")


_DETAILS = """\
MODEL is exported first: package.module:attribute, path/to/file.py:attribute or a .pt2 file.
PROGRAM is a .pte, a .bpte or an ETRecord that holds its program; the .etrecord of its name
beside it is taken, if it is of the same export. Or PROGRAM is a folder with a program and its
record. The run is kept in .etscope/runs, and is what commands without a RUN show.

Latency is measured without tracing; times of instructions, and values, in separate runs. The
test cases of a .bpte are verified: exit code 1 when an output is not as expected.

--pools finds the smallest sizes of the method and temporary allocators' pools, of each method,
and verifies them: the native runner succeeds in exactly these, and fails with one byte less.
"""


@verb(
    {
        "Model": ("--backend", "--quantize", "--inputs", "-X"),
        "Run": ("--iterations", "--threads", "--debug-level", "--save", "--no-save"),
        "Show": ("--by", "--limit", "--format", "--output"),
    },
    details=_DETAILS,
    cls=ExportCommand,
)
@click.argument("program", type=FILE, metavar="MODEL|PROGRAM", required=False)
@click.option(
    "--demo", is_flag=True, help="Write a small model to keyword_spotter.py, and run that."
)
@export_options
@run_options
@program_files_options
@click.option(
    "--pools",
    is_flag=True,
    help="Find the smallest memory pools of a microcontroller build instead of measuring times.",
)
@by_option
@limit_option
@all_runs_option
@as_view("by", "limit", "all_runs")
@output_options
def command(
    program: str | None,
    demo: bool,
    options: RunArguments,
    files: GivenFiles,
    pools: bool,
    view: ViewOptions,
    output: OutputOptions,
    **export: Any,
) -> int:
    """Run MODEL or PROGRAM, and show how long it and its operators take, and why. The run is kept:
    commands without a RUN show it.

    \b
    etscope run model.py:Model --backend xnnpack
    etscope run model.py:Model --inputs float32[1,3,224,224]
    etscope run model.pte --iterations 100
    etscope run --demo
    """
    from etscope.cli.output.progress import progress

    if (program is None) != demo:
        raise UsageError(
            "run needs a MODEL or a PROGRAM, or --demo and neither",
            hint="etscope run --demo runs a small model",
        )
    if program is None:
        program = _demo_model()
        if not given_options(["backend"]):
            export["backend"] = "xnnpack"
    if (inside := _inside(program, files)) is not None:
        program, files = inside
    is_program = _is_program(program)
    _check_fit(program, is_program, options, export)
    if pools:
        return _pools(program, options, files, output)
    options.check(output)
    with ExitStack() as stack:
        name = Path(program).stem if is_program else program.rpartition(":")[2]
        folder = stack.enter_context(options.saved(name))
        if is_program:
            files = replace(files, etrecord=files.etrecord or _record_beside(program))
            with progress(f"running {program}"):
                run = options.run(program, **files.arguments())
        else:
            target = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            run = _run_of_model(program, options, target, export, bundle=folder is not None)
        return options.finish(run, folder, view, output)


def _check_fit(
    program: str, is_program: bool, options: RunArguments, export: Mapping[str, Any]
) -> None:
    """Raise `UsageError` for options of a MODEL with a PROGRAM, and the other way round."""
    if is_program and (given := given_options(export)):
        raise UsageError(
            f"{given[0]} is for an export, and {program} is exported already",
            hint="name the MODEL",
        )
    if not is_program and (given := given_options(_OF_PROGRAM)):
        raise UsageError(
            f"{given[0]} is for a PROGRAM, and {program} is a MODEL",
            hint="export it first: etscope export",
        )
    if is_program and inputs_by_kind(options.inputs)[0]:
        raise UsageError(
            f"--inputs with types is for a MODEL, and {program} is exported already",
            hint="name a file of inputs, or none: they are drawn from -X seed",
        )


def _demo_model() -> str:
    """Write the demo's model to this folder, unless it is there; return its name."""
    from etscope.formats.bytes.files import copy_file

    path = Path("keyword_spotter.py")
    if not path.exists():
        package = Path(__file__).resolve().parents[2]
        inside = package / "examples" / path  # of a wheel; else this is a checkout
        copy_file(inside if inside.is_file() else package.parents[1] / "examples" / path, path)
        click.echo(f"wrote {path}: the model of the demo", err=True)
    return f"{path}:KeywordSpotter"


def _is_program(text: str) -> bool:
    """True for the name or the content of a program, False for what is to be exported."""
    from etscope.errors import FormatError
    from etscope.formats.identify import identify

    path = Path(text)
    if path.suffix in _PROGRAMS or not path.is_file():
        return path.suffix in _PROGRAMS
    try:
        identify(path)
    except FormatError:
        return False
    return True


def _inside(folder: str, files: GivenFiles) -> tuple[str, GivenFiles] | None:
    """Return the program in a folder, and `files` with its record; None for another folder, such as
    of a language model, and without a program."""
    if not Path(folder).is_dir() or Path(folder, "config.json").is_file():
        return None
    from etscope.capture.files import run_of_files

    try:
        found = run_of_files([folder], needs_dump=False)
    except UsageError as error:
        raise UsageError(
            error.message, hint=f"{error.hint}; or the config.json of a transformers model"
        ) from error
    record = None if found.record is None else str(found.record)
    if found.program is None and record is None:
        return None
    etrecord = files.etrecord or (None if found.program is None else record)
    return str(found.program or record), replace(files, etrecord=etrecord)


def _record_beside(program: str) -> str | None:
    from etscope.capture.files import record_beside
    from etscope.errors import EtscopeError

    try:
        found = record_beside(Path(program))
    except EtscopeError:  # a damaged record that nobody named
        return None
    return None if found is None else str(found)


def _pools(program: str, options: RunArguments, files: GivenFiles, output: OutputOptions) -> int:
    from etscope.cli.output.progress import progress
    from etscope.run.pools import SCHEMA, pools_report, smallest_pools

    options.check_pools()
    with progress(f"running {program} in pools"):
        found = smallest_pools(
            program,
            next(iter(options.inputs), None),
            method=options.of_run.method,
            testset_index=options.of_run.testset_index,
            seed=options.of_run.seed,
            libraries=options.of_run.libraries,
            timeout=options.of_run.timeout,
            **files.arguments(),
        )
    output.write_reports([pools_report(found)], SCHEMA)
    return 0


def _run_of_model(
    model: str, options: RunArguments, folder: Path, export: dict[str, Any], *, bundle: bool
) -> Run:
    """Export a model into a folder, and run it on its example inputs, or on all files of inputs if
    there are several. bundle: write a .bpte, too."""
    from etscope.cli.output.progress import progress
    from etscope.errors import BundleError, EtscopeWarning

    types, files = inputs_by_kind(options.inputs)
    _, result = exported(
        model, inputs=[*types, *files[:1]], seed=options.of_run.seed or 0, **export
    )
    verifies = VERIFICATION in options.show
    try:
        saved = result.save(folder, bundle=verifies or bundle)
    except BundleError as error:
        warnings.warn(f"no .bpte is written: {error.message}", EtscopeWarning, stacklevel=2)
        saved = result.save(folder, bundle=False)
    paths = {path.suffix: path for path in saved}
    calls: list[Call] | None = None
    if len(files) < 2 and not (verifies and ".bpte" in paths):
        calls = _calls_of(result.example_inputs, paths[".etrecord"], options.of_run.method)
        options = replace(options, inputs=())
    source = paths[".bpte" if calls is None else ".etrecord"]
    with progress(f"running {model}"):
        return options.run(source, calls, etrecord=paths[".etrecord"])


def _calls_of(example_inputs: Mapping[str, Any], record: Path, method: str | None) -> list[Call]:
    from etscope.analysis.program.correlate import recorded_inputs
    from etscope.errors import MissingDataError
    from etscope.formats.etrecord.reader import read_etrecord
    from etscope.run import Call

    opened = read_etrecord(record)
    calls = [
        # Those of the record are taken from there, texts and all, also by who compares.
        Call(name, None if recorded_inputs(opened, name) else values)
        for name, values in example_inputs.items()
        if method in (None, name)
    ]
    if not calls:
        raise MissingDataError(
            f"the model has no method {method!r}",
            hint=f"methods are: {', '.join(example_inputs)}",
        )
    return calls
