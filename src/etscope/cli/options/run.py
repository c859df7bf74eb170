"""Options of the verbs that run a program, and the tables and files of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    COUNT,
    POSITIVE,
    SECONDS,
    Function,
    as_one_parameter,
    choice_option,
    file_option,
    library_option,
    path_option,
    runner_option,
    some_of,
    threads_option,
)
from etscope.cli.options.kept_runs import NEXT, SAVE_OPTIONS, saved_run
from etscope.cli.output.tables import OutputOptions, ViewOptions

if TYPE_CHECKING:
    from etscope.model.table import Table
    from etscope.run import Run

__all__ = ["DEBUG_LEVELS"]

EVENTS, LATENCY, VERIFICATION = "events", "latency", "verification"
SHOWN = (EVENTS, LATENCY, VERIFICATION)
DEBUG_LEVELS = ("none", "program_outputs", "intermediate_outputs")


@dataclass(frozen=True, slots=True)
class RunArguments:
    """Values of `run_options`, by the names of the options."""

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
    memory: bool
    libraries: tuple[str, ...]
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
    no_save: bool
    inputs: tuple[str, ...]
    testset_index: int | None
    seed: int | None

    def check(self, output: OutputOptions) -> None:
        """Raise `UsageError` for options that contradict each other, before anything runs."""
        from etscope.errors import UsageError

        if not self.needs_trace and (self.debug_level != "none" or self.allocations):
            raise UsageError(
                "--debug-level and --allocations record in traced runs, and there is none",
                hint="add events to --show, or --save, or --etdump-out",
            )
        if self.memory and not self.keeps:
            raise UsageError("--memory is kept in the files of the run", hint="add --save DIR")
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
        if len(self.show) > 1 and not output.is_text:
            raise UsageError(
                "this format holds one table",
                hint="--show events, or latency, or verification; table and md hold several",
            )

    def check_pools(self) -> None:
        """Raise `UsageError` for options that have no effect on the search for pools."""
        from etscope.errors import UsageError

        given = {
            "--runner python": self.runner == "python",
            "--threads": self.threads is not None,
            "--debug-level": self.debug_level != "none",
            "--profiling-level": self.profiling_level != "all",
            "--delegate-filter": bool(self.delegate_filter),
            "--allocations": self.allocations,
            "--memory": self.memory,
            "--show": bool(self.show),
            "--etdump-out": self.etdump_out is not None,
            "--profile-out": self.profile_out is not None,
            "--debug-buffer-out": self.debug_buffer_out is not None,
            "--outputs-out": self.outputs_out is not None,
            "--save": self.save is not None,
        }
        wrong = [name for name, is_given in given.items() if is_given]
        if wrong:
            raise UsageError(f"--pools writes sizes only, and takes no {', '.join(wrong)}")
        if len(self.inputs) > 1:
            raise UsageError("--pools runs one call: give --inputs once")

    @property
    def needs_trace(self) -> bool:
        """True if a table or file that was asked for comes from a traced run."""
        files = (self.etdump_out, self.profile_out, self.debug_buffer_out, self.save)
        return not self.show or EVENTS in self.show or any(files)

    @property
    def keeps(self) -> bool:
        """True if the files of the run are kept: with a folder, and by default whenever it is
        traced."""
        from etscope.capture.kept_runs import KeptRuns

        if self.save is not None:
            return True
        return self.needs_trace and not self.no_save and not KeptRuns.is_off()

    @contextmanager
    def saved(self, name: str) -> Iterator[Path | None]:
        """Give the folder to save the run in, None if it is not kept; see `saved_run`."""
        with saved_run(self.save, not self.keeps, name, NEXT) as folder:
            yield folder

    def run(self, program: Any, inputs: Any = None, **more: Any) -> Run:
        """Run the program: a call for each file of inputs, one on `inputs` if the options name no
        file. `more` goes to `etscope.run.run`."""
        from etscope.run import Call, run

        return run(
            program,
            [Call(inputs=path) for path in self.inputs] or inputs,
            method=self.method,
            iterations=self.iterations,
            warmup=self.warmup,
            testset_index=self.testset_index,
            seed=self.seed,
            trace=self.needs_trace,
            debug_level=self.debug_level,
            debug_buffer_size=self.debug_buffer_size,
            grow=self.grow,
            traced_iterations=self.traced_iterations,
            separate=self.separate,
            profiling_level=self.profiling_level,
            delegate_filters=self.delegate_filter,
            allocations=self.allocations,
            memory=self.memory,
            threads=self.threads,
            libraries=self.libraries,
            runner=self.runner,
            timeout=self.timeout,
            **more,
        )

    def finish(
        self, run: Run, folder: Path | None, view: ViewOptions, output: OutputOptions
    ) -> int:
        """Write files and tables; return 1 if outputs of bundled test cases are not as expected.

        folder: to save the run in, if it is kept.
        """
        from etscope.errors import MissingDataError

        if run.is_traced and not run.forced:
            run.trace.verify()
        if folder is not None:
            run.save(folder)
        for path, write in (
            (self.profile_out, run.save_profile),
            (self.etdump_out, run.save_etdump),
            (self.debug_buffer_out, run.save_debug_buffer),
            (self.outputs_out, run.save_outputs),
        ):
            if path is not None:
                write(path)
                click.echo(f"wrote {path}", err=True)
        output.write_tables(self._tables(run, folder, view, output))
        try:
            return 0 if run.verify(self.rtol, self.atol).passed else 1
        except MissingDataError:
            return 0

    def _tables(
        self, run: Run, folder: Path | None, view: ViewOptions, output: OutputOptions
    ) -> list[Table]:
        """Return the tables of `--show`; by default all in a text, else the events."""
        from etscope.cli.output.first_findings import first_findings
        from etscope.cli.output.tables import select_columns
        from etscope.errors import MissingDataError

        is_text = output.is_text
        shown = self.show or (SHOWN if is_text else (EVENTS,))
        tables: list[Table] = []
        if LATENCY in shown:
            tables.append(run.latency_table())
        if EVENTS in shown:
            findings = first_findings(run, folder) if is_text else None
            events = view.tables(
                run.trace, findings=findings, for_programs=not is_text, most=output.most_rows
            )
            default = view.default_columns(events) if is_text else None
            tables += select_columns(events, view.columns, default)
        if VERIFICATION in shown:
            try:
                tables.append(run.verify(self.rtol, self.atol).table())
            except MissingDataError:
                if self.show:
                    raise
        return tables


_OPTIONS = (
    file_option(
        "--inputs",
        "-i",
        multiple=True,
        help="Inputs: .pt, .npz, .npy or .safetensors. Repeatable: a call for each, in one load "
        "of the program. Default: a bundled program's test cases, else the record's, else values "
        "generated from --seed.",
    ),
    click.option("--testset-index", type=COUNT, metavar="K", help="Run only test case K."),
    click.option(
        "--seed",
        type=COUNT,
        help="Seed of a MODEL's random weights, and of generated inputs. Default: 0.",
    ),
    click.option("--method", "-m", metavar="NAME", help="Method to run. Default: forward."),
    click.option(
        "--iterations", type=POSITIVE, metavar="N", default=20, help="Number of timed executions."
    ),
    click.option(
        "--warmup", type=COUNT, default=1, help="Number of untimed executions before them."
    ),
    threads_option,
    choice_option("--debug-level", DEBUG_LEVELS, "Values to record, in a run of their own."),
    click.option(
        "--traced-iterations",
        type=POSITIVE,
        metavar="N",
        help="Executions that record values. Default: 1.",
    ),
    click.option(
        "--debug-buffer-size",
        type=POSITIVE,
        metavar="BYTES",
        help="Size of the debug buffer. Default: from the memory plan.",
    ),
    click.option(
        "--grow/--no-grow",
        default=True,
        help="Run again with a larger debug buffer if it was too small.",
    ),
    click.option(
        "--separate/--no-separate",
        default=True,
        help="Measure latency, times and values in separate runs.",
    ),
    choice_option(
        "--profiling-level", ("all", "method"), "Time each event, or whole methods only."
    ),
    click.option(
        "--delegate-filter",
        multiple=True,
        metavar="REGEX",
        help="Record only the delegates' values with a matching name. Repeatable.",
    ),
    click.option("--allocations", is_flag=True, help="Record the allocators' allocations."),
    click.option(
        "--memory",
        is_flag=True,
        help="Measure who takes the process's memory, in a run of its own; with --save. Shown by "
        "etscope info --memory DIR.",
    ),
    library_option,
    runner_option,
    click.option("--timeout", type=SECONDS, metavar="SECONDS", help="Time limit of each run."),
    click.option(
        "--rtol",
        type=click.FloatRange(min=0),
        metavar="X",
        help="Tolerance of expected outputs: |output - expected| <= atol + rtol * |expected|. "
        "Default: 1e-3; float16 1e-2, bfloat16 5e-2.",
    ),
    click.option(
        "--atol",
        type=click.FloatRange(min=0),
        metavar="X",
        help="See --rtol. Default: 1e-5; float16 1e-3, bfloat16 1e-2.",
    ),
    click.option(
        "--show",
        callback=some_of(SHOWN),
        metavar="TABLE,…",
        help="events, latency, verification. Default: all that there are; events in formats for "
        "programs.",
    ),
    path_option("--etdump-out", help="Write the ETDump, with values if a debug level is set."),
    path_option("--profile-out", help="Write the ETDump that holds only times."),
    path_option("--debug-buffer-out", help="Write the debug buffer."),
    path_option("--outputs-out", help="Write outputs: .npz, .safetensors."),
    *SAVE_OPTIONS,
)


def run_options(function: Function) -> Function:
    """Add the options of a run: the parameter `options`, a `RunArguments`."""
    return as_one_parameter(function, "options", RunArguments, _OPTIONS)
