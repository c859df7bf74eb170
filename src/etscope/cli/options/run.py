"""What the verbs that run a program are told about it, and the run that they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from etscope.cli.options.common import gathered, some_of
from etscope.cli.options.files import FILE

if TYPE_CHECKING:
    from etscope.analysis.comparison.verification import Verification
    from etscope.cli.output.profiles import EventsView
    from etscope.model.table import Table
    from etscope.run import Run

__all__ = ["RunOptions", "run_options"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

EVENTS, LATENCY, VERIFICATION = "events", "latency", "verification"
SHOWN = (EVENTS, LATENCY, VERIFICATION)
DEBUG_LEVELS = ("none", "program_outputs", "intermediate_outputs")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options that `run_options` adds, by their names."""

    method: str | None
    iterations: int
    warmup: int
    threads: int | None
    debug_level: str
    traced_iterations: int | None
    debug_buffer_size: int | None
    grow: bool
    separate: bool
    profiling_level: str
    delegate_filter: tuple[str, ...]
    allocations: bool
    library: tuple[str, ...]
    runner: str
    timeout: float | None
    rtol: float | None
    atol: float | None
    show: tuple[str, ...]
    etdump_out: Path | None
    profile_out: Path | None
    debug_buffer_out: Path | None
    outputs_out: Path | None
    save: Path | None
    inputs: str | None = None
    testset_index: int | None = None
    seed: int = 0

    def run(self, program: Any, inputs: Any = None, **more: Any) -> Run:
        """Run the program as the options say; `inputs` are those for when the options name none.
        `more` goes to `etscope.run.run`."""
        from etscope.run import run

        return run(
            program,
            inputs if self.inputs is None else self.inputs,
            method=self.method,
            iterations=self.iterations,
            warmup=self.warmup,
            testset_index=self.testset_index,
            seed=self.seed,
            trace=self.traces,
            debug_level=self.debug_level,
            debug_buffer_size=self.debug_buffer_size,
            grow=self.grow,
            traced_iterations=self.traced_iterations,
            separate=self.separate,
            profiling_level=self.profiling_level,
            delegate_filters=self.delegate_filter,
            allocations=self.allocations,
            threads=self.threads,
            libraries=self.library,
            runner=self.runner,
            timeout=self.timeout,
            **more,
        )

    @property
    def traces(self) -> bool:
        """Whether anything is asked for that a trace is needed for."""
        files = (self.etdump_out, self.profile_out, self.debug_buffer_out, self.save)
        return not self.show or EVENTS in self.show or any(files)

    def check(self, people: bool) -> None:
        """Raise `UsageError` for options that contradict each other, before anything runs."""
        from etscope.errors import UsageError

        if not self.traces and (self.debug_level != "none" or self.allocations):
            raise UsageError(
                "--debug-level and --allocations record in traced runs, and none is asked for",
                hint="add events to --show, or --save, or --etdump-out",
            )
        if self.debug_buffer_out is not None and self.debug_level == "none":
            raise UsageError(
                "--debug-buffer-out needs values to write",
                hint="add --debug-level intermediate_outputs (or program_outputs)",
            )
        for path in (self.etdump_out, self.profile_out, self.debug_buffer_out, self.outputs_out):
            if path is not None and not path.parent.is_dir():
                raise UsageError(f"cannot write {path}: there is no folder {path.parent}")
        if self.outputs_out is not None and self.outputs_out.suffix not in (".npz", ".safetensors"):
            raise UsageError(f"outputs are written as .npz or .safetensors, not {self.outputs_out}")
        if len(self.show) > 1 and not people:
            raise UsageError(
                "this format takes one table",
                hint="--show events, or latency, or verification; several go with table and md",
            )

    def shown(self, run: Run, view: EventsView, people: bool) -> list[Table]:
        """The tables to show: those that were asked for, else all to people and the events to
        programs."""
        from etscope.errors import MissingDataError

        asked = self.show or (SHOWN if people else (EVENTS,))
        tables: list[Table] = []
        if LATENCY in asked:
            tables.append(run.latency_table())
        if EVENTS in asked:
            tables += view.tables(run.trace, people)
        if VERIFICATION in asked:
            try:
                tables.append(self.verification(run).table())
            except MissingDataError:
                if self.show:
                    raise
        return tables

    def verification(self, run: Run) -> Verification:
        return run.verify(self.rtol, self.atol)

    def write_files(self, run: Run) -> None:
        """Write the files that were asked for, and name them on stderr."""
        written = list(run.save(self.save)) if self.save is not None else []
        for path, write in (
            (self.profile_out, run.save_profile),
            (self.etdump_out, run.save_etdump),
            (self.debug_buffer_out, run.save_debug_buffer),
            (self.outputs_out, run.save_outputs),
        ):
            if path is not None:
                write(path)
                written.append(path)
        for path in written:
            click.echo(f"wrote {path}", err=True)

    def exit_code(self, run: Run) -> int:
        """1 when outputs of bundled test cases are not as expected."""
        from etscope.errors import MissingDataError

        try:
            return 0 if self.verification(run).passed else 1
        except MissingDataError:
            return 0


_PLACE = click.Path(dir_okay=False, path_type=Path)

_INPUT_OPTIONS = (
    click.option(
        "--inputs",
        "-i",
        type=FILE,
        metavar="FILE",
        help="Inputs: .pt, .npz, .npy or .safetensors. Default: a bundled program's cases, else "
        "numbers made of --seed.",
    ),
    click.option(
        "--testset-index", type=click.IntRange(min=0), metavar="K", help="Run this test case only."
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Of generated inputs."),
)

_OPTIONS = (
    click.option("--method", "-m", metavar="NAME", help="Method to run. Default: forward."),
    click.option(
        "--iterations",
        type=click.IntRange(min=1),
        default=10,
        show_default=True,
        help="Executions that count.",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(min=0),
        default=1,
        show_default=True,
        help="Executions before them that do not.",
    ),
    click.option(
        "--threads", type=click.IntRange(min=1), metavar="N", help="Of the runtime's thread pool."
    ),
    click.option(
        "--debug-level",
        type=click.Choice(DEBUG_LEVELS),
        default="none",
        show_default=True,
        help="Which values to record, in a run of its own.",
    ),
    click.option(
        "--traced-iterations",
        type=click.IntRange(min=1),
        metavar="N",
        help="Executions that record values. Default: 1.",
    ),
    click.option(
        "--debug-buffer-size",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="Default: what the memory plan needs.",
    ),
    click.option(
        "--grow/--no-grow",
        default=True,
        show_default=True,
        help="Run again with a larger debug buffer if it was too small.",
    ),
    click.option(
        "--separate/--no-separate",
        default=True,
        show_default=True,
        help="Measure latency, times and values in runs of their own.",
    ),
    click.option(
        "--profiling-level",
        type=click.Choice(("all", "method")),
        default="all",
        show_default=True,
        help="Time each event, or whole methods only.",
    ),
    click.option(
        "--delegate-filter",
        multiple=True,
        metavar="REGEX",
        help="Of values inside delegates, record those of a matching name. Repeatable.",
    ),
    click.option("--allocations", is_flag=True, help="Record what allocators hand out."),
    click.option(
        "--library",
        multiple=True,
        type=FILE,
        metavar="SO",
        help="Load a library of operators or backends first. Repeatable.",
    ),
    click.option(
        "--runner",
        type=click.Choice(("auto", "python", "native")),
        default="auto",
        show_default=True,
        help="auto: python, unless only native can do it.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Of each run.",
    ),
    click.option(
        "--rtol",
        type=click.FloatRange(min=0),
        metavar="X",
        help="Of expected outputs, as atol in |output - expected| <= atol + rtol * |expected|. "
        "Default: 1e-3; float16 1e-2, bfloat16 5e-2.",
    ),
    click.option(
        "--atol", type=click.FloatRange(min=0), metavar="X", help="Default: 1e-5; 1e-3; 1e-2."
    ),
    click.option(
        "--show",
        callback=some_of(SHOWN),
        metavar="WHAT,…",
        help="events, latency, verification. Default: all that there is; in forms for programs "
        "the events.",
    ),
    click.option("--etdump-out", type=_PLACE, metavar="FILE", help="Write the ETDump, with the "
                 "values if a debug level is set."),
    click.option("--profile-out", type=_PLACE, metavar="FILE", help="Write the ETDump that has "
                 "times only."),
    click.option(
        "--debug-buffer-out", type=_PLACE, metavar="FILE", help="Write the debug buffer."
    ),
    click.option(
        "--outputs-out", type=_PLACE, metavar="FILE", help="Write outputs: .npz, .safetensors."
    ),
    click.option(
        "--save",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Write all files of the run, and run.json, into DIR.",
    ),
)  # fmt: skip


def run_options(*, inputs: bool = True) -> Callable[[_Function], _Function]:
    """Add the options of a run, with those that name its inputs or without; the function gets them
    as one parameter, `options`."""

    own = set() if inputs else {"inputs", "testset_index", "seed"}
    names = {field.name for field in fields(RunOptions)} - own
    options = (*(_INPUT_OPTIONS if inputs else ()), *_OPTIONS)
    return lambda function: gathered(
        function, options, names=names, parameter="options", make=RunOptions
    )
