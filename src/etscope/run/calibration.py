"""Measure the peaks of a machine: the methods of a calibration's program, timed in rounds; and make
that program, which is kept in the user's cache folder.

from etscope.run.calibration import calibrate

print(calibrate().peaks().peak_flops("float32"))
"""

from __future__ import annotations

import hashlib
import math
import platform
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import numpy as np

from etscope._version import __version__
from etscope.analysis.calibration import Execution, executions_of, peaks_of
from etscope.errors import (
    DeviceLost,
    EtscopeWarning,
    MissingDataError,
    MissingDependencyError,
    RuntimeFailure,
    UsageError,
)
from etscope.formats.bytes.files import PathLike, atomic_write, make_folder
from etscope.formats.calibration import (
    CACHE_FILES,
    FLOAT16,
    STEADY,
    CalibratedDevice,
    Calibration,
    Peaks,
    caches_of,
    calibrations_folder,
)
from etscope.formats.conditions import Conditions, conditions_here, read_files
from etscope.formats.program.pte import Program, read_pte
from etscope.run._runner_host import HERE, Place
from etscope.run.execute import AUTO, ExecutionOptions, Folder, chosen_runner, execute
from etscope.run.job import Job, JobCall, Result
from etscope.support.optional import require

__all__ = [
    "BUSY",
    "CalibrationOptions",
    "Machine",
    "calibrate",
    "find_program",
]

ROUNDS = 9
_SAMPLE_NS = 5e6  # the shortest time of a sample: executions of less are repeated
_MOST_ITERATIONS = 500  # bounds a sample of executions that take next to no time
_MOST_MEMORY = 4  # a working set takes no more than a fourth of the memory that is available
BUSY = 0.5  # load per core from which on others are at work, too
_WORST = 3  # unsteady measurements that are named


@dataclass(frozen=True, slots=True)
class CalibrationOptions:
    """Options of a calibration.

    runner: "python", "native" or "auto". threads: thread pool sizes to measure; () for 1 and the
    runtime's default. rounds: how often everything is measured. timeout: seconds for each of the
    processes.
    """

    runner: str = AUTO
    threads: tuple[int, ...] = ()
    rounds: int = ROUNDS
    timeout: float | None = None

    def check(self) -> None:
        """Raise `UsageError` for options that nothing can be measured with."""
        if self.rounds < 1:
            raise UsageError("a calibration takes at least one round")
        if any(threads < 1 for threads in self.threads):
            raise UsageError("a thread pool has at least one thread")


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """A machine to measure: its runners, a function that reads its current conditions, and known
    facts about the device.
    """

    place: Place
    conditions: Callable[[], Conditions]
    device: CalibratedDevice


def this_machine() -> Machine:
    now = conditions_here()
    device = CalibratedDevice(
        name=platform.node(),
        cpu=now.cpu or platform.processor(),
        cores=now.cores,
        architecture=platform.machine(),
        system=f"{platform.system()} {platform.release()}".strip(),
        caches=caches_of(read_files(CACHE_FILES)),
    )
    return Machine(HERE, conditions_here, device)


def calibrate(
    program: PathLike,
    options: CalibrationOptions | None = None,
    *,
    machine: Machine | None = None,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> Calibration:
    """Measure the peaks of a machine, this one by default, with a program of `find_program`.

    told: a function that is called with the number of processes that have ended, and the number of
    all processes.

    Raises `UsageError` for wrong options, `FormatError` for a damaged program, `MissingDataError`
    for a program without anything to measure, `MissingDependencyError` without a runner, and
    `RuntimeFailure` if nothing runs. Groups that do not run, unsteady measurements and a busy
    machine are reported as marks of the result.
    """
    options = options or CalibrationOptions()
    options.check()
    machine = machine or this_machine()
    path = Path(program).absolute()
    opened = read_pte(path)
    before = machine.conditions()
    memory = before.memory_available_bytes
    executions = executions_of(
        (method.name for method in opened.methods),
        None if memory is None else memory // _MOST_MEMORY,
    )
    if not executions:
        raise MissingDataError(
            f"{program} has no method that measures a peak",
            hint="name a file that does not exist, to make the program: --program FILE",
        )
    work = _Work(opened, path, options, machine.place)
    threads: Sequence[int | None] = sorted(set(options.threads))
    first = work.run(executions, threads[-1] if threads else None)
    most = first.threads
    if not threads:
        threads = [most] if most in (None, 1) else [1, most]
    told(1, 1 + len(threads))
    peaks = []
    for number, count in enumerate(threads):
        peaks.append(work.measure(first, count))
        told(2 + number, 1 + len(threads))
    after = machine.conditions()
    return Calibration(
        device=machine.device,
        runner=first.runner,
        etscope=__version__,
        executorch=first.executorch,
        measured_at=datetime.fromtimestamp(before.at, timezone.utc).replace(microsecond=0),
        all_peaks=tuple(peaks),
        before=before,
        after=after,
        marks=(*work.failed, *_busy(before, machine.device), *_unsteady(peaks)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _First:
    """The first execution of each method, which decides how often to repeat it: ns by execution;
    and what the runner says of itself."""

    times: dict[Execution, float]
    runner: str
    executorch: str | None
    threads: int | None


@dataclass(slots=True, eq=False)
class _Work:
    """The processes of a calibration. failed: what did not run, in words."""

    program: Program
    path: Path
    options: CalibrationOptions
    place: Place
    failed: list[str] = field(default_factory=list)

    def run(self, executions: Sequence[Execution], threads: int | None) -> _First:
        """Execute everything once. If that fails, execute each group alone, and leave out the
        groups that fail.
        """
        try:
            return self._first(executions, threads)
        except DeviceLost:
            raise
        except RuntimeFailure as error:
            found = []
            for group in dict.fromkeys(one.group for one in executions):
                mine = [one for one in executions if one.group == group]
                try:
                    found.append(self._first(mine, threads))
                except DeviceLost:
                    raise
                except RuntimeFailure as failure:
                    reason = failure.message.splitlines()[0]
                    self.failed.append(f"{group} could not be measured: {reason}")
            if not found:
                raise error from None
        times = {one: ns for each in found for one, ns in each.times.items()}
        return _First(times, found[0].runner, found[0].executorch, found[0].threads)

    def _first(self, executions: Sequence[Execution], threads: int | None) -> _First:
        calls = [(one, 1) for one in executions]
        result = self._execute(calls, threads)
        times = {
            one: float(call.samples_ns[0])
            for one, call in zip(executions, result.calls, strict=True)
        }
        return _First(times, result.runner, result.executorch, result.threads)

    def measure(self, first: _First, threads: int | None) -> Peaks:
        """Time everything that ran, in rounds, so that a disturbance of the machine affects a round
        as a whole. A round counts the time of its fastest execution: the others only lost time to
        other work on the machine.
        """
        each_round = [
            (one, min(max(math.ceil(_SAMPLE_NS / max(ns, 1.0)), 1), _MOST_ITERATIONS))
            for one, ns in first.times.items()
        ]
        result = self._execute(each_round * self.options.rounds, threads)
        times: dict[Execution, list[float]] = {one: [] for one in first.times}
        timed = [one for one, _ in each_round] * self.options.rounds
        for one, call in zip(timed, result.calls, strict=True):
            times[one].append(float(call.samples_ns.min()))
        return peaks_of(result.threads, times)

    def _execute(self, calls: Iterable[tuple[Execution, int]], threads: int | None) -> Result:
        """Run executions so many times each, in one process and in order, each after one to warm
        up."""
        job = Job(
            program=self.path,
            calls=tuple(
                JobCall(one.method, _inputs(one), iterations, warmup=1) for one, iterations in calls
            ),
            trace=False,
            threads=threads,
        )
        runner = chosen_runner(self.options.runner, [job], self.program, place=self.place)
        folder = Folder()
        try:
            options = ExecutionOptions(runner, timeout=self.options.timeout, place=self.place)
            return execute(job, folder.path, options, self.program).result
        finally:
            folder.remove()


def _inputs(one: Execution) -> tuple[np.ndarray, np.ndarray]:
    dtype = np.float16 if one.dtype == FLOAT16 else np.float32
    return np.full((one.rows, 1), 0.5, dtype), np.full((1, one.columns), 0.25, dtype)


def _busy(before: Conditions, device: CalibratedDevice) -> list[str]:
    load, cores = before.load, before.cores or device.cores
    if load is None or not cores or load / cores < BUSY:
        return []
    return [f"other work ran on the machine: a load of {load:.2f} on {cores} cores before it began"]


def _unsteady(all_peaks: Sequence[Peaks]) -> list[str]:
    found = [
        (estimate.spread, f"{name}, threads {peaks.threads or 'unknown'}:")
        for peaks in all_peaks
        for name, estimate in peaks.estimates()
        if not estimate.is_steady
    ]
    if not found:
        return []
    total = sum(len(list(peaks.estimates())) for peaks in all_peaks)
    worst = sorted(found, reverse=True)[:_WORST]
    named = "; ".join(f"{name} {spread:.0%}" for spread, name in worst)
    return [
        f"{len(found)} of {total} measurements spread by more than {STEADY:.0%} (the most: {named})"
    ]


# -- the program

PROGRAM = "calibration.pte"
_PACKAGE = Path(__file__).resolve().parents[2]
# Programs change with these.
_SOURCES = (_PACKAGE / "analysis" / "calibration.py", _PACKAGE / "bridge" / "calibration.py")


def find_program(path: PathLike | None = None) -> Path:
    """Return the calibration program at `path`, by default in the user's cache folder. It is made
    if it does not exist; it can then be used on any machine of this version of ExecuTorch. A dtype
    without possible products is left out, with a warning.

    Raises `MissingDependencyError` without torch and executorch, `ExportFailure` if they fail,
    `UsageError` for a folder that cannot be written.
    """
    path = _cached_program() if path is None else Path(path)
    if path.is_file():
        return path
    make_folder(path.parent)
    for package in ("torch", "executorch"):
        require(package, wanted_by="the program of a calibration")
    from etscope.bridge.calibration import calibration_program

    data, left_out = calibration_program()
    with atomic_write(path) as file:
        file.write(data)
    for dtype, reason in left_out.items():
        text = f"the calibration has no products in {dtype}: {reason}"
        warnings.warn(text, EtscopeWarning, stacklevel=2)
    return path


def _cached_program() -> Path:
    """Return the path of the program for the installed version of ExecuTorch."""
    try:
        version = metadata.version("executorch")
    except metadata.PackageNotFoundError as error:
        raise MissingDependencyError(
            "making the calibration program needs executorch, which is not installed",
            hint="make the program where executorch is installed (etscope calibrate "
            "--program FILE), and name it here",
        ) from error
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in _SOURCES)).hexdigest()[:12]
    return calibrations_folder().parent / f"calibration-{version}-{digest}" / PROGRAM
