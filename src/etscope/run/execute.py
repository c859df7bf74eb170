"""One job on the chosen runner, with a debug buffer that is large enough."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import etscope.run.python as python
from etscope.analysis.memory.plan import debug_buffer_bytes, recorded_by_a_run
from etscope.errors import (
    EtscopeWarning,
    MissingDependencyError,
    MissingFileError,
    RuntimeFailure,
    UsageError,
)
from etscope.formats.bytes.files import PathLike
from etscope.formats.conditions import Conditions, conditions_here
from etscope.formats.etdump.reader import ETDump, logged_values, read_etdump
from etscope.formats.etdump.writer import write_etdump
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import ScalarValue, TensorValue, ValueKind
from etscope.formats.program.scalar_type import ScalarType
from etscope.run._runner_host import HERE, NATIVE, PYTHON, Place
from etscope.run.job import (
    ALL_EVENTS,
    DEBUG_BUFFER,
    DEBUG_LEVELS,
    ETDUMP,
    INTERMEDIATE_OUTPUTS,
    NONE,
    PROFILING_LEVELS,
    PROGRAM_OUTPUTS,
    Job,
    JobCall,
    Result,
    read_result,
)
from etscope.run.process import STOPPED, DebugBufferFull
from etscope.run.program import Opened

AUTO = "auto"
RUNNERS = (AUTO, PYTHON, NATIVE)

_ALIGNMENT = 64  # bytes; the first tensor in a debug buffer may be this far from its beginning
_EXECUTE = "Execute"  # the name of the block that the runtime opens for each execution

# The types that ETDumpGen (ExecuTorch 1.0 to 1.5, devtools/etdump/etdump_flatcc.cpp) can log. Any
# other leaves a dump that cannot be read.
LOGGABLE = frozenset(
    {
        *(ScalarType.BYTE, ScalarType.CHAR, ScalarType.SHORT, ScalarType.INT, ScalarType.LONG),
        *(ScalarType.FLOAT, ScalarType.DOUBLE, ScalarType.BOOL),
        *(ScalarType.BITS16, ScalarType.UINT16),
    }
)


class Folder:
    """A new temporary folder, removed by `remove` or with this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="etscope-run-"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        self._finalizer()


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """Options of executing jobs.

    isolate: in a separate process. debug_buffer_size: bytes to begin with; None: as the memory
    plan says. grow: run again with a larger debug buffer when it was too small. timeout: seconds.
    place: the machine of the process.
    """

    runner: str = PYTHON
    isolate: bool = True
    timeout: float | None = None
    debug_buffer_size: int | None = None
    grow: bool = True
    place: Place = HERE


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: extended together with `ExportOptions`
class IsolationOptions:
    """The separate process of a run; see `RunOptions`."""

    isolate: bool = True
    timeout: float | None = None

    def check_timeout(self) -> None:
        """Raise `UsageError` for a timeout of a run in this process."""
        if self.timeout is not None and not self.isolate:
            raise UsageError(
                "a timeout needs a run in a separate process",
                hint="leave the timeout out, or run in a separate process (isolate)",
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedOptions(IsolationOptions):
    """Options of all that runs programs on the runtime; see `RunOptions`."""

    data: PathLike | None = None
    threads: int | None = None
    libraries: PathLike | Sequence[PathLike] = ()
    runner: str = AUTO

    @property
    def shared(self) -> dict[str, Any]:
        """The values of these options alone, as keywords for `run()` and `generate()`."""
        return {one.name: getattr(self, one.name) for one in fields(SharedOptions)}

    def job(self, calls: tuple[JobCall, ...] = ()) -> Job:
        """Return a job without a trace; its program is known when there is a folder for it.

        Raises `MissingFileError` for a library that does not exist.
        """
        return Job(
            program=Path(),
            calls=calls,
            data=None if self.data is None else Path(self.data).resolve(),
            trace=False,
            threads=self.threads,
            libraries=library_paths(self.libraries),
        )

    def execution(
        self, jobs: Iterable[Job], program: Program, place: Place | None = None
    ) -> ExecutionOptions:
        """Return the options of executing jobs, with a runner that supports them all.

        place: this machine by default. Raises as `chosen_runner`.
        """
        place = HERE if place is None else place
        runner = chosen_runner(self.runner, list(jobs), program, isolate=self.isolate, place=place)
        return ExecutionOptions(runner, self.isolate, self.timeout, place=place)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordingOptions(SharedOptions):
    """Options of `run()` and `generate()`, which record what they run; see `RunOptions`."""

    trace: bool = True
    debug_level: str = NONE
    debug_buffer_size: int | None = None
    profiling_level: str = ALL_EVENTS
    allocations: bool = False
    memory: bool = False
    place: Place | None = None

    def check_words(self) -> None:
        """Raise `UsageError` for a word that is none of those allowed."""
        for what, value, allowed in (
            ("debug level", self.debug_level, DEBUG_LEVELS),
            ("profiling level", self.profiling_level, PROFILING_LEVELS),
            ("runner", self.runner, RUNNERS),
        ):
            if value not in allowed:
                raise UsageError(
                    f"there is no {what} {value!r}", hint=f"it is {', '.join(allowed)}"
                )


def library_paths(libraries: PathLike | Sequence[PathLike]) -> tuple[Path, ...]:
    """Return the absolute paths of shared libraries. Raises `MissingFileError`."""
    paths = [libraries] if isinstance(libraries, (str, os.PathLike)) else list(libraries)
    for path in paths:
        if not Path(path).is_file():
            raise MissingFileError(f"library not found: {os.fspath(path)}")
    return tuple(Path(path).resolve() for path in paths)


@dataclass(frozen=True, slots=True, eq=False)
class Executed:
    """An executed job. `etdump` and `debug_buffer` are None if the file does not exist."""

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
    """Choose the runner for some jobs: "python" or "native".

    Raises `UsageError` when the wanted one does not support them, `MissingDependencyError` when it,
    or the only one that does, is not available.
    """
    beyond = list(dict.fromkeys(reason for job in jobs for reason in beyond_python(job, program)))
    no_python = place.missing(PYTHON)
    if wanted == PYTHON and beyond:
        raise UsageError(
            f"the Python runtime cannot do this: {'; '.join(beyond)}",
            hint="the native runner can (-X runner=native)",
        )
    if wanted == PYTHON and no_python:
        raise MissingDependencyError(
            f"the Python runner cannot be used: {no_python}", hint="pip install 'etscope[torch]'"
        )
    if wanted == PYTHON or (wanted == AUTO and not beyond and not no_python):
        return PYTHON
    # Python's dump would be broken: only the native runner can do this, so nothing is asked.
    methods = {method for job in jobs for method in job.methods}
    broken = {text for method in methods for text in unloggable(program, method)}
    if not isolate and not (beyond and broken.issuperset(beyond)):
        raise UsageError(
            f"the Python runtime cannot do this: {'; '.join(beyond) or no_python}",
            hint="the native runner can, in a separate process: isolate=True",
        )
    no_native = place.missing(NATIVE)
    if no_native is None:
        return NATIVE
    if wanted == AUTO and not beyond:
        raise MissingDependencyError(
            f"no runner is available: {no_python}",
            hint="for the whole tool: pip install 'etscope[torch]'; to run without Python's "
            "bindings: set $ETSCOPE_RUNNER to an etscope-runner",
        )
    reason = "; ".join(beyond)
    raise MissingDependencyError(
        "the native runner is not available"
        + (f", and the Python runtime cannot do this: {reason}" if reason else ""),
        hint=no_native,
    )


def beyond_python(job: Job, program: Program) -> list[str]:
    """List the parts of a job that the Python runtime does not support, in words that end a
    sentence."""
    found = []
    if job.debug_level == PROGRAM_OUTPUTS:
        found.append("the debug level program_outputs")
    if job.profiling_level != ALL_EVENTS:
        found.append(f"the profiling level {job.profiling_level}")
    if job.allocations:
        found.append("allocation events")
    if job.memory:
        found.append("memory by owner")
    if job.generation is not None and job.generation.values_at is not None:
        found.append("values of some calls only")
    if job.delegate_filters and job.debug_level == INTERMEDIATE_OUTPUTS:
        found.append("filters of delegates' outputs")
    if job.debug_level == INTERMEDIATE_OUTPUTS:
        for method in job.methods:
            found += unloggable(program, method)
    return found


# What the native runner makes of types that a dump cannot hold (native/src/common/widen.cpp).
_WIDENED = {
    ScalarType.HALF: "records them as float32, exactly",
    ScalarType.BFLOAT16: "records them as float32, exactly",
    ScalarType.UINT32: "records them as int64, exactly",
    ScalarType.UINT64: "records them as int64, and leaves out what is larger",
}
_LEFT_OUT = "leaves them out"


def unloggable(program: Program, method: str) -> dict[str, str]:
    """Map the values that the runtime's own tracer cannot log at the level intermediate_outputs, in
    words and by type, to what the native runner does with them.
    """
    values = program.method(method).values
    types: dict[str, dict[str, None]] = {}
    kept: dict[str, str] = {}
    for place, index in recorded_by_a_run(program, method):
        value = values[index]
        if isinstance(value, TensorValue) and value.scalar_type not in LOGGABLE:
            kind = f"tensors of {value.scalar_type.torch_name}"
            kept[kind] = _WIDENED.get(value.scalar_type, _LEFT_OUT)
        elif isinstance(value, ScalarValue) and value.kind is ValueKind.NULL:
            kind = "None as an output"
            kept[kind] = _LEFT_OUT
        else:
            continue
        types.setdefault(kind, {})[place] = None
    return {
        f"{kind} ({', '.join(list(places)[:3])}"
        + (f" and {len(places) - 3} more)" if len(places) > 3 else ")"): kept[kind]
        for kind, places in types.items()
    }


def execute(job: Job, folder: Path, options: ExecutionOptions, program: Program) -> Executed:
    """Execute a job in `folder`, which is new and empty.

    Raises `RuntimeFailure` when the runtime fails, with its log.
    """
    if job.debug_level == NONE:
        _start(job, folder, options)
    else:
        if options.runner == NATIVE:
            intermediate = job.debug_level == INTERMEDIATE_OUTPUTS
            for method in job.methods if intermediate else ():
                for what, kept in unloggable(program, method).items():
                    text = f"an ETDump cannot hold {what}: the native runner {kept}"
                    warnings.warn(text, EtscopeWarning, stacklevel=2)
            size = 0 if options.grow else options.debug_buffer_size or 0
        else:
            size = options.debug_buffer_size or _ALIGNMENT + sum(
                count * (debug_buffer_bytes(program, method) + _ALIGNMENT)
                for method, count in job.executions_of_methods()
            )
        _execute_logging(replace(job, debug_buffer_size=size), folder, options)
    debug_buffer = folder / DEBUG_BUFFER
    result = read_result(folder)
    if job.trace:
        dump = finish_dump(folder / ETDUMP, job, result)
        if debug_buffer.exists():
            trim_debug_buffer(debug_buffer, dump)
    return Executed(
        job=job,
        result=result,
        etdump=folder / ETDUMP if job.trace else None,
        debug_buffer=debug_buffer if debug_buffer.exists() else None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ExecutedJobs:
    """Executed jobs, by name, and their folder.

    recorded_at: when the first of them started, in UTC. conditions: the conditions of this machine
    at that time; None if another machine ran them. is_interrupted: True if SIGINT ended a job; the
    jobs after it were not run.
    """

    passes: dict[str, Executed]
    folder: Folder
    recorded_at: datetime
    conditions: Conditions | None
    is_interrupted: bool


def execute_all(jobs: Mapping[str, Job], opened: Opened, options: ExecutionOptions) -> ExecutedJobs:
    """Execute the jobs of one program in order, each in a folder of its name; their programs are
    filled in here. Raises as `execute`; then no files are left."""
    folder = Folder()
    recorded_at = datetime.now(timezone.utc)
    conditions = conditions_here() if options.place is HERE else None
    passes: dict[str, Executed] = {}
    stopped = False
    try:
        file = opened.file(folder.path)
        for name, job in jobs.items():
            own = folder.path / name
            own.mkdir()
            done = passes[name] = execute(replace(job, program=file), own, options, opened.program)
            generated = done.result.generation
            is_partial = generated is not None and generated.is_interrupted
            stopped = is_partial or (own / STOPPED).exists()
            if stopped:
                break
    except BaseException:
        folder.remove()
        raise
    return ExecutedJobs(passes, folder, recorded_at, conditions, stopped)


def _start(job: Job, folder: Path, options: ExecutionOptions) -> None:
    if options.isolate or options.runner == NATIVE:
        options.place.execute(job, folder, options.runner, options.timeout)
    else:
        python.run_here(job, folder)


def _execute_logging(job: Job, folder: Path, options: ExecutionOptions) -> None:
    """Execute with a debug buffer of the job's size; while it is too small, again with a larger
    one."""
    if options.runner == PYTHON and sys.platform != "win32":  # its debug buffer is in memory
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if job.debug_buffer_size > memory:
            raise RuntimeFailure(
                f"the run would log {job.debug_buffer_size:,} bytes, and this machine has "
                f"{memory:,} bytes of memory",
                hint="trace fewer iterations, or use the native runner, which writes to the file "
                "as it goes (-X runner=native)",
            )
    try:
        _start(job, folder, options)
    except DebugBufferFull as full:
        if not options.grow:
            raise RuntimeFailure(
                f"a debug buffer of {job.debug_buffer_size:,} bytes is too small for what this run "
                "logs",
                log=full.log,
                hint="give a larger debug_buffer_size (-X debug_buffer_size), or let it grow",
            ) from full
        larger = replace(job, debug_buffer_size=2 * job.debug_buffer_size)
        _execute_logging(larger, folder, options)


# -- the dump after the run


def finish_dump(path: Path, job: Job, result: Result) -> ETDump:
    """Read the dump of a job; rewrite the file without its warm-up runs, and with the test cases
    that ran.

    Executions are identified by their order: each has one run named "Execute".
    """
    dump = read_etdump(path)
    executed = np.flatnonzero([dump.run_name_of(run) == _EXECUTE for run in range(dump.num_runs)])
    generated = result.generation
    executions = job.executions if generated is None else len(generated.run)
    if len(executed) != executions:
        raise RuntimeFailure(f"the runtime wrote {len(executed)} runs for {executions} executions")
    indices = dump.run_bundled_input_index.copy()
    kept = np.ones(dump.num_runs, bool)
    if generated is not None and job.generation is not None:
        kept[executed[generated.run < job.generation.warmup]] = False
    position = 0
    for call in job.calls:
        runs = executed[position : position + call.executions]
        kept[runs[: call.warmup]] = False
        indices[runs] = call.bundled_input_index
        position += call.executions
    if kept.all() and (indices == dump.run_bundled_input_index).all():
        return dump
    content = write_etdump(select_runs(replace(dump, run_bundled_input_index=indices), kept))
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)
    return read_etdump(path)


_EVENT_COLUMNS = (
    *("kind", "name", "chain_index", "instruction_id", "delegate_id_int", "delegate_id_str"),
    *("start", "end", "metadata_offset", "metadata_length", "allocator_id", "allocation_size"),
    *("is_output", "debug_value_offset"),
)


def select_runs(dump: ETDump, kept: npt.NDArray[np.bool_]) -> ETDump:
    """Return the dump with some runs only; `kept` is a mask over its runs."""
    events = kept[dump.run]
    columns = {name: getattr(dump, name)[events] for name in _EVENT_COLUMNS}
    counts = np.diff(dump.run_first_event)[kept]
    return replace(
        dump,
        **columns,
        run=np.repeat(np.arange(len(counts), dtype=dump.run.dtype), counts),
        run_name=dump.run_name[kept],
        run_bundled_input_index=dump.run_bundled_input_index[kept],
        run_first_event=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        run_allocators=tuple(a for a, keep in zip(dump.run_allocators, kept, strict=True) if keep),
    )


def trim_debug_buffer(path: Path, dump: ETDump) -> None:
    """Cut off the bytes after the last tensor of the dump. An unused file is removed."""
    used = logged_values(dump).buffer_size
    if used == 0:
        path.unlink(missing_ok=True)
    else:
        os.truncate(path, used)
