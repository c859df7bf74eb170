"""`run()`: from a program to its outputs, its latency, an ETDump and a debug buffer."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from etscope.errors import MissingDataError, MissingFileError, UsageError
from etscope.formats.bytes.source import PathLike
from etscope.formats.program.bpte import BundledFile
from etscope.model.exported_graph import record_input_names
from etscope.run._outcome import LATENCY, PROFILE, VALUES, CallRun, Run
from etscope.run._runner_host import HERE, NATIVE, Place
from etscope.run.execute import AUTO, RUNNERS, Executed, Folder, How, chosen_runner, execute
from etscope.run.inputs import method_inputs
from etscope.run.job import ALL_EVENTS, DEBUG_LEVELS, NONE, PROFILING_LEVELS, Job, JobCall
from etscope.run.program import Opened, open_program

# From what a caller asks for to the executions of a job.


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One method to execute on one set of inputs; what is None is as `run()` has it.

    testset_index: the bundled test case whose inputs are taken.
    """

    method: str | None = None
    inputs: Any = None
    iterations: int | None = None
    warmup: int | None = None
    testset_index: int | None = None


def job_calls(inputs: Any, default: Call, opened: Opened, seed: int) -> tuple[JobCall, ...]:
    """The calls of a job: of `inputs` alone, or of each `Call` in it, with the rest of `default`.

    Raises `MissingDataError` when nothing would be run.
    """
    wanted = _wanted_calls(inputs, default)
    calls = tuple(call for one in wanted for call in _resolved(one, opened, seed))
    if not calls:
        raise MissingDataError(
            "the bundled program has no test cases", hint="give inputs (inputs=, --inputs)"
        )
    return calls


def _wanted_calls(inputs: Any, default: Call) -> list[Call]:
    if isinstance(inputs, Call):
        inputs = [inputs]
    is_list = isinstance(inputs, (list, tuple))
    if not is_list or not any(isinstance(one, Call) for one in inputs):
        return [replace(default, inputs=inputs)]
    if not all(isinstance(one, Call) for one in inputs):
        raise UsageError("a list of calls has something else in it", hint="give Call objects only")
    return [
        Call(
            method=default.method if call.method is None else call.method,
            inputs=call.inputs,
            iterations=default.iterations if call.iterations is None else call.iterations,
            warmup=default.warmup if call.warmup is None else call.warmup,
            testset_index=default.testset_index
            if call.testset_index is None
            else call.testset_index,
        )
        for call in inputs
    ]


def _resolved(call: Call, opened: Opened, seed: int) -> Iterable[JobCall]:
    """The executions that a call asks for: one, or one for each test case of a bundle."""
    iterations, warmup = call.iterations or 0, call.warmup or 0
    if iterations < 1 or warmup < 0:
        raise UsageError("at least one iteration must run, and warm-up cannot be negative")
    if call.inputs is None and opened.bundle is not None:
        yield from _cases(call, opened, opened.bundle, iterations, warmup)
        return
    if call.testset_index is not None:
        raise UsageError(
            "a test case and inputs exclude each other"
            if call.inputs is not None
            else "a test case can be chosen of a bundled program only (.bpte)"
        )
    method = opened.method_name(call.method)
    names = None if opened.record is None else record_input_names(opened.record, method)
    values = method_inputs(opened.program, method, call.inputs, seed=seed, input_names=names)
    yield JobCall(method, values, iterations, warmup)


def _cases(
    call: Call, opened: Opened, bundle: BundledFile, iterations: int, warmup: int
) -> Iterable[JobCall]:
    """The test cases of a bundle: of the method that is named, or of all that have some."""
    suites = [bundle.suite(opened.method_name(call.method))] if call.method else bundle.suites
    for suite in suites:
        indices: Iterable[int] = range(len(suite.cases))
        if call.testset_index is not None:
            if not 0 <= call.testset_index < len(suite.cases):
                raise MissingDataError(
                    f"there is no test case {call.testset_index} of method {suite.method!r}",
                    hint=f"it has {len(suite.cases)}, counted from 0",
                )
            indices = [call.testset_index]
        for index in indices:
            given = suite.cases[index].inputs
            values = method_inputs(opened.program, suite.method, given, seed=0)
            yield JobCall(suite.method, values, iterations, warmup, index, fresh=True)


def run(
    program: Any,
    inputs: Any = None,
    *,
    method: str | None = None,
    iterations: int = 10,
    warmup: int = 1,
    etrecord: Any = None,
    data: PathLike | None = None,
    testset_index: int | None = None,
    seed: int = 0,
    trace: bool = True,
    debug_level: str = NONE,
    debug_buffer_size: int | None = None,
    grow: bool = True,
    traced_iterations: int | None = None,
    separate: bool = True,
    profiling_level: str = ALL_EVENTS,
    delegate_filters: str | Sequence[str] = (),
    allocations: bool = False,
    threads: int | None = None,
    libraries: PathLike | Sequence[PathLike] = (),
    runner: str = AUTO,
    isolate: bool = True,
    timeout: float | None = None,
    verify: bool = True,
    profiled_iterations: int | None = None,
    place: Place | None = None,
) -> Run:
    """Run a program on the ExecuTorch runtime.

    By default there are separate runs, each with a load of its own: one without tracing for the
    latency, one that records the time of each event, and with a debug level one that records
    values as well. Recording takes time, so only the first tells how long the model takes.

    program: a path or bytes of a .pte, of a bundled program (.bpte) or of an ETRecord that holds
        its program; an `ETRecord`, an `ExecutorchProgramManager`, or a `BundledProgram`.
    inputs: of the method, in any of these forms: tensors (torch or numpy) and numbers, in a
        sequence, nested or not; a mapping by input name; a file (.pt, .npz, .npy, .safetensors);
        None for the cases of a bundled program, or else numbers made of `seed`. Or a sequence of
        `Call`, which are executed in order under one load of the program.
    method: "forward" by default, or the only one.
    iterations, warmup: executions that count, and executions before them that do not.
    etrecord: the record of the export, for the Inspector and the names of the inputs.
    data: the program's external weights (.ptd).
    testset_index: of a bundled program, the only test case to run; all by default.
    trace: False measures the latency and records nothing.
    debug_level: "none", "program_outputs" or "intermediate_outputs".
    debug_buffer_size: bytes. By default what the memory plan needs. `grow`: when it is too small,
        run again with a larger one. The file ends where the last tensor does, whatever the size.
    traced_iterations: executions that record values, 1 by default; `warmup` is not executed there.
    separate: False makes one run that does it all, and whose latency is marked as traced.
    profiling_level: "all", or "method" for the times of whole methods only.
    delegate_filters: regular expressions; of the values that delegates log, those whose name
        matches one of them are recorded. Nothing given: all are.
    allocations: record what the runtime's allocators hand out.
    threads: of the runtime's thread pool.
    libraries: shared libraries with operators or backends that the program needs.
    runner: "python" (the runtime in the `executorch` package), "native" (etscope's C++ runner), or
        "auto": python, unless only native can do what is asked.
    isolate: False runs in this process, which ends if the runtime aborts; python runner only.
    timeout: seconds for each of the runs, those in processes of their own.
    verify: refuse a record that is not of the program.
    profiled_iterations: executions of the separate run that records times; `iterations` by default.
    place: where the runner's processes are; on this machine by default.

    Raises `FormatError` for a file that is damaged or of another kind, `MismatchError` for inputs
    that are not what the method takes, `MissingDataError` for a method or test case that is not
    there, `UsageError` for arguments that do not go together, `MissingDependencyError` for a
    runner that cannot be had, `RuntimeFailure`, with the runtime's log, when the run fails.
    """
    _check_words(debug_level, profiling_level, runner)
    _check_seed(seed)
    _check_numbers(
        traced_iterations=traced_iterations,
        profiled_iterations=profiled_iterations,
        threads=threads,
        timeout=timeout,
        debug_buffer_size=debug_buffer_size,
    )
    filters = _patterns(delegate_filters)
    _check_combination(
        trace=trace,
        separate=separate,
        isolate=isolate,
        runner=runner,
        timeout=timeout,
        values=debug_level != NONE,
        only_traced=bool(allocations or filters or profiling_level != ALL_EVENTS),
        filters=bool(filters),
        debug_buffer_size=debug_buffer_size,
        traced_iterations=traced_iterations,
        profiled_iterations=profiled_iterations,
        elsewhere=place is not None,
    )
    opened = open_program(program, etrecord)
    if verify:
        opened.check_record()
    default = Call(method, None, iterations, warmup, testset_index)
    calls = job_calls(inputs, default, opened, seed)
    base = Job(
        program=Path(),  # known when there is a folder for it
        calls=calls,
        data=_external_weights(opened, data),
        trace=False,
        threads=threads,
        libraries=tuple(_library(path) for path in _listed(libraries)),
    )
    traced = replace(
        base,
        trace=True,
        debug_level=debug_level,
        profiling_level=profiling_level,
        delegate_filters=filters,
        allocations=allocations,
    )
    if not trace:
        jobs = {LATENCY: base}
    else:
        counts = (profiled_iterations, traced_iterations)
        jobs = _jobs(base, traced, *counts) if separate else _one_job(traced)
    where = HERE if place is None else place
    how = How(
        runner=chosen_runner(
            runner, list(jobs.values()), opened.program, isolate=isolate, place=where
        ),
        isolate=isolate,
        timeout=timeout,
        debug_buffer_size=debug_buffer_size,
        grow=grow,
        place=where,
    )
    folder = Folder()
    begun = datetime.now(timezone.utc)
    try:
        passes = _executed(jobs, folder.path, how, opened)
    except BaseException:
        folder.remove()
        raise
    ran = tuple(CallRun.of(call) for call in calls)
    return Run(opened, ran, passes, folder, begun, forced=not verify)


def _jobs(
    base: Job, traced: Job, profiled_iterations: int | None, traced_iterations: int | None
) -> dict[str, Job]:
    """The separate runs: each records no more than it must."""
    profiled = tuple(
        replace(call, iterations=profiled_iterations or call.iterations) for call in traced.calls
    )
    jobs = {LATENCY: base, PROFILE: replace(traced, debug_level=NONE, calls=profiled)}
    if traced.debug_level != NONE:
        calls = tuple(
            replace(call, iterations=traced_iterations or 1, warmup=0) for call in traced.calls
        )
        jobs[VALUES] = replace(traced, calls=calls)
    return jobs


def _one_job(traced: Job) -> dict[str, Job]:
    return {PROFILE if traced.debug_level == NONE else VALUES: traced}


def _executed(jobs: dict[str, Job], folder: Path, how: How, opened: Opened) -> dict[str, Executed]:
    done = {}
    program = opened.file(folder)
    for name, job in jobs.items():
        place = folder / name
        place.mkdir()
        done[name] = execute(replace(job, program=program), place, how, opened.program)
    return done


def _external_weights(opened: Opened, data: PathLike | None) -> Path | None:
    if data is not None and not Path(data).is_file():
        raise MissingFileError(f"external weights not found: {os.fspath(data)}")
    if data is None and opened.external_weights:
        raise UsageError(
            "weights of this program are in a file beside it (.ptd)",
            hint="name that file: data=, --data",
        )
    return None if data is None else Path(data).resolve()


def _listed(value: Any) -> list[Any]:
    """One thing or several, as a list."""
    return [value] if isinstance(value, (str, os.PathLike)) else list(value)


def _library(path: PathLike) -> Path:
    if not Path(path).is_file():
        raise MissingFileError(f"library not found: {os.fspath(path)}")
    return Path(path).resolve()


def _patterns(filters: str | Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(re.compile(pattern).pattern for pattern in _listed(filters))
    except re.error as error:
        raise UsageError(f"not a regular expression: {error.pattern!r} ({error})") from error


# -- arguments that cannot be, or that would do nothing


def _check_words(debug_level: str, profiling_level: str, runner: str) -> None:
    for what, value, allowed in (
        ("debug level", debug_level, DEBUG_LEVELS),
        ("profiling level", profiling_level, PROFILING_LEVELS),
        ("runner", runner, RUNNERS),
    ):
        if value not in allowed:
            raise UsageError(f"there is no {what} {value!r}", hint=f"it is {', '.join(allowed)}")


def _check_numbers(**numbers: float | None) -> None:
    for what, value in numbers.items():
        if value is not None and not value > 0:
            raise UsageError(f"{what} must be more than 0, not {value}")


def _check_seed(seed: int) -> None:
    if not isinstance(seed, int):
        raise UsageError(f"a seed is a whole number, not {seed!r}")


def _check_combination(
    *,
    trace: bool,
    separate: bool,
    isolate: bool,
    runner: str,
    timeout: float | None,
    values: bool,
    only_traced: bool,
    filters: bool,
    debug_buffer_size: int | None,
    traced_iterations: int | None,
    profiled_iterations: int | None,
    elsewhere: bool,
) -> None:
    sizes = debug_buffer_size is not None or traced_iterations is not None
    for wrong, why in (
        (not trace and (values or only_traced), "this is recorded in traced runs only"),
        (not trace and not separate, "there is one run only, and it is not traced"),
        (not values and (filters or sizes), "values are recorded with a debug level only"),
        (
            not separate and traced_iterations is not None,
            "traced_iterations is of the separate run that records values",
        ),
        (
            not (trace and separate) and profiled_iterations is not None,
            "profiled_iterations is of the separate run that records times",
        ),
        (not isolate and elsewhere, "a run in this process cannot be elsewhere"),
        (not isolate and runner == NATIVE, "the native runner is always a process of its own"),
        (not isolate and timeout is not None, "a run in this process cannot be timed out"),
    ):
        if wrong:
            raise UsageError(why)
