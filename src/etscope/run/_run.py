"""`run()`: from a program to its outputs, its latency, an ETDump and a debug buffer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etscope.errors import MissingDataError, MissingFileError, UsageError
from etscope.formats.bundled import BundledFile
from etscope.formats.source import PathLike
from etscope.model.input_names import record_input_names
from etscope.run._execute import AUTO, NATIVE, Executed, How, chosen_runner, execute
from etscope.run._inputs import method_inputs
from etscope.run._job import (
    ALL_EVENTS,
    DEBUG_LEVELS,
    NONE,
    PROFILING_LEVELS,
    Job,
    JobCall,
)
from etscope.run._outcome import LATENCY, PROFILE, VALUES, CallRun, Run
from etscope.run._program import Opened, open_program


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
    traced_iterations: int = 1,
    separate: bool = True,
    profiling_level: str = ALL_EVENTS,
    delegate_filters: str | Sequence[str] = (),
    allocations: bool = False,
    threads: int | None = None,
    libraries: PathLike | Sequence[PathLike] = (),
    runner: str = AUTO,
    isolate: bool = True,
    timeout: float | None = None,
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
    traced_iterations: executions that record values; `warmup` is not executed there.
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
    timeout: seconds for each of the runs.

    Raises `FormatError` for a file that is damaged or of another kind, `MismatchError` for inputs
    that are not what the method takes, `MissingDataError` for a method or test case that is not
    there, `UsageError` for arguments that do not go together, `MissingDependencyError` for a
    runner that cannot be had, `RuntimeFailure`, with the runtime's log, when the run fails.
    """
    opened = open_program(program, etrecord)
    _check_words(debug_level, profiling_level)
    if traced_iterations < 1:
        raise UsageError("at least one iteration must be traced")
    if not trace and (debug_level != NONE or allocations or not separate):
        raise UsageError("values and allocations are recorded in traced runs only")
    if not isolate and runner == NATIVE:
        raise UsageError("the native runner is always a process of its own")
    wanted = _wanted_calls(inputs, Call(method, None, iterations, warmup, testset_index))
    calls = [call for one in wanted for call in _resolved(one, opened, seed)]
    weights = _external_weights(opened, data)
    base = Job(
        program=Path(),  # known when there is a folder for it
        calls=tuple(calls),
        data=weights,
        trace=False,
        threads=threads,
        libraries=tuple(Path(path) for path in _listed(libraries)),
    )
    traced = replace(
        base,
        trace=True,
        debug_level=debug_level,
        profiling_level=profiling_level,
        delegate_filters=tuple(_listed(delegate_filters)),
        allocations=allocations,
    )
    if not trace:
        jobs = {LATENCY: base}
    else:
        jobs = _jobs(base, traced, traced_iterations) if separate else _one_job(traced)
    how = How(
        runner=chosen_runner(runner, list(jobs.values()), opened.program),
        isolate=isolate,
        timeout=timeout,
        debug_buffer_size=debug_buffer_size,
        grow=grow,
    )
    folder = tempfile.TemporaryDirectory(prefix="etscope-run-")
    try:
        passes = _executed(jobs, Path(folder.name), how, opened)
    except BaseException:
        folder.cleanup()
        raise
    return Run(opened, tuple(CallRun.of(call) for call in calls), passes, folder)


def _jobs(base: Job, traced: Job, traced_iterations: int) -> dict[str, Job]:
    """The separate runs: each records no more than it must."""
    jobs = {LATENCY: base, PROFILE: replace(traced, debug_level=NONE)}
    if traced.debug_level != NONE:
        calls = tuple(
            replace(call, iterations=traced_iterations, warmup=0) for call in traced.calls
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


# -- from arguments to calls


def _wanted_calls(inputs: Any, default: Call) -> list[Call]:
    is_list = isinstance(inputs, (list, tuple)) and len(inputs) > 0
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
            yield JobCall(suite.method, values, iterations, warmup, index)


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


def _check_words(debug_level: str, profiling_level: str) -> None:
    for what, value, allowed in (
        ("debug level", debug_level, DEBUG_LEVELS),
        ("profiling level", profiling_level, PROFILING_LEVELS),
    ):
        if value not in allowed:
            raise UsageError(f"there is no {what} {value!r}", hint=f"it is {', '.join(allowed)}")
