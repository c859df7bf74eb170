"""Options of the verbs that run a program, and the tables and files of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    COUNT,
    POSITIVE,
    Function,
    as_one_parameter,
    choice_option,
    library_option,
    profiling_level_option,
    runner_option,
    some_of,
    split_values,
    threads_option,
    timeout_option,
)
from etscope.cli.options.export import inputs_or_types_option
from etscope.cli.options.kept_runs import NEXT, SAVE_OPTIONS, saved_run
from etscope.cli.output.tables import OutputOptions, ViewOptions
from etscope.cli.settings import setting, switch

if TYPE_CHECKING:
    from etscope.analysis.profile.profile import MethodProfile
    from etscope.analysis.profile.scale import Scale
    from etscope.cli.output.tables import Findings
    from etscope.model.finding import Finding
    from etscope.model.table import Table
    from etscope.run import Run, RunOptions


__all__ = ["DEBUG_LEVELS"]

EVENTS, LATENCY, VERIFICATION = "events", "latency", "verification"
SHOWN = (EVENTS, LATENCY, VERIFICATION)
DEBUG_LEVELS = ("none", "program_outputs", "intermediate_outputs")


@dataclass(frozen=True, slots=True)
class RunArguments:
    """Values of `run_options`: those of `etscope.run.run`, and those of the command alone."""

    of_run: RunOptions
    inputs: tuple[str, ...]
    show: tuple[str, ...]
    save: Path | None
    no_save: bool
    rtol: float | None
    atol: float | None

    def check(self, output: OutputOptions) -> None:
        """Raise `UsageError` for options that contradict each other, before anything runs."""
        from etscope.errors import UsageError

        if not self.needs_trace and (self.of_run.debug_level != "none" or self.of_run.allocations):
            raise UsageError(
                "--debug-level and allocations record in traced runs, and there is none",
                hint="add events to --show, or --save",
            )
        if self.of_run.memory and not self.keeps:
            raise UsageError(
                "--memory needs the files of the run, which are not kept", hint="add --save DIR"
            )
        if len(self.show) > 1 and not output.is_text:
            raise UsageError(
                "this format holds one table",
                hint="choose one of --show events, latency or verification, or a format with "
                "several tables: table, md",
            )

    def check_pools(self) -> None:
        """Raise `UsageError` for options that have no effect on the search for pools."""
        from etscope.errors import UsageError

        given = {
            "-X runner=python": self.of_run.runner == "python",
            "--threads": self.of_run.threads is not None,
            "--debug-level": self.of_run.debug_level != "none",
            "-X profiling_level": self.of_run.profiling_level != "all",
            "-X delegate_filters": bool(self.of_run.delegate_filters),
            "-X allocations": self.of_run.allocations,
            "--memory": self.of_run.memory,
            "--show": bool(self.show),
            "--save": self.save is not None,
        }
        wrong = [name for name, is_given in given.items() if is_given]
        if wrong:
            raise UsageError(f"--pools writes sizes only, and takes no {', '.join(wrong)}")
        if len(self.inputs) > 1:
            raise UsageError("--pools runs one call: give --inputs once")

    @property
    def needs_trace(self) -> bool:
        """Return True if a requested table or file needs a traced run."""
        return not self.show or EVENTS in self.show or self.save is not None

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

        calls = [Call(inputs=path) for path in self.inputs] or inputs
        return run(program, calls, options=self.of_run, trace=self.needs_trace, **more)

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
        output.write_tables(self._tables(run, folder, view, output))
        try:
            return 0 if run.verify(self.rtol, self.atol).passed else 1
        except MissingDataError:
            return 0

    def _tables(
        self, run: Run, folder: Path | None, view: ViewOptions, output: OutputOptions
    ) -> list[Table]:
        """Return the tables of `--show`; by default all in a text, else the events."""
        from etscope.cli.output.tables import select_columns
        from etscope.errors import MissingDataError

        is_text = output.is_text
        shown = self.show or (SHOWN if is_text else (EVENTS,))
        tables: list[Table] = []
        if LATENCY in shown:
            tables.append(run.latency_table())
        if EVENTS in shown:
            findings = _first_findings(run, folder) if is_text else None
            events = view.tables(
                run.trace, findings=findings, for_programs=not is_text, most=output.most_rows
            )
            default = view.default_columns(events) if is_text else None
            tables += select_columns(events, None, default)
        if VERIFICATION in shown:
            try:
                tables.append(run.verify(self.rtol, self.atol).table())
            except MissingDataError:
                if self.show:
                    raise
        return tables


_OPTIONS = (
    inputs_or_types_option,
    click.option("--method", "-m", metavar="NAME", help="Method to run. Default: forward."),
    click.option(
        "--iterations", type=POSITIVE, metavar="N", default=20, help="Number of timed executions."
    ),
    click.option(
        "--warmup",
        type=COUNT,
        default=1,
        help="Number of untimed executions before the timed ones.",
    ),
    threads_option,
    choice_option("--debug-level", DEBUG_LEVELS, "Values to record, in a separate run."),
    click.option(
        "--memory",
        is_flag=True,
        help="Measure the memory of the process by owner, in a separate run; with --save. "
        "etscope info --memory DIR shows it.",
    ),
    click.option(
        "--show",
        callback=some_of(SHOWN),
        metavar="TABLE,…",
        help="Tables: events, latency, verification. Default: all that exist; in formats for "
        "programs only events.",
    ),
    *SAVE_OPTIONS,
    setting("testset_index", type=COUNT, metavar="K", help="Run only test case K."),
    setting(
        "seed",
        type=COUNT,
        help="Seed of a MODEL's random weights, and of generated inputs. Default: 0.",
    ),
    setting(
        "traced_iterations",
        type=POSITIVE,
        metavar="N",
        help="Number of executions that record values. Default: 1.",
    ),
    setting(
        "debug_buffer_size",
        type=POSITIVE,
        metavar="BYTES",
        help="Size of the debug buffer. Default: from the memory plan.",
    ),
    switch("grow", True, "Run again with a larger debug buffer if it was too small."),
    switch("separate", True, "Measure latency, times and values in separate runs."),
    profiling_level_option,
    setting(
        "delegate_filters",
        multiple=True,
        metavar="REGEX",
        help="Record only the delegates' values with a matching name. Repeatable.",
    ),
    switch("allocations", False, "Record the allocators' allocations."),
    library_option,
    runner_option,
    timeout_option,
    setting(
        "rtol",
        type=click.FloatRange(min=0),
        metavar="X",
        help="Tolerance of expected outputs: |output - expected| <= atol + rtol * |expected|. "
        "Default: 1e-3; float16 1e-2, bfloat16 5e-2.",
    ),
    setting(
        "atol",
        type=click.FloatRange(min=0),
        metavar="X",
        help="See rtol. Default: 1e-5; float16 1e-3, bfloat16 1e-2.",
    ),
)


def run_options(function: Function) -> Function:
    """Add the options of a run: the parameter `options`, a `RunArguments`."""
    return as_one_parameter(function, "options", _arguments, _OPTIONS)


def _arguments(**values: Any) -> RunArguments:
    from etscope.run import RunOptions

    return split_values(RunArguments, RunOptions, values)


_MOST_FINDINGS = 3  # a run's output should fit a screen; explain shows all


def first_of(found: Sequence[Finding]) -> list[Finding]:
    """Return the first findings about the model, and those about its state, without findings about
    a busy machine."""
    from etscope.analysis.faults.state import STATE_NOTE

    kept = [one for one in found if one.kind != "unsteady"]
    return kept[:_MOST_FINDINGS] + [x for x in kept[_MOST_FINDINGS:] if x.kind == STATE_NOTE]


def _first_findings(run: Run, folder: Path | None) -> Findings:
    """Return the function that returns the first findings of a profile, each with one remedy.

    folder: the folder of a kept run.
    """
    from etscope.analysis.insights.facts import Facts
    from etscope.analysis.insights.insights import insights
    from etscope.analysis.work.roofline import choose_calibration
    from etscope.capture.files import RunFiles
    from etscope.formats.run_json import RUN_ETDP
    from etscope.model.finding import Files

    # From the saved files, so that `etscope explain` finds the same.
    trace = run.trace
    if folder is not None:
        trace = RunFiles(dump=folder / RUN_ETDP).with_saved().open(force=run.forced)
    calibration = choose_calibration(None, trace.saved_run)

    def findings(profile: MethodProfile, scale: Scale) -> tuple[dict[str, Any], ...]:
        found = insights(Facts(trace, profile, scale, calibration))
        short = [
            replace(
                one,
                command=(),
                explanation=replace(
                    one.explanation, evidence=(), sites=(), remedies=one.explanation.remedies[:1]
                ),
            )
            for one in first_of(found)
            if one.explanation is not None
        ]
        return tuple(one.plain(Files()) for one in short)

    return findings
