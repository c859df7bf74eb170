"""The native runner as a process: a job as its command line.

The flags are those of `etscope-runner --help`; the sources are in `native/`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from etscope.errors import UsageError
from etscope.formats.bundled import CaseValue
from etscope.formats.dense_tensor import dim_order_of
from etscope.formats.scalar_type import scalar_type_of
from etscope.run._job import DEBUG_BUFFER, ETDUMP, NONE, RESULT, Job, JobCall
from etscope.run._native_build import find_runner, native_missing

__all__ = ["DEBUG_BUFFER_FULL", "command", "find_runner", "native_missing"]

# The runner's exit code when there was more to log than `debug_buffer_size`.
DEBUG_BUFFER_FULL = 6
FLAGS = "flags.txt"


def command(runner: Path, job: Job, folder: Path) -> list[str]:
    """The command line that executes a job and leaves its answer in `folder`, where the inputs and
    the flags are written now: there may be more of them than a command line holds."""
    flags = folder / FLAGS
    flags.write_text("".join(f"{word}\n" for word in _flags(job, folder)))
    return [str(runner), f"@{flags}"]


def _flags(job: Job, folder: Path) -> list[str]:
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


def _trace_flags(job: Job, folder: Path) -> list[str]:
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


def _call_flags(call: JobCall, number: int, folder: Path) -> list[str]:
    line = ["--method", call.method, "--iterations", str(call.iterations)]
    line += ["--warmup", str(call.warmup)]
    line += ["--bundled-input-index", str(call.bundled_input_index)]
    if call.fresh:
        line.append("--fresh")
    for index, value in enumerate(call.inputs):
        line += ["--input", _input(value, folder / f"input-{number}-{index}.raw")]
    return line


def _input(value: CaseValue | None, file: Path) -> str:
    """One input as the runner reads it; a tensor's bytes go to `file`."""
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
            file.write_bytes(np.ascontiguousarray(value.transpose(order)).tobytes())
            dtype = scalar_type_of(value.dtype).torch_name
            numbers = ",".join(map(str, value.shape))
            suffix = ":" + ",".join(map(str, order)) if order else ""
            return f"{dtype}:{numbers}:{file.absolute()}{suffix}"
    raise UsageError(f"an input cannot be a {type(value).__name__}")
