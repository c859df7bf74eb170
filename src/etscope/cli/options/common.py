"""Options that several verbs share.

Options that belong together reach a command as one frozen dataclass: a decorator such as
`output_options` adds the click options and passes their values as a single parameter.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from etscope.cli.options.kept_runs import kept_runs
from etscope.cli.output.tables import Findings, OutputOptions, ViewOptions
from etscope.cli.settings import Setting, setting
from etscope.errors import UsageError
from etscope.support.options import key_values
from etscope.units import TimeScale
from etscope.views import TABLE_VIEWS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from etscope.analysis.backend_files.placement import PlacedFile
    from etscope.analysis.numerics.rows import Numerics
    from etscope.analysis.profile.profile import MethodProfile
    from etscope.analysis.profile.scale import Scale
    from etscope.analysis.profile.trace import Capture, Trace
    from etscope.backends.registry.tool_files import BackendFile
    from etscope.capture.files import RunFiles
    from etscope.formats.program.bpte import BundledFile
    from etscope.model.finding import Files

__all__ = [
    "CLOCKS",
    "COUNT",
    "FILE",
    "PORT",
    "POSITIVE",
    "RUNNERS",
    "SECONDS",
    "Function",
    "as_one_parameter",
    "choice_option",
    "data_option",
    "etrecord_option",
    "file_option",
    "output_options",
    "pairs_option",
    "path_option",
    "show_address",
]

# Names of the reference graphs on the command line, and in an ETRecord.
GRAPHS = {"edge": "edge_dialect_exported_program", "exported": "exported_program"}
RUNNERS = ("auto", "python", "native")
UNITS = [scale.value for scale in TimeScale]

_Arguments = TypeVar("_Arguments")
Function = TypeVar("Function", bound=Callable[..., Any])
_Option = Callable[[Any], Any]


def as_one_parameter(
    function: Function,
    parameter: str,
    make: Callable[..., Any],
    options: Sequence[_Option] = (),
    names: Collection[str] | None = None,
) -> Function:
    """Add click options to a command, and pass their values as one parameter.

    make: the dataclass of the values, or a function that makes it. names: the names of the options'
    values; None: taken from `options`, and without options from the parameters of `make`.
    """
    taken = names
    if taken is None:
        taken = names_of(options) if options else list(inspect.signature(make).parameters)

    @functools.wraps(function)
    def called(**values: Any) -> Any:
        own = {name: values.pop(name) for name in taken}
        return function(**{parameter: make(**own)}, **values)

    return add_options(called, options)  # type: ignore[return-value]


def split_values(
    arguments: Callable[..., _Arguments], options: type[DataclassInstance], values: dict[str, Any]
) -> _Arguments:
    """Return the values of a command. Fields of a library's options become the parameter `of_run`;
    the other values belong to the command."""
    return arguments(of_run=take_options(options, values), **values)


def take_options(options: Callable[..., _Arguments], values: dict[str, Any]) -> _Arguments:
    """Take the fields of a library's options out of the values of a command."""
    names = [name for name in inspect.signature(options).parameters if name in values]
    return options(**{name: values.pop(name) for name in names})


def add_options(function: Function, options: Sequence[_Option]) -> Function:
    """Add click options to a command, listed by `--help` in this order."""
    for option in reversed(options):
        function = option(function)
    return function


def names_of(options: Sequence[_Option]) -> list[str]:
    """Return the names of the parameters of click options."""
    made: Any = add_options(lambda: None, options)
    return [one.name for one in made.__click_params__]


def name_of(parameter: str) -> str:
    """Return the option of a parameter of the running command, or "-X KEY" for a setting."""
    options = click.get_current_context().command.params
    return next(one.opts[0] for one in options if one.name == parameter)


def given_options(names: Iterable[str]) -> list[str]:
    """Return the options of parameters of the running command that are on the command line."""
    source = click.get_current_context().get_parameter_source
    return [name_of(name) for name in names if source(name) is ParameterSource.COMMANDLINE]


def comma_separated(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    """Split an option's value into names. A click callback."""
    names = _names(value)
    if value is not None and not names:
        raise click.BadParameter("expected names separated by commas")
    return names or None


def some_of(allowed: Sequence[str]) -> Callable[..., tuple[str, ...]]:
    """Return a click callback that accepts any of these words, separated by commas."""

    def chosen(
        context: click.Context, parameter: click.Parameter, value: str | None
    ) -> tuple[str, ...]:
        names = _names(value)
        if unknown := [name for name in names if name not in allowed]:
            raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(allowed)}")
        return names

    return chosen


def pairs_option(*names: str, help: str, metavar: str = "KEY=VALUE", **more: Any) -> _Option:
    """Return a repeatable option of pairs; its value is a dict."""

    def parse(
        context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
    ) -> dict[str, str]:
        return key_values(given, parameter.opts[0], metavar)

    return click.option(*names, metavar=metavar, multiple=True, callback=parse, help=help, **more)


def _names(value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


# The shell completes a path. The readers report missing and unreadable files.
FILE = click.Path()
OUTPUT_FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)  # "-": stdout
COUNT, POSITIVE = click.IntRange(min=0), click.IntRange(min=1)
PORT = click.IntRange(0, 65535)
SECONDS = click.FloatRange(min=0, min_open=True)
CLOCKS = ("ns", "us", "ms", "s")  # units of a runtime's clock, unless it counts cycles


def file_option(*names: str, metavar: str = "FILE", help: str, **more: Any) -> _Option:
    """Return an option for a file to read. A second file is an error unless the option is
    `multiple`: click would ignore the first one silently."""
    if not more.get("multiple"):
        more = {**more, "multiple": True, "callback": _the_only_one}
    return click.option(*names, type=FILE, metavar=metavar, help=help, **more)


def _the_only_one(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Any:
    if len(values) > 1:
        raise UsageError(f"{option.opts[0]} is given twice: {values[0]} and {values[1]}")
    return values[0] if values else None


def files_option(*names: str, metavar: str, help: str) -> _Option:
    """Return an option for several files that a command also takes as arguments. It is hidden."""
    return file_option(*names, metavar=metavar, help=help, hidden=True, multiple=True)


def choice_option(name: str, words: Iterable[str], help: str, **more: Any) -> _Option:
    """Return an option for one of some words; the first is the default."""
    first, *others = words
    return click.option(name, type=click.Choice((first, *others)), default=first, help=help, **more)


def chosen_setting(name: str, words: Iterable[str], help: str) -> _Option:
    """Return a setting that is one of some words; the first is the default."""
    return choice_option(f"--{name}", words, help, cls=Setting)


peaks_option = file_option(
    "--peaks",
    cls=Setting,
    metavar="JSON",
    help="The calibration of the machine, from etscope calibrate. It adds the share of the peak "
    "and the limit of each operator. Default: the calibration of the run's machine, if kept here.",
)
by_option = click.option(
    "--by",
    metavar="NAME",
    help="Group by op, type, module, source, delegate or bound. bound: the limit of an operator "
    "(compute, memory or overhead). Or by a column of a backend, such as compute_unit.",
)
columns_option = click.option(
    "--columns",
    metavar="NAME,…",
    callback=comma_separated,
    help="Show these columns, in this order.",
)
data_option = file_option(
    "--data", metavar="PTD", hidden=True, help="The program's external weights."
)
etrecord_option = file_option(
    "--etrecord", "-r", metavar="ETRECORD", hidden=True, help="The ETRecord of the export."
)
force_option = click.option(
    "--force", is_flag=True, hidden=True, help="Continue although files do not belong together."
)


inputs_option = file_option(
    "--inputs", "-i", help="File with the inputs: .pt, .npz, .npy or .safetensors."
)
library_option = file_option(
    "--libraries",
    cls=Setting,
    multiple=True,
    metavar="SO",
    help="Load a shared library of operators or backends. Repeatable.",
)
limit_option = click.option(
    "--limit",
    "-n",
    type=COUNT,
    metavar="N",
    callback=lambda ctx, param, value: sys.maxsize if value == 0 else value,
    help="Show at most N rows; 0 shows all.",
)
metric_option = click.option("--metric", default="sqnr", metavar="NAME", help="Error metric.")
program_option = file_option(
    "--program", "-p", metavar="PTE", hidden=True, help="The .pte or .bpte that ran."
)
runner_option = chosen_setting(
    "runner",
    RUNNERS,
    "Runner of the program. auto: python, unless only native supports the options.",
)
select_option = click.option(
    "--select", "-s", metavar="SELECTOR", help="Show only matching rows: 'op:conv* and share>5%'."
)
source_unit_option = click.option(
    "--source-unit",
    type=click.Choice((*CLOCKS, "cycles")),
    default="ns",
    hidden=True,
    help="Unit of the runtime's clock.",
)
threads_option = click.option(
    "--threads", type=POSITIVE, metavar="N", help="Number of runtime threads."
)
profiling_level_option = chosen_setting(
    "profiling_level", ("all", "method"), "Time all events, or only whole methods."
)
timeout_option = setting(
    "timeout", type=SECONDS, metavar="SECONDS", help="Time limit for each run."
)
unit_option = setting("unit", type=click.Choice(UNITS), help="Unit of the times shown.")
with_option = click.option(
    "--with",
    "backend_files",
    multiple=True,
    metavar="[CALL=]FILE",
    help="Show the file of a vendor's profiler with its delegate call. Formats: Chrome trace, QNN "
    "optrace and QHAS, Vela CSV, Arm debug.json and PMU log, WebGPU times. CALL: the "
    "instruction, METHOD:INSTRUCTION or the backend. Repeatable.",
)


def debug_buffer_option(help: str = "The file of logged tensors.") -> _Option:
    """Return the option `--debug-buffer`."""
    return file_option("--debug-buffer", "-b", metavar="BIN", hidden=True, help=help)


def path_option(*names: str, metavar: str = "FILE", help: str, **more: Any) -> _Option:
    """Return an option for a file to write (metavar "FILE") or a folder ("DIR")."""
    is_folder = metavar == "DIR"
    kind = click.Path(file_okay=not is_folder, dir_okay=is_folder, path_type=Path)
    return click.option(*names, type=kind, metavar=metavar, help=help, **more)


def output_options(
    function: Function,
    *,
    formats: Collection[str] = tuple(TABLE_VIEWS),
    to_file: bool = True,
    help: str = "Format. Default: from the suffix of --output, else table.",
) -> Function:
    """Add `--format` and `-o/--output`: the parameter `output`, an `OutputOptions`.

    to_file: False for commands that write their tables to standard output only.
    """
    file = click.option(
        "--output",
        "-o",
        type=OUTPUT_FILE,
        metavar="FILE",
        help="Write to FILE. - is standard output.",
    )
    options = (
        click.option(
            "--format",
            "-f",
            type=click.Choice(list(formats)),
            help=help if to_file else "Format. Default: table.",
        ),
        *((file,) if to_file else ()),
    )

    def coloured(**values: Any) -> OutputOptions:
        session = click.get_current_context().obj  # --color goes before the verb
        return OutputOptions(**values, color=getattr(session, "color", "auto"))

    return as_one_parameter(function, "output", coloured, options)


def view_options(function: Function) -> Function:
    """Add `--by --select --columns --sort --limit --work`, and the settings unit and peaks. With
    the command's `--method` they are the parameter `view`.
    """
    work = click.option(
        "--work",
        is_flag=True,
        help="Show the FLOPs, bytes and rates of each row. With a calibration: also the share of "
        "the peak, and the limit.",
    )
    options = (by_option, select_option, *TABLE_OPTIONS, work, peaks_option)
    names = ("method", *names_of(options))
    return as_one_parameter(function, "view", ViewOptions, options, names)


def as_view(*names: str) -> Callable[[Function], Function]:
    """Pass these options of a command as one parameter: `view`, a `ViewOptions`."""
    return lambda function: as_one_parameter(function, "view", ViewOptions, (), names)


TABLE_OPTIONS = (
    columns_option,
    click.option("--sort", metavar="NAME", help="Sort by this column; -NAME: largest first."),
    limit_option,
    unit_option,
)


@dataclass(frozen=True, slots=True)
class ErrorOptions:
    """Values of `error_options`: how values are compared with a reference.

    metric: its name. tolerance: None for the default of the data type. graph: one of `GRAPHS`.
    """

    metric: str
    tolerance: float | None
    graph: str

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `evaluate` and `numerics_of`."""
        return {
            "metric": self.metric,
            "tolerance": self.tolerance,
            "reference_graph": GRAPHS[self.graph],
        }


def error_options(function: Function) -> Function:
    """Add `--metric --tolerance`, and the setting graph: the parameter `errors`."""
    options = (
        metric_option,
        click.option(
            "--tolerance",
            type=float,
            metavar="X",
            help="Worst acceptable error of an operator. Default: by data type.",
        ),
        chosen_setting(
            "graph",
            GRAPHS,
            "Reference graph: the edge program before lowering, or the program of torch.export.",
        ),
    )
    return as_one_parameter(function, "errors", ErrorOptions, options)


_CONFIG = "config.json"  # of a transformers model


def names_model(text: str) -> bool:
    """True if a name means a model rather than a file or a folder of a run."""
    path = Path(text)
    if path.suffix in (".py", ".pt2") or (":" in text and not path.exists()):
        return True
    config = path / _CONFIG if path.is_dir() else path
    return config.name == _CONFIG and config.is_file()


@dataclass(frozen=True)
class GivenFiles:
    """The files of a run or of a program, as the command line names them."""

    given: tuple[str, ...] = ()
    etrecord: str | None = None
    debug_buffer: str | None = None
    program: str | None = None
    data: str | None = None
    force: bool = False
    source_unit: str = "ns"

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of functions that open a program."""
        return {"data": self.data, "etrecord": self.etrecord, "verify": not self.force}

    @functools.cached_property
    def files(self) -> RunFiles:
        """The files of the run. Raises the errors of `run_of_files`, and `UsageError` for a
        MODEL.
        """
        from etscope.capture.files import run_of_files

        for name in filter(names_model, self.given):
            raise UsageError(
                f"{name} is a MODEL, not a run",
                hint=f"record a run first: etscope run {name} --save ran; or, for etscope explain, "
                "add --try",
            )
        return run_of_files(self.given, self._of_options)

    @functools.cached_property
    def of_graphs(self) -> RunFiles:
        """The files of graphs, and of the run if there is a dump.

        Raises the errors of `run_of_files`, `UsageError` without a record and a program.
        """
        from etscope.capture.files import run_of_files

        files = run_of_files(self.given, self._of_options, needs_dump=False)
        if files.record is None and files.program is None:
            raise UsageError(
                f"{files.name} has neither an ETRecord nor a program",
                hint="graphs are in an ETRecord or a program: name one, too",
            )
        return files

    @property
    def _of_options(self) -> RunFiles:
        from etscope.capture.files import RunFiles

        return RunFiles.given(
            record=self.etrecord, debug_buffer=self.debug_buffer, program=self.program
        )

    @property
    def model(self) -> str:
        """The MODEL that was given in place of a run. Raises `UsageError` for several."""
        if len(self.given) > 1:
            raise UsageError(
                f"{len(self.given)} MODELs: {' and '.join(self.given)}", hint="name one"
            )
        return self.given[0]

    def open(self, *, with_values: bool = False) -> Trace:
        """Open the run; see `RunFiles.open`."""
        return self.files.open(force=self.force, with_values=with_values)

    def open_graphs(self) -> Capture:
        """Open `of_graphs`, with the logged values if their file is named."""
        files = self.of_graphs
        if files.dump is None or self.debug_buffer is None:
            return files.capture(force=self.force)
        return files.open(force=self.force, with_values=True)

    @property
    def named(self) -> Files:
        """The files as arguments of the next command."""
        options = (self.etrecord, self.debug_buffer, self.program)
        return self.files.named([*self.given, *(path for path in options if path is not None)])

    def findings(self, trace: Trace) -> Findings:
        """Return a function that returns the findings of a profile of the trace."""
        files = self.named
        has_values = self.files.values is not None or trace.refers_to_tensors

        def findings(profile: MethodProfile, scale: Scale) -> tuple[dict[str, Any], ...]:
            from etscope.analysis.insights.facts import Facts, Level
            from etscope.analysis.insights.insights import insights

            facts = Facts(trace, profile, scale, has_values=has_values)
            return tuple(found.plain(files) for found in insights(facts, Level.SUMMARY))

        return findings


def run_files_options(function: Function, *, metavar: str = "[RUN]...") -> Function:
    """Add RUN… and the options of its files: the parameter `files`, a `GivenFiles`."""
    options = (
        click.argument("given", nargs=-1, type=FILE, metavar=metavar, callback=kept_runs(1)),
        etrecord_option,
        debug_buffer_option(),
        program_option,
        force_option,
        source_unit_option,
    )
    return as_one_parameter(function, "files", GivenFiles, options)


def program_files_options(function: Function) -> Function:
    """Add the options of the files of a PROGRAM: the parameter `files`, a `GivenFiles`."""
    options = (data_option, etrecord_option, force_option)
    return as_one_parameter(function, "files", GivenFiles, options)


# Ends the details of each verb with a RUN.
ABOUT_RUN = (
    "\nRUN is a kept run (@0 is the last, @1 the one before; etscope runs lists them), the folder "
    "of a run, or its files in any order: ETDump, ETRecord, program and debug buffer. Default: the "
    "last run."
)


def with_folders_opened(paths: Sequence[str], *, buffers: bool) -> tuple[str, ...]:
    """Return the paths, with the files of a run instead of its folder. Other folders stay; their
    reader reports them. buffers: with debug buffers."""
    found: list[str] = []
    for path in paths:
        inside: list[Path] = []
        if Path(path).is_dir():
            from etscope.capture.files import files_inside

            with suppress(UsageError):
                inside = files_inside(path, buffers=buffers)
        found += map(str, inside) if inside else [path]
    return tuple(found)


def _calls(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str | None, range | None]:
    """Parse a phase, a range of calls, or both: decode, A..B or decode,A..B. A range includes both
    ends and may be open at one; a single number is one call."""
    phase: str | None = None
    calls: range | None = None
    for part in _names(value):
        if phase is None and re.fullmatch(r"[A-Za-z_]\w*", part):
            phase = part
            continue
        found = re.fullmatch(r"(\d{1,9})?(\.\.)?(\d{1,9})?", part)
        if calls is not None or found is None or (found[1] is None and found[3] is None):
            raise click.BadParameter(f"{part!r} is neither a phase nor a range A..B of calls")
        first = int(found[1] or 0)
        last = first if found[2] is None else None if found[3] is None else int(found[3])
        calls = range(first, ALL_CALLS if last is None else last + 1)
    return phase, calls


@dataclass(frozen=True, slots=True)
class ChosenCalls:
    """Values of `calls_options`: the calls of a language model to show."""

    calls: tuple[str | None, range | None]
    all_runs: bool = False

    def of(self, trace: Trace) -> Trace:
        """Return the trace of these calls. Raises as `Trace.only`."""
        if self.all_runs:
            trace = replace(trace, all_runs=True)
        return trace.only(self.calls[0], self._range(trace)) if self.is_given else trace

    @property
    def is_given(self) -> bool:
        """True if --calls is given."""
        return self.calls != (None, None)

    def run_of(self, trace: Trace) -> dict[str, Any]:
        """Return the arguments `method` and `run` for a diagnosis of the first of these calls with
        values; empty without --calls. Raises as `Trace.only` and `run_of_call`."""
        if not self.is_given:
            return {}
        from etscope.analysis.numerics.runs import run_of_call

        chosen = trace.calls_of_runs.chosen(self.calls[0], self._range(trace))
        return dict(zip(("method", "run"), run_of_call(trace, chosen), strict=True))

    def _range(self, trace: Trace) -> range | None:
        calls = self.calls[1]
        if calls is not None and calls.stop == ALL_CALLS:
            return range(calls.start, len(trace.calls_of_runs.run))
        return calls


# The end of an open range "A..".
ALL_CALLS = 1 << 62


all_runs_option = click.option(
    "--all-runs",
    is_flag=True,
    help="Include warm-up and disturbed runs.",
)


def calls_options(function: Function, *, statistics: bool = True) -> Function:
    """Add `--calls` and `--all-runs`: the parameter `calls`, a `ChosenCalls`.

    statistics: False leaves out `--all-runs`, for commands without statistics of runs.
    """
    options = (
        click.option(
            "--calls",
            metavar="PHASE|A..B",
            callback=_calls,
            help="Show these calls of a language model only: prefill, decode, or a range (5..20). "
            "Numbers start at 0. Open ranges (5..), one number and both (decode,5..20) are fine.",
        ),
        *((all_runs_option,) if statistics else ()),
    )
    return as_one_parameter(function, "calls", ChosenCalls, options)


def placed_files(trace: Trace, given: Sequence[str], source_unit: str) -> list[PlacedFile]:
    """Read the files of `--with`, each "FILE" or "CALL=FILE", and match them to their calls."""
    if not given:
        return []
    from etscope.analysis.backend_files.placement import place_files
    from etscope.cli.output.progress import progress

    with progress(f"reading {given[0]}"):
        return place_files(trace, read_given(given), TimeScale(source_unit))


def read_given(given: Sequence[str]) -> list[tuple[str | None, BackendFile]]:
    """Read the files of `--with`. A name with "=" that exists is a file."""
    from etscope.backends.registry.tool_files import read_backend_file

    found = []
    for text in given:
        call, mark, path = text.partition("=")
        is_file = not mark or Path(text).exists()
        found.append((None if is_file else call, read_backend_file(text if is_file else path)))
    return found


def read_inputs(trace: Trace, method: str, path: str) -> list[Any]:
    """Return the inputs of a run from a file, in the order of the method's inputs."""
    from etscope.run.inputs import file_inputs

    return file_inputs(path, trace.export, method)


def given_inputs(path: str | None) -> Callable[[Trace, str], list[Any]] | None:
    """Return the function that reads the file of `--inputs` for a method; None without one."""
    return None if path is None else lambda trace, method: read_inputs(trace, method, path)


def numerics_of_graphs(
    capture: Capture | None,
    inputs: Callable[[Trace, str], list[Any]] | None,
    bundle: BundledFile | None,
) -> list[Numerics]:
    """Return the numeric errors of each method that ran; none without a debug buffer.

    inputs: reads the inputs of a method's run. bundle: test cases with the inputs, otherwise.
    """
    from etscope.analysis.profile.trace import Trace

    if not isinstance(capture, Trace) or capture.debug_buffer is None:
        return []
    from etscope.cli.output.progress import progress
    from etscope.reporting.tensorboard import numerics_if_known
    from etscope.support.quiet import quiet

    given = None if inputs is None else functools.partial(inputs, capture)
    with progress("computing the reference"), quiet():
        return numerics_if_known(capture, given, bundle)


def show_address(address: str, open_it: bool) -> None:
    """Print the address of a started server. open_it: open a browser, too."""
    click.echo(address)
    click.echo("Ctrl-C stops it", err=True)
    if open_it:
        import webbrowser

        webbrowser.open(address)
