"""Readings of a device while a runner works on it, and what they say of the executions.

Which execution ran at a reading is known to some tenths of a second: the last execution ends with
the runner's command, but for what a runner does then (writing its result, ending Python).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import EtscopeError
from etscope.formats.conditions import Conditions
from etscope.run.remote import Completed
from etscope_lab.comparison.changes import levels
from etscope_lab.devices.driver import Driver

_EVERY = 1.0  # seconds between two readings
_SHARE = 0.02  # of the time may be spent on reading, as that disturbs what is measured
_MOST = 1000  # readings of a long run are this many times e-fold per e-fold of its length
_JOIN = 5.0  # seconds; a device that hangs answers a reading late
_STOLEN = 0.05  # of the time, by other virtual machines, that disturbs
_OTHERS = 0.5  # cores that other programs use, which disturbs
_CLOCK = 0.10  # below the greatest clock of the run, which disturbs
_SLOWER = 0.05  # a change of a sustained load's times that is one, and of the clock below it
_BLOCKS, _FEWEST, _EACH = 60, 20, 5  # parts of equal time, at least so many, of so many executions
_LASTS = 5  # parts of the last level: a shorter one may be a program that disturbs for a moment
_MS = 1e6  # ns

Samples = npt.NDArray[np.int64]


@dataclass(eq=False)
class Watched:
    """A `Carrier` to a device that calls `look` about every second while a command runs there.

    spans: when each command began and ended, seconds since the epoch by this machine's clock.
    """

    driver: Driver
    look: Callable[[], None]
    spans: list[tuple[float, float]] = field(default_factory=list)

    def push(self, files: Mapping[Path, str]) -> None:
        self.driver.push(files)

    def pull(self, names: Sequence[str], folder: Path) -> None:
        self.driver.pull(names, folder)

    def call(self, command: Sequence[str], timeout: float | None) -> Completed:
        with watching(self.look):
            begin = time.time()
            try:
                return self.driver.call(command, timeout)
            finally:
                self.spans.append((begin, time.time()))


@contextmanager
def watching(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` about every second in a thread, until the block ends or the device is lost."""
    ended = threading.Event()

    def watch() -> None:
        begin, pause = time.monotonic(), _EVERY
        with suppress(EtscopeError):  # whoever uses the device next reports it
            while not ended.wait(pause):
                at = time.monotonic()
                look()
                now = time.monotonic()
                pause = max(_EVERY, (now - at) / _SHARE, (now - begin) / _MOST)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join(_JOIN)


@dataclass(frozen=True, slots=True)
class Course:
    """The executions of a run and the readings during it.

    samples_ns: [executions]. readings: with the execution that ran then, from 1, in order. threads:
    the runtime's thread pool size, None if unknown.
    """

    samples_ns: Samples
    readings: tuple[tuple[int, Conditions], ...]
    threads: int | None

    @classmethod
    def of(
        cls, samples_ns: Samples, end: float, readings: Sequence[Conditions], threads: int | None
    ) -> Course:
        """Place the readings of a run that ended at `end`."""
        after = (samples_ns.sum() - np.cumsum(samples_ns)) / 1e9  # from each one's end
        ends = end - after
        begin = ends[0] - samples_ns[0] / 1e9
        inside = [one for one in readings if begin <= one.at <= end]
        at = np.searchsorted(ends, [one.at for one in inside])
        at = np.minimum(at, len(ends) - 1) + 1
        return cls(samples_ns, tuple(zip(at.tolist(), inside, strict=True)), threads)

    def to_json(self, readings: Sequence[Conditions]) -> list[dict[str, Any]]:
        """All readings of a job as plain JSON, those of the run with the `execution` and with the
        `disturbance` since the reading before it, if there was one."""
        own = {id(one): at for at, one in self.readings}
        reasons = {id(self.readings[n + 1][1]): why for n, why in enumerate(self._reasons()) if why}
        return [
            asdict(one)
            | ({"execution": own[id(one)]} if id(one) in own else {})
            | ({"disturbance": reasons[id(one)]} if id(one) in reasons else {})
            for one in readings
        ]

    def disturbed(self) -> tuple[float, str]:
        """The share of the executions that were disturbed, and by what, in words."""
        reasons = self._reasons()
        edges = [at for at, _ in self.readings]
        count = sum(b - a for (a, b), why in zip(pairwise(edges), reasons, strict=True) if why)
        longest = max(filter(None, reasons), key=reasons.count, default="")
        return count / len(self.samples_ns), longest

    def _reasons(self) -> list[str]:
        """Return what disturbed the time between each reading and the next, "" for nothing."""
        top = max((_clock(one) or 0.0 for _, one in self.readings), default=0.0)
        return [self._reason(a, b, top) for (_, a), (_, b) in pairwise(self.readings)]

    def _reason(self, before: Conditions, after: Conditions, top: float) -> str:
        seconds = max(after.at - before.at, 1e-9)
        if before.stolen_s is not None and after.stolen_s is not None and after.cores:
            stolen = (after.stolen_s - before.stolen_s) / seconds / after.cores
            if stolen > _STOLEN:
                return "other virtual machines took time of the CPU"
        if before.busy_s is not None and after.busy_s is not None and after.cores:
            own = after.cores if self.threads is None else self.threads
            if (after.busy_s - before.busy_s) / seconds - own > _OTHERS:
                return "other programs used the CPU"
        clock = _clock(after)
        if clock is not None and clock < (1 - _CLOCK) * top:
            return "the clock was lower than before or after"
        return ""

    def sustained(self) -> dict[str, Any]:
        """Return how the times moved under a sustained load, as plain JSON.

        verdict: "steady", "throttled" (slower, with a lower clock), "slower", "faster" or "cannot
        tell". reason: in words. seconds, executions: of the load. begin_ms, end_ms: the medians of
        the first and the last level of the times. relative: the change between them. after_s: when
        the last level began.
        """
        total = np.cumsum(self.samples_ns)
        about = {"seconds": float(total[-1] / 1e9), "executions": len(total)}
        count = min(_BLOCKS, len(total) // _EACH)
        if count < _FEWEST:
            few = f"{len(total)} executions are too few: give a longer duration_seconds"
            return {"verdict": "cannot tell", "reason": few, **about}
        block = np.minimum(total * count // total[-1], count - 1)
        kept = np.unique(block)  # one that a long execution covers has none
        middles = np.array([np.median(self.samples_ns[block == one]) for one in kept])
        starts = levels(np.log(middles), _SLOWER)
        if starts is None:
            why = "the times alternate between levels"
            return {"verdict": "cannot tell", "reason": why, **about}
        edges = [0, *starts, len(kept)]
        found = [float(np.median(middles[a:b])) for a, b in pairwise(edges)]
        first = int(np.searchsorted(block, kept[edges[-2]]))
        relative = found[-1] / found[0] - 1
        about |= {"begin_ms": found[0] / _MS, "end_ms": found[-1] / _MS, "relative": relative}
        if not starts or (max(found) / min(found) - 1 < _SLOWER):
            return {"verdict": "steady", "reason": "", **about}
        if abs(relative) < _SLOWER:
            why = "the times changed, and changed back"
            return {"verdict": "cannot tell", "reason": why, **about}
        if edges[-1] - edges[-2] < _LASTS:
            why = "the last change is too near to the end: give a longer duration_seconds"
            return {"verdict": "cannot tell", "reason": why, **about}
        about["after_s"] = float((total[first] - self.samples_ns[first]) / 1e9)
        if relative < 0:
            return {"verdict": "faster", "reason": "", **about}
        was = int(np.searchsorted(block, kept[edges[1]]))
        verdict, reason = self._cause(was, first)
        return {"verdict": verdict, "reason": reason, **about}

    def _cause(self, first: int, last: int) -> tuple[str, str]:
        """Why the executions from `last` on are slower than those before `first`."""
        before = [one for at, one in self.readings if at <= first]
        after = [one for at, one in self.readings if at > last]
        clocks = [[c for one in part if (c := _clock(one))] for part in (before, after)]
        if not all(clocks):
            return "slower", "the clock is not known, so this may be throttling"
        was, now = (float(np.median(part)) for part in clocks)
        heats = [one.temperature_c for one in after if one.temperature_c is not None]
        at = f" at {max(heats):.0f} °C" if heats else ""
        if now < (1 - _SLOWER) * was:
            return "throttled", f"the clock fell from {was:.0f} to {now:.0f} MHz{at}"
        return "slower", f"not by the clock, which was {was:.0f} and is {now:.0f} MHz{at}"


def _clock(one: Conditions) -> float | None:
    """The fastest core's clock, MHz."""
    return max(one.frequencies_mhz, default=None)
