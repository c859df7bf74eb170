"""One job on the chosen runner, with a debug buffer that is large enough."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import etscope.run.python as python
from etscope.analysis.memory.memory import debug_buffer_bytes
from etscope.errors import EtscopeWarning, MissingDependencyError, RuntimeFailure, UsageError
from etscope.formats.program.pte import Program
from etscope.run._dumps import finish_dump, trim_debug_buffer
from etscope.run._limits import beyond_python, unloggable
from etscope.run._result import Result, read_result
from etscope.run._runner_host import HERE, NATIVE, PYTHON, Place
from etscope.run.job import DEBUG_BUFFER, ETDUMP, INTERMEDIATE_OUTPUTS, NONE, Job
from etscope.run.process import DebugBufferFull

AUTO = "auto"
RUNNERS = (AUTO, PYTHON, NATIVE)

_ALIGNMENT = 64  # the first tensor in a debug buffer may be this far from its beginning


@dataclass(frozen=True, slots=True)
class How:
    """How jobs are executed.

    isolate: in a process of its own. debug_buffer_size: where to begin; None: as the memory plan
    says. grow: run again with a larger debug buffer when it was too small. timeout: seconds.
    place: where the process is.
    """

    runner: str = PYTHON
    isolate: bool = True
    timeout: float | None = None
    debug_buffer_size: int | None = None
    grow: bool = True
    place: Place = HERE


@dataclass(frozen=True, slots=True, eq=False)
class Executed:
    """A job that was executed. `etdump` and `debug_buffer` are None when there is no such file."""

    job: Job
    result: Result
    etdump: Path | None
    debug_buffer: Path | None


def chosen_runner(
    wanted: str,
    jobs: list[Job],
    program: Program,
    *,
    isolate: bool = True,
    place: Place = HERE,
) -> str:
    """The runner for some jobs: "python" or "native".

    Raises `UsageError` when the wanted one cannot do them, `MissingDependencyError` when it, or
    the only one that can, is not to be had.
    """
    beyond = list(dict.fromkeys(reason for job in jobs for reason in beyond_python(job, program)))
    no_python = place.missing(PYTHON)
    if wanted == PYTHON and beyond:
        raise UsageError(
            f"the Python runtime cannot do this: {'; '.join(beyond)}",
            hint="the native runner can (--runner native)",
        )
    if wanted == PYTHON and no_python:
        raise MissingDependencyError(
            f"the Python runner cannot be used: {no_python}", hint="pip install 'etscope[torch]'"
        )
    if wanted == PYTHON or (wanted == AUTO and not beyond and not no_python):
        return PYTHON
    if not isolate:
        raise UsageError(
            f"the Python runtime cannot do this: {'; '.join(beyond) or no_python}",
            hint="the native runner can, in a process of its own: isolate=True",
        )
    no_native = place.missing(NATIVE)
    if no_native is None:
        return NATIVE
    reason = "; ".join(beyond) or no_python
    raise MissingDependencyError(
        "the native runner cannot be had"
        + (f", and the Python runtime cannot do this: {reason}" if reason else ""),
        hint=no_native,
    )


def execute(job: Job, folder: Path, how: How, program: Program) -> Executed:
    """Execute a job in `folder`, which is new and empty.

    Raises `RuntimeFailure` when the runtime fails, with what it said.
    """
    if job.debug_level == NONE:
        _start(job, folder, how)
    elif how.runner == NATIVE:
        _warn_of_widening(job, program)
        limit = 0 if how.grow else how.debug_buffer_size or 0
        _with_debug_buffer(replace(job, debug_buffer_size=limit), folder, how)
    else:
        size = how.debug_buffer_size or _estimate(job, program)
        _with_debug_buffer(replace(job, debug_buffer_size=size), folder, how)
    debug_buffer = folder / DEBUG_BUFFER
    if job.trace:
        dump = finish_dump(folder / ETDUMP, job)
        if debug_buffer.exists():
            trim_debug_buffer(debug_buffer, dump)
    return Executed(
        job=job,
        result=read_result(folder),
        etdump=folder / ETDUMP if job.trace else None,
        debug_buffer=debug_buffer if debug_buffer.exists() else None,
    )


def _start(job: Job, folder: Path, how: How) -> None:
    if how.isolate:
        how.place.execute(job, folder, how.runner, how.timeout)
    else:
        python.run_here(job, folder)


def _with_debug_buffer(job: Job, folder: Path, how: How) -> None:
    """Execute with a debug buffer of the job's size; as long as it is too small, a larger one."""
    if how.runner == PYTHON:
        _check_size(job)
    try:
        _start(job, folder, how)
    except DebugBufferFull as full:
        if not how.grow:
            raise RuntimeFailure(
                f"a debug buffer of {job.debug_buffer_size:,} bytes is too small for what this run "
                "logs",
                log=full.log,
                hint="give a larger debug_buffer_size (--debug-buffer-size), or let it grow",
            ) from full
        _with_debug_buffer(replace(job, debug_buffer_size=2 * job.debug_buffer_size), folder, how)


def _warn_of_widening(job: Job, program: Program) -> None:
    if job.debug_level != INTERMEDIATE_OUTPUTS:
        return
    for method in dict.fromkeys(call.method for call in job.calls):
        for what in unloggable(program, method):
            recorded = (
                "left out"
                if what.startswith("None")
                else "recorded in a wider type where there is one that holds them exactly, else "
                "left out"
            )
            warnings.warn(f"an ETDump cannot hold {what}: {recorded}", EtscopeWarning, stacklevel=2)


def _estimate(job: Job, program: Program) -> int:
    """Bytes that a job is expected to log, by the memory plan of its methods."""
    return _ALIGNMENT + sum(
        call.executions * (debug_buffer_bytes(program, call.method) + _ALIGNMENT)
        for call in job.calls
    )


def _check_size(job: Job) -> None:
    """The Python runtime keeps its debug buffer in memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if job.debug_buffer_size > memory:
        raise RuntimeFailure(
            f"the run would log {job.debug_buffer_size:,} bytes, and this machine has {memory:,} "
            "bytes of memory",
            hint="trace fewer iterations, or use the native runner, which writes to the file as it "
            "goes (--runner native)",
        )
