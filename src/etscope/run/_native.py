"""The native runner as a process: a job as its command line.

The flags are those of `etscope-runner --help`; the sources are in `native/`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path, PurePath

import numpy as np

from etscope.errors import EtscopeWarning, UsageError
from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.dense_tensor import dim_order_of
from etscope.formats.program.scalar_type import scalar_type_of
from etscope.run.failure_log import relevant
from etscope.run.job import DEBUG_BUFFER, ETDUMP, NONE, RESULT, Job, JobCall
from etscope.run.native import find_runner, native_missing
from etscope.run.process import DebugBufferFull, failure

__all__ = ["DEBUG_BUFFER_FULL", "command", "conclude", "find_runner", "native_missing"]

# The runner's exit code when there was more to log than `debug_buffer_size`.
DEBUG_BUFFER_FULL = 6
FLAGS = "flags.txt"
_SAID = "etscope-runner: "


def command(
    runner: Sequence[str | os.PathLike[str]], job: Job, folder: Path, seen: PurePath | None = None
) -> list[str]:
    """The command line that executes a job and leaves its answer in `folder`, where the inputs and
    the flags are written now: there may be more of them than a command line holds.

    runner: the words that begin it. seen: what the runner calls that folder; None: as it is here.

    Raises `UsageError` for names that would be more than one flag.
    """
    place = folder if seen is None else seen
    words = _flags(job, place)
    for word in words:
        if "\n" in word:  # of the name of a method, for one: what follows would be more flags
            raise UsageError(f"the native runner takes no line break: {word!r:.200}")
    _write_inputs(job, folder)
    (folder / FLAGS).write_text("".join(f"{word}\n" for word in words))
    return [*(os.fspath(word) for word in runner), f"@{place / FLAGS}"]


def conclude(code: int, log: str) -> None:
    """Pass on what the runner said; raise what its exit code means, unless it ended well."""
    if code == 0:
        for line in log.splitlines():
            if line.startswith(_SAID):
                warnings.warn(line.removeprefix(_SAID), EtscopeWarning, stacklevel=2)
        return
    if code == DEBUG_BUFFER_FULL:
        raise DebugBufferFull(relevant(log))
    raise failure(f"the native runner ended with exit code {code}", log)


def _write_inputs(job: Job, folder: Path) -> None:
    """Write the bytes of the tensors, densely in their order of dimensions."""
    for number, call in enumerate(job.calls):
        for index, value in enumerate(call.inputs):
            if isinstance(value, np.ndarray):
                dense = np.ascontiguousarray(value.transpose(dim_order_of(value)))
                (folder / _input_name(number, index)).write_bytes(dense.tobytes())


def _input_name(number: int, index: int) -> str:
    return f"input-{number}-{index}.raw"


def _flags(job: Job, folder: PurePath) -> list[str]:
    line = ["--program", str(job.program)]
    if job.data is not None:
        line += ["--data", str(job.data)]
    for library in job.libraries:
        line += ["--library", str(library)]
    if job.threads is not None:
        line += ["--threads", str(job.threads)]
    line += ["--result-out", str(folder / RESULT), "--outputs-dir", str(folder)]
    if job.trace:
        line += _trace_flags(job, folder)
    for number, call in enumerate(job.calls):
        line += _call_flags(call, number, folder)
    return line


def _trace_flags(job: Job, folder: PurePath) -> list[str]:
    line = ["--etdump-out", str(folder / ETDUMP), "--profiling-level", job.profiling_level]
    if job.allocations:
        line.append("--allocations")
    if job.debug_level != NONE:
        line += ["--debug-level", job.debug_level]
        line += ["--debug-buffer-out", str(folder / DEBUG_BUFFER)]
        line += ["--debug-buffer-size", str(job.debug_buffer_size)]
        for pattern in job.delegate_filters:
            line += ["--delegate-filter", pattern]
    return line


def _call_flags(call: JobCall, number: int, folder: PurePath) -> list[str]:
    line = ["--method", call.method, "--iterations", str(call.iterations)]
    line += ["--warmup", str(call.warmup)]
    line += ["--bundled-input-index", str(call.bundled_input_index)]
    if call.fresh:
        line.append("--fresh")
    for index, value in enumerate(call.inputs):
        line += ["--input", _input(value, folder / _input_name(number, index))]
    return line


def _input(value: CaseValue | None, file: PurePath) -> str:
    """One input as the runner reads it; a tensor's bytes are in `file`."""
    match value:
        case None:
            return "none"
        case bool():
            return f"bool:{'true' if value else 'false'}"
        case int():
            return f"int:{value}"
        case float():
            return f"double:{value!r}"
        case np.ndarray():
            order = dim_order_of(value)
            dtype = scalar_type_of(value.dtype).torch_name
            numbers = ",".join(map(str, value.shape))
            suffix = ":" + ",".join(map(str, order)) if order else ""
            return f"{dtype}:{numbers}:{file}{suffix}"
    raise UsageError(f"an input cannot be a {type(value).__name__}")
