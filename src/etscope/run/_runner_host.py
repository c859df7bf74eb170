"""Where the processes of the runners are: on this machine, or on a device in reach."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Protocol

import numpy as np

import etscope.run.python as python
from etscope.errors import EtscopeWarning, RuntimeFailure, UsageError
from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.scalar_type import dim_order_of, scalar_type_of
from etscope.run.job import DEBUG_BUFFER, ETDUMP, NONE, RESULT, Job, JobCall
from etscope.run.native import find_runner, native_missing
from etscope.run.process import (
    LOG,
    DebugBufferFull,
    failure,
    orderly,
    read_log,
    relevant,
    run_process,
    timed_out,
)

# The native runner as a process: a job as its command line.
#
# The flags are those of `etscope-runner --help`; the sources are in `native/`.


# The runner's exit code when there was more to log than `debug_buffer_size`.
DEBUG_BUFFER_FULL = 6
FLAGS = "flags.txt"
_SAID = "etscope-runner: "


def native_command(
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


def conclude_native(code: int, log: str) -> None:
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


PYTHON, NATIVE = "python", "native"


class Place(Protocol):
    """A machine that has runners."""

    def missing(self, runner: str) -> str | None:
        """Why that runner ("python" or "native") cannot be had there; None when it can."""
        ...

    def execute(self, job: Job, folder: Path, runner: str, timeout: float | None) -> None:
        """Execute a job in a process of its own; `etscope.run.job` tells what is then in `folder`,
        which is on this machine, as are the files of the job.

        Raises `RuntimeFailure` when the run fails or takes longer than `timeout` seconds, and
        `DebugBufferFull` when that was the reason.
        """
        ...


class Here:
    """This machine."""

    def missing(self, runner: str) -> str | None:
        return native_missing() if runner == NATIVE else python.python_missing()

    def execute(self, job: Job, folder: Path, runner: str, timeout: float | None) -> None:
        if runner == PYTHON:
            python.run_in_child(job, folder, timeout)
        else:
            line = native_command([str(find_runner())], job, folder.absolute())
            conclude_native(run_process(line, folder, timeout), read_log(folder))


HERE = Here()


class Ended(Protocol):
    """A command that ended: its exit code, negative for a signal, and what it wrote."""

    @property
    def code(self) -> int: ...
    @property
    def log(self) -> str: ...


class Carrier(Protocol):
    """How a device is reached: files there and back, and commands in between. All of it in one
    folder of the device, where commands run."""

    def push(self, files: Mapping[Path, str]) -> None:
        """Copy local files into the folder, by name, which may begin with folders inside it."""
        ...

    def call(self, command: Sequence[str], timeout: float | None) -> Ended:
        """Run a command to its end; `TimeoutError` when it took longer, and was ended."""
        ...

    def pull(self, names: Sequence[str], folder: Path) -> None:
        """Copy files of the folder into a local one; a name that is not there is left out."""
        ...


# What an earlier job has left in the folder must not pass for the answer of this one.
_CLEARED = f'rm -f {RESULT} {python.FAILURE} {ETDUMP} {DEBUG_BUFFER} output-*.raw && exec "$@"'
_OUTPUT = re.compile(r"\boutput-\d+-\d+\.raw\b")
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")


@dataclass(frozen=True, slots=True, eq=False)
class Elsewhere:
    """A device, behind a `Carrier`.

    runners: the words that begin the command of each runner that there is: of "native" the binary,
    of "python" an interpreter that has etscope and executorch installed. They are asked for when
    one is needed, which may push or build it.
    """

    carrier: Carrier
    runners: Mapping[str, Callable[[], Sequence[str]]]
    _there: dict[str, str] = field(default_factory=dict, repr=False)  # name there -> SHA-256

    def missing(self, runner: str) -> str | None:
        if runner in self.runners:
            return None
        listed = " and ".join(self.runners) or "none"
        return f"the device has no {runner} runner (it has: {listed})"

    def execute(self, job: Job, folder: Path, runner: str, timeout: float | None) -> None:
        begin = self.runners[runner]()
        sums = {path: _sha256(path) for path in _files(job)}
        names = _names(job, sums)
        sent = _sent(job, names)
        if runner == NATIVE:
            line = native_command(begin, sent, folder, PurePosixPath())
        else:
            python.write_job(sent, folder)
            line = python.command(begin, ".")
        told = {path: path.name for path in folder.iterdir() if path.is_file()}
        self._push({**names, **told}, sums | {path: _sha256(path) for path in told})
        log = self._call(["sh", "-c", _CLEARED, "sh", *line], timeout)
        (folder / LOG).write_text(log.log)
        self._pull(folder)
        code = orderly(log.code, log.log)
        if runner == NATIVE:
            conclude_native(code, log.log)
        else:
            python.conclude(code, folder)
        if not (folder / RESULT).is_file():
            raise RuntimeFailure("the runner ended well and left no result", log=log.log)

    def _call(self, command: Sequence[str], timeout: float | None) -> Ended:
        try:
            return self.carrier.call(command, timeout)
        except TimeoutError as error:
            raise timed_out(timeout, str(error)) from error

    def _pull(self, folder: Path) -> None:
        self.carrier.pull([RESULT, python.FAILURE, ETDUMP, DEBUG_BUFFER], folder)
        result = folder / RESULT
        if result.is_file():
            names = dict.fromkeys(_OUTPUT.findall(result.read_text(errors="replace")))
            self.carrier.pull(list(names), folder)

    def _push(self, files: Mapping[Path, str], sums: Mapping[Path, str]) -> None:
        """Copy the files that are not there yet. sums: of their content, SHA-256."""
        new = {path: name for path, name in files.items() if self._there.get(name) != sums[path]}
        if not new:
            return
        for name in new.values():
            self._there.pop(name, None)
        self.carrier.push(new)
        self._there.update({name: sums[path] for path, name in new.items()})


def _files(job: Job) -> list[Path]:
    return [job.program, *(() if job.data is None else (job.data,)), *job.libraries]


def _names(job: Job, sums: Mapping[Path, str]) -> dict[Path, str]:
    """What the files of a job are called there: by their content, so that a program goes there once
    for all runs."""
    names = {path: _content_name(path, sums[path]) for path in _files(job)}
    # A library without a folder in its name would be looked for in those of the system.
    return names | {path: f"lib/{names[path]}" for path in job.libraries}


def _sent(job: Job, names: Mapping[Path, str]) -> Job:
    """The job with its files called as they are there."""
    return replace(
        job,
        program=Path(names[job.program]),
        data=None if job.data is None else Path(names[job.data]),
        libraries=tuple(Path(names[path]) for path in job.libraries),
    )


def _content_name(path: Path, sha256: str) -> str:
    suffix = path.suffix if _SUFFIX.fullmatch(path.suffix) else ""
    return f"file-{sha256[:16]}{suffix}"


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as data:
        while piece := data.read(1 << 20):
            found.update(piece)
    return found.hexdigest()
