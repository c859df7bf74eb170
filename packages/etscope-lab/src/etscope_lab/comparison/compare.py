"""Compare two done jobs: the verdict on their times, and what differs between them.

Each job is one process, or a few, and processes differ by more than the samples within one show.
So the verdict takes the noise between jobs from the history of the device
(`etscope_lab.comparison.noise`). Without such noise, changes below `UNKNOWN` are never reported,
and neither is "no difference": an A/B job, or the same jobs again, give a verdict.

The result is plain JSON, times in ms:

    first, second   {id, title, device, backend, finished_at, marks, latency}
    verdict         "regressed", "improved", "no difference" or "cannot tell" of the second job
                    against the first, from the untraced samples; `reason` says why not, else ""
    relative        second / first - 1 of their trimmed means; low, high: its interval; p
    noise_floor     the largest change that noise between jobs alone explains, None when not known
    noise           {source, jobs, spread}: that noise, see `DeviceNoise`
    min_effect, confidence
    metrics         of two generate jobs [{name, verdict, reason, relative, low, high, p,
                    noise_floor, first_ms, second_ms}]: each time of the prompts that both have, at
                    `confidence` together; the verdict above is about `metric`, the first time,
                    or the one that regressed most. [] of other jobs
    environment     [{name, first, second}]: facts of the environments that differ; `spec`: fields
                    of the specifications that differ
    operators       [{name, phase, module, source, status, first_ms, second_ms, change_ms, relative,
                    verdict, reason}] of the traced runs, the largest changes first; [] without
    notes           [sentence]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etscope.analysis.comparison.diff import diff_traces
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import UNATTRIBUTED
from etscope.analysis.statistics.compare_samples import (
    Comparison,
    Policy,
    Verdict,
    compare_samples,
    locations,
)
from etscope.errors import EtscopeError, MissingDataError, reading
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.identify import ETRECORD, identify
from etscope.formats.program.bpte import read_program_file
from etscope.formats.run_json import RUN_ETDP, RUN_JSON, parse_run_json
from etscope.units import TimeScale
from etscope_lab.comparison.noise import (
    IDENTICAL,
    NONE,
    DeviceNoise,
    device_noise,
    environment_facts,
    work_of,
)
from etscope_lab.jobs.generations import EXECUTION, prompt_file, prompt_of
from etscope_lab.jobs.generations import samples_of as generation_samples
from etscope_lab.jobs.records import Filter, Job, State
from etscope_lab.jobs.spec import MOST_PROMPTS, set_files

if TYPE_CHECKING:
    from etscope_lab.jobs.records import LabApi
    from etscope_lab.store import Store

UNKNOWN = 0.10  # the smallest change that is reported while the noise between jobs is not known

_HISTORY = 100  # jobs of the device that are searched for identical ones
_NOISE_DUMPS = 4  # identical jobs that operators' noise is read from: a dump takes about a second
_MS = Scale(TimeScale.NS, TimeScale.MS)


@dataclass(frozen=True, slots=True)
class Dump:
    """An ETDump, and its ETRecord or program; a record is preferred to a program."""

    path: Path
    explained_by: Sequence[Path] = ()

    def trace(self) -> Trace:
        """Open the dump with its record if there is one, else with its program."""
        dump = read_etdump(self.path)
        program = None
        for path in self.explained_by:
            if identify(path) == ETRECORD:
                return Trace(dump=dump, record=read_etrecord(path))
            program = program or read_program_file(path)[0]
        return Trace(dump=dump, program=program)


def operator_changes(
    first: Dump, second: Dump, policy: Policy, repeats: Sequence[Dump] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each operator, also inside of delegate calls, the largest changes first, and
    notes on the comparison.

    repeats: dumps of jobs identical with the first, for the noise. Raises the errors of
    `diff_traces`.
    """
    diff = diff_traces(
        first.trace(), second.trace(), policy, noise=[one.trace() for one in repeats]
    )
    rows: list[dict[str, Any]] = []
    for method, change in ((m, one) for m in diff.methods for one in m.changes if one.leaf):
        origin = UNATTRIBUTED if change.pair is None else change.pair.shown.attribution
        comparison = change.comparison
        rows.append(
            {
                "name": change.name,
                "phase": method.sides.before.phase,
                "module": origin.module,
                "source": origin.source,
                "status": change.status,
                "first_ms": _ms(change.before),
                "second_ms": _ms(change.after),
                "change_ms": float(_MS(change.change)),
                "relative": None if comparison is None else comparison.relative,
                "verdict": None if comparison is None else comparison.verdict.value,
                "reason": "" if comparison is None else comparison.reason,
            }
        )
    rows.sort(key=lambda row: -abs(row["change_ms"]))
    return rows, [note for method in diff.methods for note in method.notes]


def _ms(ticks: float | None) -> float | None:
    return None if ticks is None else float(_MS(ticks))


@dataclass(frozen=True, slots=True)
class Side:
    """A done job and its samples in ns, by the name of the time: "execution", or for generations
    "token of PROMPT" and so on, in order. dump: the dump of its traced runs, if any.
    """

    job: Job
    samples: Mapping[str, Sequence[int]]
    dump: Dump | None = None


def compare(
    lab: LabApi,
    first: str,
    second: str,
    *,
    store: Store | None = None,
) -> dict[str, Any]:
    """Compare two done jobs of a lab, by id: the second with the first.

    store: the lab's store, if it can be read. It has the models' records, with which operators are
    aligned by module.

    Raises `MissingDataError` for a job that does not exist, is not done or is an A/B job (its
    samples are pairs).
    """
    jobs = [lab.job(name) for name in (first, second)]
    for job in jobs:
        if job.state is not State.DONE:
            raise MissingDataError(f"job {job.id} is {job.state}", hint="done jobs are compared")
        if RUN_JSON not in job.artifacts:
            hint = "an A/B job has its verdict already" if job.spec.kind == "ab" else "run it again"
            raise MissingDataError(f"job {job.id} has no samples to compare", hint=hint)
    known: dict[str, Job] = {}  # done jobs of the devices and models, newest first
    for job in jobs:
        for model in (job.spec.model.sha256, None):
            wanted = Filter(states=(State.DONE,), device=job.device, model_sha256=model)
            known |= {one.id: one for one in lab.jobs(wanted, limit=_HISTORY).jobs}
    history = [one for name, one in known.items() if name not in {job.id for job in jobs}]

    read = cache(partial(_samples_of, lab))

    def noise_of(name: str) -> DeviceNoise:
        def location_ms(job_id: str) -> float | None:
            """The time of a job that the verdict compares; None for one without samples."""
            with suppress(EtscopeError):
                samples = read(job_id).get(name)
                if samples:
                    centre = locations([samples]).centre[0]
                    return float(centre) / 1e6 if np.isfinite(centre) and centre > 0 else None
            return None

        return device_noise(history, jobs, time_of=lambda job: location_ms(job.id))

    with tempfile.TemporaryDirectory(prefix="etscope-compare-") as folder:
        files = Path(folder)
        sides, repeats = [], []
        for number, job in enumerate(jobs):
            dump = _dump(lab, job, files / str(number), store)
            sides.append(Side(job, read(job.id), dump))
        if all(side.dump is not None for side in sides):
            same = [job for job in history if work_of(job) == work_of(jobs[0])]
            for number, job in enumerate(same[:_NOISE_DUMPS]):
                repeats.append(_dump(lab, job, files / f"noise{number}", store))
        known_repeats = [dump for dump in repeats if dump is not None]
        return compare_sides(sides[0], sides[1], noise_of, known_repeats)


_JUDGED = ("reason", "relative", "low", "high", "p")  # of a comparison, as it is shown


def compare_sides(
    first: Side,
    second: Side,
    noise_of: Callable[[str], DeviceNoise],
    repeats: Sequence[Dump],
) -> dict[str, Any]:
    """Compare two jobs after their files were read; see `compare`. noise_of: a time's noise between
    jobs on their device. repeats: dumps of jobs that were identical with the first. Raises
    `MissingDataError` for jobs that have no time in common."""
    policy = Policy()
    jobs = first.job, second.job
    names = [name for name in first.samples if name in second.samples]
    if not names:
        raise MissingDataError(
            f"jobs {jobs[0].id} and {jobs[1].id} have no time in common: "
            f"{', '.join(first.samples) or 'none'}; {', '.join(second.samples) or 'none'}"
        )
    strict = replace(policy, confidence=1 - (1 - policy.confidence) / len(names))
    metrics = {name: _Metric.of(name, first, second, noise_of(name), strict) for name in names}
    worst = [name for name in names if metrics[name].found.verdict is Verdict.REGRESSED]
    main = max(worst, key=lambda name: metrics[name].found.relative or 0.0) if worst else names[0]
    found, noise = metrics[main].found, metrics[main].noise
    rows: list[dict[str, Any]] = []
    notes = []
    if noise.source == IDENTICAL:
        notes.append(f"The noise comes from {noise.jobs} jobs that were repeated unchanged.")
    elif noise.source != NONE:
        notes.append(
            f"Neither job was repeated: the noise comes from {noise.jobs} other jobs on "
            "this device."
        )
    for which, job in zip(("first", "second"), jobs, strict=True):
        if job.marks:
            notes.append(f"Marks of the {which} job: {'; '.join(job.marks)}.")
    if first.dump is not None and second.dump is not None:
        try:
            rows, more = operator_changes(
                first.dump, second.dump, policy if repeats else _wider(policy), repeats
            )
            notes += more
        except EtscopeError as error:
            notes.append(f"Operators are not compared: {error}.")
    return {
        "first": _shown(jobs[0]),
        "second": _shown(jobs[1]),
        "verdict": found.verdict.value,
        **{key: getattr(found, key) for key in _JUDGED},
        "noise_floor": noise.floor(policy),
        "noise": noise.plain(),
        "metric": main,
        "metrics": [] if names == [EXECUTION] else [one.plain() for one in metrics.values()],
        "min_effect": policy.min_effect,
        "confidence": policy.confidence,
        "environment": _differences(*(environment_facts(job.environment) for job in jobs)),
        "spec": _differences(*(_asked(job) for job in jobs)),
        "operators": rows,
        "notes": notes,
    }


# -- the verdict


@dataclass(frozen=True, slots=True)
class _Metric:
    """The verdict on one time of two jobs, and the noise that it takes into account."""

    name: str
    found: Comparison
    noise: DeviceNoise
    policy: Policy

    @classmethod
    def of(
        cls, name: str, first: Side, second: Side, noise: DeviceNoise, policy: Policy
    ) -> _Metric:
        return cls(name, _verdict(name, first, second, noise, policy), noise, policy)

    def plain(self) -> dict[str, Any]:
        found = self.found
        return {
            "name": self.name,
            "verdict": found.verdict.value,
            **{key: getattr(found, key) for key in _JUDGED},
            "noise_floor": self.noise.floor(self.policy),
            "first_ms": _ms(found.before),
            "second_ms": _ms(found.after),
        }


def _verdict(
    name: str, first: Side, second: Side, noise: DeviceNoise, policy: Policy
) -> Comparison:
    samples = first.samples[name], second.samples[name]
    known = noise.noise
    found = compare_samples(
        *samples, policy if known is not None else _wider(policy), noise=known, step=1.0
    )
    devices = [side.job.device for side in (first, second)]
    methods = [side.job.summary.get("method") for side in (first, second)]
    reason, floor = found.reason, noise.floor(policy)
    if devices[0] != devices[1]:
        reason = f"they ran on different devices: {devices[0]} and {devices[1]}"
    elif methods[0] != methods[1]:
        reason = f"they ran different methods: {methods[0]} and {methods[1]}"
    elif found.verdict not in (Verdict.NO_DIFFERENCE, Verdict.CANNOT_TELL):
        return found
    elif known is None:
        if min(found.samples) >= policy.min_samples:
            reason = (
                f"one process each and no repeated job on the device: a change below "
                f"{UNKNOWN:.0%} may be noise; submit an A/B job, or both jobs again"
            )
    elif found.verdict is Verdict.NO_DIFFERENCE:
        return found
    elif found.p is None:
        pass
    elif floor is None:
        reason = f"{found.reason}; {noise.jobs} repeated jobs do not show the noise: submit more"
    elif floor > policy.min_effect:
        again = "the same jobs again lower it" if noise.freedom < 10 else "an A/B job sees more"
        reason = f"{found.reason}; jobs differ by up to {floor:.1%} by noise: {again}"
    return replace(found, verdict=Verdict.CANNOT_TELL, reason=reason)


def _wider(policy: Policy) -> Policy:
    return replace(policy, min_effect=max(policy.min_effect, UNKNOWN))


# -- what differs


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = list(dict.fromkeys([*first, *second]))
    return [
        {"name": name, "first": first.get(name), "second": second.get(name)}
        for name in names
        if first.get(name) != second.get(name)
    ]


def _asked(job: Job) -> dict[str, Any]:
    """The fields of a specification, nested ones as "device.name", files by name and content."""
    plain = job.spec.model_dump(mode="json", exclude={"version", "priority", "timeout_seconds"})
    names = {
        field: f"{ref.name or ref.path or 'file'} ({(ref.sha256 or '')[:12]})"
        for field, ref in job.spec.files.items()
    }
    set_files(plain, names)
    facts: dict[str, Any] = {}
    for name, value in plain.items():
        if isinstance(value, dict):
            facts |= {f"{name}.{part}": held for part, held in value.items()}
        else:
            facts[name] = value
    return facts


def _shown(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "title": job.spec.title,
        "device": job.device,
        "backend": job.summary.get("backend"),
        "finished_at": None if job.finished_at is None else job.finished_at.isoformat(),
        "marks": list(job.marks),
        "latency": job.summary.get("latency"),
    }


# -- reading


def _samples_of(lab: LabApi, job_id: str) -> dict[str, list[int]]:
    """The samples of a job's untraced runs, in ns, by the name of the time. Raises
    `MissingDataError` when there are none."""
    found: dict[str, list[int]] = {}
    artifacts = lab.job(job_id).artifacts
    for number in range(MOST_PROMPTS):
        if (name := prompt_file(number, RUN_JSON)) not in artifacts:
            break
        with reading("run.json of a job", job_id):
            run = parse_run_json(b"".join(lab.read(job_id, name)))
            for latency in run.latencies:
                if latency.traced is None and len(latency.samples_ns):
                    found.setdefault(EXECUTION, latency.samples_ns.tolist())
            for metric, samples in generation_samples(run).items():
                found[f"{metric} of {prompt_of(run)}"] = samples.tolist()
    if not found:
        raise MissingDataError(f"job {job_id} has no samples without tracing")
    return found


def _dump(lab: LabApi, job: Job, folder: Path, store: Store | None) -> Dump | None:
    """Copy a job's dump into a new folder, and its record and model next to that folder; None for a
    job without a dump."""
    if RUN_ETDP not in job.artifacts:
        return None
    folder.mkdir()
    names = [name for name in (RUN_ETDP, RUN_JSON) if name in job.artifacts]
    path = lab.fetch(job.id, folder, names)[0]  # its run.json has the phases of its calls
    explains = []
    for field in ("etrecord", "model"):
        ref = job.spec.files.get(field)
        if store is not None and ref is not None and ref.sha256 is not None:
            explains.append(folder.parent / ref.sha256)
            if not explains[-1].exists():  # identical jobs have the same files, which may be large
                with suppress(EtscopeError):
                    store.fetch(ref.sha256, explains[-1])
    return Dump(path, tuple(one for one in explains if one.is_file()))
