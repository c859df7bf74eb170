"""The noise between the jobs of a device.

*Noise between jobs.* Two jobs that do identical work on one device differ by more than the runs
within each show: by the state of the processor, by the layout of memory, by the day. Only repeated
jobs show by how much. Jobs are identical when the content of their files, their method, inputs,
iterations, runner and threads, and the known facts of their environment are equal; names, labels,
limits and priority do not matter.

The noise is the standard deviation of the logarithm of a job's time, pooled over the groups of
identical jobs (`compare_samples.pooled_noise`). Jobs with kinds of marks that the judged jobs do
not have do not count. The groups come from the judged jobs; if these were never repeated, from all
other repeated jobs of the device.

An A/B job needs no such noise for its verdict, as it repeats the processes itself.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from etscope.analysis.statistics.compare_samples import Noise, Policy, pooled_noise
from etscope_lab.jobs.generations import ENERGY
from etscope_lab.jobs.records import Job, Series, Standing, State
from etscope_lab.jobs.spec import JobSpec, set_files

IDENTICAL = "identical jobs"
SAME_DEVICE = "other jobs of the device"
NONE = "none"
MOST = 12  # repeated jobs that are read
_CHANGED = (Standing.REGRESSED, Standing.IMPROVED)
_WINDOW = 5  # results in a row, and the fewest of a series whose stability counts
MOST_FLOOR = 1.0  # twice the time

# Fields of a specification without influence on the time of a run.
_NO_INFLUENCE = frozenset(
    {
        "version", "name", "labels", "etrecord", "traced_iterations", "debug_level",
        "timeout_seconds", "metrics", "device", "limits", "attempts", "priority", "quality",
    }
)  # fmt: skip
# Facts of an environment that differ from job to job on the same device.
_CHANGING = ("time", "date", "started", "finished", "uptime", "load", "conditions", "pid", "folder")


@dataclass(frozen=True, slots=True)
class DeviceNoise:
    """The noise between jobs of a device.

    source: `IDENTICAL`, of the judged jobs; `SAME_DEVICE`, of other repeated jobs, when those were
    not repeated; `NONE`. jobs: number of repeated jobs. spread: the standard deviation of the
    logarithm of a job's time, which is about its relative standard deviation. freedom: its degrees
    of freedom.
    """

    source: str = NONE
    jobs: int = 0
    spread: float | None = None
    freedom: int = 0

    @property
    def noise(self) -> Noise | None:
        """The noise in the form that `compare_samples` takes."""
        return None if self.spread is None else Noise(self.spread, self.freedom + 1)

    def floor(self, policy: Policy) -> float | None:
        """The largest relative change between two jobs that noise alone explains. None if it is
        unknown, or exceeds `MOST_FLOOR`: the repeats are too few or too different.
        """
        floor = None if self.noise is None else self.noise.floor(policy)
        return floor if floor is not None and floor <= MOST_FLOOR else None

    def plain(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"source": self.source, "jobs": self.jobs, "spread": self.spread}


def median_ms(job: Job) -> float | None:
    """The median of a job's steady runs; None when it has none."""
    found = (job.summary.get("latency") or {}).get("p50_ms")
    return float(found) if found else None


def device_noise(
    history: Iterable[Job],
    judged: Sequence[Job],
    *,
    time_of: Callable[[Job], float | None] = median_ms,
    most: int = MOST,
) -> DeviceNoise:
    """Compute the noise between jobs on the device of the jobs that are `judged`.

    history: done jobs of any device and kind, newest first; it may hold the judged ones. time_of:
    the time of a job, None when it has none; called for the newest `most` repeated jobs.
    """
    allowed = {kind_of(mark) for job in judged for mark in job.marks}
    devices = {job.device for job in judged}
    groups: dict[str, dict[str, Job]] = defaultdict(dict)
    for job in (*judged, *history):
        counts = job.state is State.DONE and job.device in devices and job.spec.kind != "ab"
        if counts and {kind_of(mark) for mark in job.marks} <= allowed:
            groups[work_of(job)].setdefault(job.id, job)
    mine = {work_of(job) for job in judged}
    for source, same_work in ((IDENTICAL, True), (SAME_DEVICE, False)):
        repeated: list[list[float]] = []  # of two or more jobs each
        left = most
        for work, group in groups.items():
            if (work in mine) is not same_work or len(group) < 2 or left < 2:
                continue
            read = list(group.values())[:left]
            times = [time for job in read if (time := time_of(job))]
            left -= len(times)
            if len(times) > 1:
                repeated.append(times)
        if repeated:
            noise = pooled_noise(repeated)
            return DeviceNoise(source, sum(map(len, repeated)), noise.spread, noise.dumps - 1)
    return DeviceNoise()


@dataclass(frozen=True, slots=True)
class Stability:
    """The steadiness of the times of a device from job to job, 0 to 100, and its inputs.

    Each result counts as its ratio to the level of its series, so a model that changed costs
    nothing. cv: standard deviation / mean. spread: largest / smallest. tail: p99 / p50. rolling:
    the mean standard deviation of five results in a row; not in the score. results: their number.

    The score weighs cv by 0.5 (0 points from 10 % on), spread by 0.25 (0 from 3 on) and tail by
    0.25 (0 from 2 on), as ExecuTorch's `analyze_benchmark_stability.py` does.
    """

    score: float
    cv: float
    spread: float
    tail: float
    rolling: float
    results: int


def stability(found: Iterable[Series]) -> Stability | None:
    """Compute the stability of the device of these series, all of one device. Those with fewer than
    five results do not count; None without any."""
    ratios, rolling = [], []
    for series in found:
        if series.metric == ENERGY:
            continue
        points = [point for point in series.points if point.p50_ms > 0]
        if len(points) < _WINDOW:
            continue
        times = np.array([point.p50_ms for point in points])
        known = (point.expected_ms for point in points if point.expected_ms is not None)
        level, levels = next(known, float(np.median(times))), []
        for point in points:  # marked ones are not judged: they are compared with the last level
            level = point.expected_ms or level
            levels.append(level)
        # The first point of a new level has the one before as expected: it is not a variation.
        ratio = np.array(
            [
                1.0 if point.standing in _CHANGED else point.p50_ms / level
                for point, level in zip(points, levels, strict=True)
            ]
        )
        ratios.append(ratio)
        windows = np.lib.stride_tricks.sliding_window_view(ratio, _WINDOW)
        rolling.append(windows.std(axis=1, ddof=1))
    if not ratios:
        return None
    every = np.concatenate(ratios)
    cv = float(every.std(ddof=1) / every.mean())
    spread, (p50, p99) = float(every.max() / every.min()), np.percentile(every, (50, 99))
    tail = float(p99 / p50)
    parts = (0.5, 1 - cv * 10), (0.25, 1 - (spread - 1) / 2), (0.25, 1 - (tail - 1))
    score = 100 * sum(weight * max(part, 0.0) for weight, part in parts)
    return Stability(score, cv, spread, tail, float(np.concatenate(rolling).mean()), len(every))


def kind_of(mark: str) -> str:
    """Return a mark without its numbers: "from 40 °C" is of the kind of "from 41 °C"."""
    return re.sub(r"[\d.]+", "#", mark)


def work_of(job: Job) -> str:
    """A key of a job's work and environment: equal for identical jobs."""
    return json.dumps(
        [job.device, spec_facts(job.spec), environment_facts(job.environment)], sort_keys=True
    )


def spec_facts(spec: JobSpec) -> dict[str, Any]:
    """The fields of a specification with influence on the time of a run; files by content."""
    plain = spec.model_dump(mode="json", exclude=set(_NO_INFLUENCE))
    files = {field: ref.sha256 or ref.path for field, ref in spec.files.items()}
    set_files(plain, {field: one for field, one in files.items() if field in plain})
    if spec.kind != "ab":
        for field in ("rounds", "min_effect", "confidence"):
            del plain[field]
    return plain


def environment_facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of an environment that stay from job to job, nested mappings as "cpu.model"."""
    facts: dict[str, Any] = {}
    for name, value in environment.items():
        if name.lower().startswith(_CHANGING):
            continue
        if isinstance(value, Mapping):
            inner = environment_facts(value)
            facts |= {f"{name}.{part}": held for part, held in inner.items()}
        else:
            facts[name] = value
    return facts
