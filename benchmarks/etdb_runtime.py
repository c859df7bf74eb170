"""Measure what the debugger costs a program that runs on the runtime.

The two sides of a comparison take turns, round by round, so that what else the machine does falls
on both; of each side the least median of a round counts.
"""

from __future__ import annotations

import functools
import gc
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.side import Cost
from etscope.capture import open_capture
from etscope.etdb import Session
from etscope.etdb.protocol.launch import Local
from etscope.etdb.protocol.messages import Condition
from etscope.etdb.targets.runtime import RuntimeTarget
from etscope.etdb.targets.runtime_method import prepare_method
from etscope.etdb.targets.target import Watch
from etscope.run._runner_host import native_command
from etscope.run.job import Job, JobCall, read_result
from etscope.run.native import find_runner, find_server
from tests.support.artifacts import Artifact, artifacts

ROUNDS = 9
SECONDS = 0.5  # of each side's turn, about
STEPS = 1000

Turn = Callable[[], Sequence[float]]  # seconds of some runs


def plain_run(name: str) -> Cost:
    """An execution by the plain runner."""
    return _against_plain(name)[0]


def debugged_run(name: str) -> Cost:
    """A run in the debugger to its end, from the command to the answer; as on the other side, state
    and inputs are there before."""
    return _against_plain(name)[1]


def unwatched(name: str) -> Cost:
    """A run in the debugger to its end."""
    return _with_watch(name)[0]


def watched(name: str) -> Cost:
    """The same with one watch for NaN, which never comes."""
    return _with_watch(name)[1]


def stepped(quantile: float) -> Cost:
    """A `step` and what is said of the stop, over a socket of this machine."""
    return Cost(float(np.quantile(_steps(), quantile)))


def apart(name: str) -> Cost:
    """The program run to its end on the runtime, and then its reference in PyTorch."""
    return _lock_step(name)[0]


def together(name: str) -> Cost:
    """Both in lock step: after each operator its value is held against the reference's."""
    return _lock_step(name)[1]


# -- pairs


@functools.cache
def _against_plain(name: str) -> tuple[Cost, Cost]:
    made = artifacts(name)
    inputs = _inputs(made)
    with _debugged(made, inputs) as target:
        debugged = lambda: _seconds(target)  # noqa: E731
        one = statistics.median(_repeated(debugged, 3))
        often = max(3, int(SECONDS / one))
        return _in_turns(lambda: _plain(made, inputs, often), lambda: _repeated(debugged, often))


@functools.cache
def _with_watch(name: str) -> tuple[Cost, Cost]:
    made = artifacts(name)
    with _debugged(made, _inputs(made)) as target:
        plain = lambda: _seconds(target)  # noqa: E731
        watch = lambda: _seconds(target, Watch(Condition.NAN, 0.0, lambda stop: True))  # noqa: E731
        one = statistics.median(_repeated(plain, 3))
        often = max(3, int(SECONDS / one))
        return _in_turns(lambda: _repeated(plain, often), lambda: _repeated(watch, often))


def _in_turns(one: Turn, other: Turn) -> tuple[Cost, Cost]:
    medians = [(statistics.median(one()), statistics.median(other())) for _ in range(ROUNDS)]
    return Cost(min(first for first, _ in medians)), Cost(min(second for _, second in medians))


def _repeated(run: Callable[[], float], often: int) -> list[float]:
    return [run() for _ in range(often)]


def _plain(made: Artifact, inputs: Sequence[Any], often: int) -> list[float]:
    call = JobCall("forward", tuple(inputs), iterations=often, warmup=2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = Job(made.pte, (call,), trace=False)
        subprocess.run(
            native_command([find_runner()], job, folder), check=True, capture_output=True
        )
        return list(read_result(folder).calls[0].samples_ns / 1e9)


def _seconds(target: RuntimeTarget, *watches: Watch) -> float:
    target.restart()
    begin = time.perf_counter()
    end = target.go(-1, lambda stop: False, watches)
    seconds = time.perf_counter() - begin
    if end is not None or not target.ended:
        raise RuntimeError("the run was stopped")
    return seconds


@contextmanager
def _debugged(made: Artifact, inputs: Sequence[Any]) -> Iterator[RuntimeTarget]:
    prepared = prepare_method(open_capture(made.pte), None, "forward", inputs)
    target = RuntimeTarget(prepared, Local())
    try:
        yield target
    finally:
        target.close()


def _inputs(made: Artifact) -> list[Any]:
    with np.load(str(made.inputs)) as arrays:
        return [arrays[key] for key in arrays.files if key.startswith("forward/0/")]


# -- steps


@functools.cache
def _steps() -> tuple[float, ...]:
    made = artifacts("transformer_portable")
    found: list[float] = []
    with _listening(made.pte) as address, closing(_session(made)) as session:
        _done(session, f"target remote {address}")
        while len(found) < STEPS:
            _done(session, "start")
            while session.debugger.stop is not None and len(found) < STEPS:
                begin = time.perf_counter()
                _done(session, "step")
                found.append(time.perf_counter() - begin)
    return tuple(found)


@contextmanager
def _listening(program: Path) -> Iterator[str]:
    server = [str(find_server()), str(program), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(server, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait()


# -- lock step


@functools.cache
def _lock_step(name: str) -> tuple[Cost, Cost]:
    """The least of some sessions each; PyTorch is imported and the files are open before."""
    made = artifacts(name)
    found: dict[Callable[[Artifact], float], list[float]] = {_apart: [], _together: []}
    for _ in range(6):
        for side, seconds in found.items():
            gc.collect()  # the session before has left a gigabyte
            seconds.append(side(made))
    return Cost(min(found[_apart][1:])), Cost(min(found[_together][1:]))


def _apart(made: Artifact) -> float:
    with closing(_session(made)) as session:
        _done(session, "target runtime")
        device = _timed(session, "run")
        _done(session, "target live")
        return device + _timed(session, "run")


def _together(made: Artifact) -> float:
    with closing(_session(made)) as session:
        _done(session, "target runtime")
        _done(session, "break if gap(sqnr) < -200")
        return _timed(session, "run")


def _session(made: Artifact) -> Session:
    return Session(str(made.etrecord), str(made.pte), inputs=_inputs(made))


def _timed(session: Session, line: str) -> float:
    begin = time.perf_counter()
    _done(session, line)
    return time.perf_counter() - begin


def _done(session: Session, line: str) -> None:
    result = session.execute(line)
    if not result.ok:
        raise RuntimeError(f"{line}: {result.error}")
