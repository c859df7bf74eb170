"""The history of a device's jobs: the noise between jobs, and points at which a model changed.

*Noise between jobs.* Two jobs that do identical work on one device differ by more than the runs
within each show: by the state of the processor, by the layout of memory, by the day. Only repeated
jobs show by how much. Jobs are identical when the content of their files, their method, inputs,
iterations, runner and threads, and the known facts of their environment are equal; names, labels,
limits and priority do not matter.

The noise is the standard deviation of the logarithm of a job's time, pooled over the groups of
identical jobs (`compare_samples.pooled_noise`). Jobs with kinds of marks that the judged jobs do
not have do not count. The groups come from the judged jobs; if these were never repeated, from all
other repeated jobs of the device.

An A/B job needs no such noise for its verdict, as it repeats the processes itself. Its rounds
cannot show how much whole jobs differ; `ab_history` computes that from repeated A/B jobs.

*Changes in a series.* Each point of a series is a job, and the noise that counts is that between
jobs, which its samples do not show. So a point is judged by the points before it, with
`compare_samples.compare_dump`:

1. *The window* is the up to 12 points before, 5 at least, since the last confirmed change. Points
   with marks (conditions that were not held) are neither judged nor in a window; what a device
   never shows, as a virtual machine its temperature, is not such a mark.
2. *A point is off* when its median regressed or improved against the window. Outliers are
   not in the window.
3. *A point that is off is suspicious* until the next point without marks exists. If that is off as
   well, by the same window and in the same direction, the model *regressed* or *improved* at the
   first of the two, and the window begins anew there; else the first was an *outlier*.

The p of a point is not corrected for the number of points: a correction for a family would let the
verdict of an old point change with each new job. The second point is the correction. Among points
without a change and with normal noise, 1.3 % are suspicious at the default confidence, and 1 of
1,700 or fewer is confirmed as a change; with the heavy tails of Student's t of 3 degrees of freedom
4.8 % and 1 of 550 (the worst of noises of 1, 2, 5 and 10 %, in 300 series of 100 points each).

So one bad job never makes a regression, as in FAI-PEP (both of the last two runs must be bad, by up
to 12 runs and 5 at least) and in PyTorch's HUD (two violations at the end); unlike theirs, the
bounds follow from the noise of the series and a stated confidence. A drift that is slow compared
with the window moves the window along and is not found; nor is a second change before the fifth
point after the first one.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from etscope.analysis.statistics.compare_samples import (
    Comparison,
    Noise,
    Policy,
    Verdict,
    compare_dump,
    pooled_noise,
)
from etscope_lab.jobs.records import Job, Point, Series, State
from etscope_lab.jobs.spec import JobSpec, set_files

IDENTICAL = "identical jobs"
SAME_DEVICE = "other jobs of the device"
NONE = "none"
MOST = 12  # repeated jobs that are read
WINDOW, FEWEST = 12, 5
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


@dataclass(frozen=True, slots=True)
class AbHistory:
    """The results of repeated A/B jobs with one model and baseline on one device.

    changes: the relative change in each job. spread: the standard deviation of the logarithms of
    the changes, None for fewer than two. floor: the change that noise alone may cause in one more
    such job, at the job's confidence.
    """

    changes: tuple[float, ...]
    spread: float | None
    floor: float | None


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
    allowed = {_kind_of(mark) for job in judged for mark in job.marks}
    devices = {job.device for job in judged}
    groups: dict[str, dict[str, Job]] = defaultdict(dict)
    for job in (*judged, *history):
        counts = job.state is State.DONE and job.device in devices and job.spec.kind != "ab"
        if counts and {_kind_of(mark) for mark in job.marks} <= allowed:
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


def _kind_of(mark: str) -> str:
    """A mark without its numbers: "warmed from 40 to 55 °C" is the kind of "from 41 to 60 °C"."""
    return re.sub(r"[\d.]+", "#", mark)


def ab_history(history: Iterable[Job], job: Job) -> AbHistory:
    """Collect the results of earlier A/B jobs that were identical with `job`, and of `job`
    itself.

    The spread between jobs includes variation that the rounds of one job do not show. It is unknown
    for fewer than two jobs.
    """
    work = work_of(job)
    found = {
        one.id: float(change)
        for one in (*history, job)
        if one.state is State.DONE
        and one.device == job.device
        and (change := (one.summary.get("ab") or {}).get("relative")) is not None
        and work_of(one) == work
    }
    changes = tuple(found.values())
    if len(changes) < 2:
        return AbHistory(changes, None, None)
    noise = replace(pooled_noise([[1 + change for change in changes]]), sides=(len(changes), 1))
    return AbHistory(
        changes, noise.spread, noise.floor(Policy(job.spec.min_effect, job.spec.confidence))
    )


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


class Standing(str, Enum):
    """The verdict on a point, by the points before it and the one after it."""

    UNJUDGED = "unjudged"
    """Marked, or fewer than five points before it."""
    STEADY = "steady"
    SUSPICIOUS = "suspicious"
    """Off, and the next point is still missing."""
    OUTLIER = "outlier"
    """Off, but the next one was not."""
    REGRESSED = "regressed"
    """Slower, and so was the next one: the change lies between this point and the one before."""
    IMPROVED = "improved"

    def __str__(self) -> str:
        return self.value


# By the verdict on a point and on the one after it.
_CONFIRMED = {Verdict.REGRESSED: Standing.REGRESSED, Verdict.IMPROVED: Standing.IMPROVED}


@dataclass(frozen=True, slots=True)
class JudgedPoint:
    """A point and its verdict. expected_ms: the middle of the window; low_ms, high_ms: the bounds
    that follow from the window; relative: distance of the point from the middle. None without a
    window. before: the job before the point, when the model changed there."""

    point: Point
    standing: Standing
    expected_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    relative: float | None = None
    before: str | None = None

    def plain(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "job": self.point.job_id,
            "standing": self.standing.value,
            "expected_ms": self.expected_ms,
            "low_ms": self.low_ms,
            "high_ms": self.high_ms,
            "relative": self.relative,
            "before": self.before,
        }


def judge_series(series: Series, policy: Policy | None = None) -> list[JudgedPoint]:
    """Judge each point of a series, oldest first."""
    policy = policy or Policy()
    found: list[JudgedPoint] = []
    level: list[float] = []  # times of the points that later ones are compared with
    pending: tuple[int, Verdict] | None = None  # a point that is off; its window is still the last
    last: str | None = None
    for point in series.points:
        if point.marked or not point.p50_ms > 0:
            found.append(JudgedPoint(point, Standing.UNJUDGED))
            continue
        if pending is not None:
            index, off = pending
            first, pending = found[index], None
            if compare_dump(level[-WINDOW:], point.p50_ms, policy).verdict is off:
                found[index] = replace(first, standing=_CONFIRMED[off])
                level = [first.point.p50_ms]
            else:
                found[index] = replace(first, standing=Standing.OUTLIER, before=None)
        if len(level) < FEWEST:
            found.append(JudgedPoint(point, Standing.UNJUDGED))
            level.append(point.p50_ms)
        else:
            now = compare_dump(level[-WINDOW:], point.p50_ms, policy)
            if now.verdict in _CONFIRMED:
                pending = len(found), now.verdict
                found.append(_judged(point, Standing.SUSPICIOUS, now, policy, last))
            else:
                found.append(_judged(point, Standing.STEADY, now, policy, None))
                level.append(point.p50_ms)
        last = point.job_id
    return found


def _judged(
    point: Point, standing: Standing, by: Comparison, policy: Policy, before: str | None
) -> JudgedPoint:
    bound = 1 + max(by.noise_floor, policy.min_effect)
    return JudgedPoint(
        point=point,
        standing=standing,
        expected_ms=by.before,
        low_ms=by.before / bound,
        high_ms=by.before * bound,
        relative=by.relative,
        before=before,
    )


def why_unjudged(points: Sequence[Point]) -> str:
    """Say why none of the points of a series can be judged, with a count of each kind of mark, and
    what to do; "" when some can."""
    fair = sum(not point.marked and point.p50_ms > 0 for point in points)
    if not points or fair > FEWEST:
        return ""
    number = len(points)
    kinds = Counter(kind for one in points for kind in {_kind_of(mark) for mark in one.marks})
    counted = [f"{kind.replace('#', '…')} ({count})" for kind, count in kinds.most_common()]
    caveats = "; ".join(counted)
    words = [
        f"None of {number} results is judged." if number > 1 else "The only result is not judged.",
        f"Caveats, with the number of results: {caveats}." if caveats else "",
        f"A result is judged when it has no caveat and {FEWEST} results without one are before it.",
        "Measure again under other conditions: etscope lab submit --again." if caveats else "",
    ]
    return " ".join(filter(None, words))


def changes_of(judged: Sequence[JudgedPoint]) -> list[JudgedPoint]:
    """Return the points at which the model changed, and suspicious points."""
    shown = (Standing.REGRESSED, Standing.IMPROVED, Standing.SUSPICIOUS)
    return [one for one in judged if one.standing in shown]
