"""The machines of the runners' processes: this one, or a device in reach; and the command line of
the native runner.

`etscope-runner --help` lists the flags; its sources are in `native/`.
"""

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
from etscope.analysis.generation.plan import GenerationTask
from etscope.errors import EtscopeWarning, RuntimeFailure, UsageError
from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.scalar_type import dim_order_of, scalar_type_of
from etscope.run.job import DEBUG_BUFFER, ETDUMP, NONE, RESULT, Job, stored
from etscope.run.native import find_runner, native_missing
from etscope.run.process import (
    LOG,
    DebugBufferFull,
    check_pools,
    check_signal,
    failure,
    read_log,
    relevant,
    run_process,
    timed_out,
)
from etscope.run.remote import Completed

PYTHON, NATIVE = "python", "native"


class Place(Protocol):
    """A machine that has runners."""

    def missing(self, runner: str) -> str | None:
        """Return why that runner ("python" or "native") is not available there; None when it is."""
        ...

    def execute(self, job: Job, folder: Path, runner: str, timeout: float | None) -> None:
        """Execute a job in a separate process, which leaves the files of `etscope.run.job` in
        `folder`. The folder is on this machine, as are the files of the job.

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
            stoppable = job.generation is not None
            code = run_process(line, folder, timeout, stoppable=stoppable)
            conclude_native(code, read_log(folder))


HERE = Here()


class Carrier(Protocol):
    """A connection to a device, which copies files there and back and runs commands, all in one
    folder of the device.
    """

    def push(self, files: Mapping[Path, str]) -> None:
        """Copy local files into the folder, by name, which may begin with folders inside it."""
        ...

    def call(self, command: Sequence[str], timeout: float | None) -> Completed:
        """Run a command to its end; `TimeoutError` when it took longer, and was ended."""
        ...

    def pull(self, names: Sequence[str], folder: Path) -> None:
        """Copy files of the folder into a local one; files that do not exist are left out."""
        ...


# Files of an earlier job in the folder must not pass for results of this one.
_CLEARED = f'rm -f {RESULT} {python.FAILURE} {ETDUMP} {DEBUG_BUFFER} output-*.raw && exec "$@"'
_OUTPUT = re.compile(r"\boutput-\d+-\d+\.raw\b")
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")


@dataclass(frozen=True, slots=True, eq=False)
class Elsewhere:
    """A device, behind a `Carrier`.

    runners: for each runner on the device, a function that returns the first words of its command:
    the binary of "native", an interpreter with etscope and executorch for "python". It is called
    when the runner is needed, and may push or build it.
    """

    carrier: Carrier
    runners: Mapping[str, Callable[[], Sequence[str]]]
    _pushed: dict[str, str] = field(default_factory=dict, repr=False)  # name there -> SHA-256

    def missing(self, runner: str) -> str | None:
        if runner in self.runners:
            return None
        listed = " and ".join(self.runners) or "none"
        return f"the device has no {runner} runner (it has: {listed})"

    def execute(self, job: Job, folder: Path, runner: str, timeout: float | None) -> None:
        begin = self.runners[runner]()
        names, sums = self._named(job)
        job_there = replace(
            job,
            program=Path(names[job.program]),
            data=None if job.data is None else Path(names[job.data]),
            libraries=tuple(Path(names[path]) for path in job.libraries),
        )
        if runner == NATIVE:
            line = native_command(begin, job_there, folder, PurePosixPath())
        else:
            python.write_job(job_there, folder)
            line = python.command(begin, ".")
        written = {path: path.name for path in folder.iterdir() if path.is_file()}
        self._push({**names, **written}, sums | {path: sha256_of(path) for path in written})
        try:
            ended = self.carrier.call(["sh", "-c", _CLEARED, "sh", *line], timeout)
        except TimeoutError as error:
            raise timed_out(timeout, str(error)) from error
        (folder / LOG).write_text(ended.log, encoding="utf-8")
        self.carrier.pull([RESULT, python.FAILURE, ETDUMP, DEBUG_BUFFER], folder)
        result = folder / RESULT
        if result.is_file():
            outputs = dict.fromkeys(_OUTPUT.findall(result.read_text("utf-8", "replace")))
            self.carrier.pull(list(outputs), folder)
        check_signal(ended.code, ended.log)
        if runner == NATIVE:
            conclude_native(ended.code, ended.log)
        else:
            python.conclude(ended.code, folder)
        if not result.is_file():
            raise RuntimeFailure("the runner ended well and left no result", log=ended.log)

    def _named(self, job: Job) -> tuple[dict[Path, str], dict[Path, str]]:
        """Return the names on the device of a job's files, and the SHA-256 of their content."""
        files = [job.program, *(() if job.data is None else (job.data,)), *job.libraries]
        sums = {path: sha256_of(path) for path in files}
        # Named by their content, so that a program is pushed once for all runs.
        names = {}
        for path in files:
            suffix = path.suffix if _SUFFIX.fullmatch(path.suffix) else ""
            names[path] = f"file-{sums[path][:16]}{suffix}"
        # A library without a folder in its name would be searched in the system's folders.
        return names | {path: f"lib/{names[path]}" for path in job.libraries}, sums

    def _push(self, files: Mapping[Path, str], sums: Mapping[Path, str]) -> None:
        """Copy the files that are not there yet. sums: SHA-256 of their content."""
        new = {path: name for path, name in files.items() if self._pushed.get(name) != sums[path]}
        if not new:
            return
        for name in new.values():
            self._pushed.pop(name, None)
        self.carrier.push(new)
        self._pushed.update({name: sums[path] for path, name in new.items()})


def sha256_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as data:
        while piece := data.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


# -- the command line of the native runner

# The runner's exit code when there was more to log than `debug_buffer_size`.
DEBUG_BUFFER_FULL = 6
# And when a pool of a job with pools was.
POOL_TOO_SMALL = 7
FLAGS = "flags.txt"
_PREFIX = "etscope-runner: "


def native_command(
    runner: Sequence[str | os.PathLike[str]], job: Job, folder: Path, seen: PurePath | None = None
) -> list[str]:
    """Return the command line that executes a job and leaves its result in `folder`. The inputs and
    the flags are written there now: there may be more flags than a command line holds.

    runner: the first words of the command. seen: the runner's name for that folder; None: the same.

    Raises `UsageError` for names with a line break, which would be more than one flag.
    """
    place = folder if seen is None else seen
    words = ["--program", str(job.program)]
    if job.data is not None:
        words += ["--data", str(job.data)]
    for library in job.libraries:
        words += ["--library", str(library)]
    if job.threads is not None:
        words += ["--threads", str(job.threads)]
    words += ["--result-out", str(place / RESULT), "--outputs-dir", str(place)]
    if job.trace:
        words += ["--etdump-out", str(place / ETDUMP), "--profiling-level", job.profiling_level]
        words += ["--allocations"] if job.allocations else []
    words += ["--memory"] if job.memory else []
    if job.trace and job.debug_level != NONE:
        words += ["--debug-level", job.debug_level]
        words += ["--debug-buffer-out", str(place / DEBUG_BUFFER)]
        words += ["--debug-buffer-size", str(job.debug_buffer_size)]
        for pattern in job.delegate_filters:
            words += ["--delegate-filter", pattern]
    if job.pools is not None:
        words += ["--method-pool", str(job.pools.method)]
        words += ["--temporary-pool", str(job.pools.temporary)]
        words += ["--planned-in-pool"] if job.pools.planned else []
    for number, call in enumerate(job.calls):
        words += ["--method", call.method, "--iterations", str(call.iterations)]
        words += ["--warmup", str(call.warmup)]
        words += ["--bundled-input-index", str(call.bundled_input_index)]
        words += ["--fresh"] if call.fresh else []
        for index, value in enumerate(call.inputs):
            words += ["--input", _input_flag(value, place / f"input-{number}-{index}.raw")]
    if job.generation is not None:
        words += _generation_flags(job.generation, place)
    for word in words:
        if "\n" in word:  # in the name of a method, for example: the rest would be more flags
            raise UsageError(f"the native runner takes no line break: {word!r:.200}")
    for number, call in enumerate(job.calls):
        for index, value in enumerate(call.inputs):
            if isinstance(value, np.ndarray):
                (folder / f"input-{number}-{index}.raw").write_bytes(stored(value))
    for index, value in enumerate(() if job.generation is None else job.generation.given):
        (folder / f"given-{index}.raw").write_bytes(stored(value))
    (folder / FLAGS).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return [*(os.fspath(word) for word in runner), f"@{place / FLAGS}"]


def _generation_flags(task: GenerationTask, place: PurePath) -> list[str]:
    """Return the flags of a generation; the arrays that are given are in files in `place`."""

    def ids(numbers: Sequence[int]) -> str:
        return ",".join(map(str, numbers))

    words = ["--generate", "--context", ids(task.context)]
    words += ["--max-new-tokens", str(task.max_new_tokens)]
    words += ["--generations", str(task.warmup + task.runs)]
    words += ["--logits-output", str(task.logits_output), "--logits", task.logits]
    for token in task.end_tokens:
        words += ["--end-token", str(token)]
    if task.last_position is not None:
        words += ["--last-position", str(max(task.last_position, -1))]
    sampler = task.sampler
    words += ["--temperature", repr(float(sampler.temperature))]
    words += ["--sampler-seed", str(sampler.seed & (1 << 64) - 1)]
    words += [] if sampler.top_k is None else ["--top-k", str(sampler.top_k)]
    words += [] if sampler.top_p is None else ["--top-p", repr(float(sampler.top_p))]
    words += [] if task.forced is None else ["--force-tokens", ids(task.forced)]
    if task.values_at is not None:
        words += ["--values-at", "{}..{}".format(*task.values_at)]
    planned = [(call, False) for call in task.prompt] + [(call, True) for call in task.decode]
    for call, decodes in planned:
        words += ["--method", call.method, "--count", str(call.count), "--length", str(call.length)]
        words += ["--tokens", ids(call.tokens)] if call.tokens else []
        words += ["--position", str(call.position)] if call.position >= 0 else []
        words += ["--decode"] if decodes else []
        words += ["--whole-context"] if call.whole else []
        for source in call.inputs:
            flag = source
            word, _, rest = source.partition(" ")
            if word == "given":
                flag = _input_flag(task.given[int(rest)], place / f"given-{rest}.raw")
            elif word == "output":
                output, _, method = rest.partition(" of ")
                flag = f"output:{method}:{output}"
            words += ["--input", flag]
    return words


def _input_flag(value: CaseValue | None, file: PurePath) -> str:
    """Return one input as the runner reads it; a tensor's bytes are in `file`."""
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


def conclude_native(code: int, log: str) -> None:
    """Pass the runner's messages on as warnings; raise the error of its exit code, if any."""
    if code == 0:
        for line in log.splitlines():
            if line.startswith(_PREFIX):
                warnings.warn(line.removeprefix(_PREFIX), EtscopeWarning, stacklevel=2)
        return
    if code == DEBUG_BUFFER_FULL:
        raise DebugBufferFull(relevant(log))
    if code == POOL_TOO_SMALL:
        check_pools(log)
    raise failure(f"the native runner ended with exit code {code}", log)
