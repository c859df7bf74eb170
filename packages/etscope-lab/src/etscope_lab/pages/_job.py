"""Contents of the page of one job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from etscope.analysis.generation.pace import Pace
from etscope.analysis.profile.counted import slow_runs
from etscope.errors import EtscopeError
from etscope.formats.generation import parse_generation
from etscope.formats.json_values import JsonValue
from etscope.formats.run_json import RUN_ETDP, RUN_JSON
from etscope.model.table import Kind
from etscope_lab.jobs.generations import PROMPT, prompt_file, rows_of
from etscope_lab.jobs.job_tables import findings_of, generation_sections
from etscope_lab.jobs.records import LATENCY, Job, State
from etscope_lab.lab import Lab
from etscope_lab.pages._artifact_builders import plain_table
from etscope_lab.pages._artifact_cache import ArtifactCache
from etscope_lab.pages._artifact_pages import (
    cached_tables,
    has_dump,
    operators_recipe,
    sides_recipe,
)

_LOG_SHOWN = 200_000  # characters, the last ones
SLOW = "disturbed"  # the series of executions that other programs made slow
_MS = 1e6  # ns
_MOST_POINTS = 2000  # of a chart; of more samples, the extremes of each stretch
_MOST_BYTES = 32 << 20  # of a file that a page reads
_DIGEST = "tokens_sha256"  # too long for the page's table
_MOST_READINGS = 12  # of the table; the chart has all
_CACHED = 256  # charts and conditions
_BAD = frozenset({State.FAILED, State.USER_ERROR, State.TIMEOUT, State.DEVICE_LOST, State.INVALID})


def context(lab: Lab, cache: ArtifactCache, job_id: str) -> dict[str, Any]:
    """Return the context of the page of a job. Raises `MissingDataError` if there is none."""
    job = lab.job(job_id)
    events = lab.events(job.id)
    log = lab.log(job.id)
    latency = job.summary.get("latency") or {}
    return {
        "job": job,
        "events": events,
        "log": log[-_LOG_SHOWN:],
        "log_cut": len(log) > _LOG_SHOWN,
        "refresh": not job.state.is_final,
        "statistics": [
            {"key": one.name, "name": one.title, "value": latency[one.name]}
            for one in LATENCY
            if one.kind is Kind.DURATION and one.name in latency
        ],
        "conditions": conditions(lab, job, "readings"),
        "course": conditions(lab, job, "course") or {"series": (), "disturbed": ()},
        "sides": sides_recipe(job) is not None,
        "chart": chart(lab, job) if job.summary else None,
        "generation": [
            plain_table(section.table, [n for n in section.table.names if n != _DIGEST], "")
            for section in generation_sections(rows_of(job.summary))
        ],
        "tokens": token_charts(lab, job),
        "findings": findings_of(job) if job.state is State.DONE else (),
        "operators": cached_tables(cache, operators_recipe(job)) if has_dump(job) else None,
        "has_dump": has_dump(job),
        "files": [
            {"artifact": one, "name": download_name(job, name)}
            for name, one in sorted(job.artifacts.items())
        ],
        "inputs": [
            {"field": field, "name": ref.name or ref.path or "", "sha256": ref.sha256 or ""}
            for field, ref in job.spec.files.items()
        ],
        "spec": job.spec.model_dump(mode="json", exclude_defaults=True),
        "not_a_result": job.state is State.INVALID,
        "ended_badly": job.state in _BAD,
        "dump_name": download_name(job, RUN_ETDP),
    }


def download_name(job: Job, name: str) -> str:
    """Return the name that a browser saves a file under: the dump gets the name of its job."""
    if name != RUN_ETDP:
        return name
    stem = PurePosixPath(job.spec.title.replace("\\", "/")).name
    stem = stem.rpartition(".")[0] or stem
    plain = "".join(char if char.isalnum() or char in "-_." else "-" for char in stem).strip("-.")
    return f"{plain or job.id}.etdp"


def chart(lab: Lab, job: Job) -> Mapping[str, Any] | None:
    """Return the samples of the untraced runs, in ms: {series: [{name, x, y}], count, x}; None if
    there are none."""
    if "ab.json" in job.artifacts:
        return _read_json(lab, job, "ab.json", _round_chart)
    return _read_json(lab, job, RUN_JSON, _execution_chart)


def token_charts(lab: Lab, job: Job) -> list[Mapping[str, Any]]:
    """Return a chart for each prompt of a generate job: {prompt, series: [{name, x, y}], count, x},
    the time from one token to the next, in ms, by position."""
    names = (prompt_file(number, RUN_JSON) for number in range(len(rows_of(job.summary))))
    charts = (_read_json(lab, job, name, _token_chart) for name in names)
    return [chart for chart in charts if chart is not None]


def conditions(lab: Lab, job: Job, part: str) -> Any:
    """Return a part of the readings of the device's conditions (`_readings`); () if they were not
    stored."""
    found = _read_json(lab, job, "conditions.json", _readings)
    return () if found is None else found[part]


def _read_json(lab: Lab, job: Job, name: str, read: Any) -> Mapping[str, Any] | None:
    """Apply `read` to the content of a JSON file of a job; None if there is none, or it is too
    large or damaged: then the page has no chart, and the download of the file reports why."""
    artifact = job.artifacts.get(name)
    if artifact is None or artifact.size > _MOST_BYTES:
        return None
    return _content(lab.store, artifact.sha256, read)


@lru_cache(maxsize=_CACHED)
def _content(store: Any, sha256: str, read: Any) -> Mapping[str, Any] | None:
    try:
        with store.open(sha256) as file:
            found = read(json.loads(file.read()))
    except (EtscopeError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return found if isinstance(found, Mapping) else None


def _readings(content: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the readings as the page shows them, not more than `_MOST_READINGS`, with None for
    what the device does not report; and the `course` of those during the run: {series: [{name,
    unit, x, y}], disturbed: [[from, to, reason]]}, by execution."""
    readings = []
    for one in content[:: -(-len(content) // _MOST_READINGS) or 1]:
        load, cores, clocks = one.get("load"), one.get("cores"), one.get("frequencies_mhz") or ()
        readings.append(
            {
                "after_s": float(one["at"]) - content[0]["at"],
                "temperature_c": one.get("temperature_c"),
                "sensor": str(one.get("sensor") or ""),
                "governors": ", ".join(map(str, one.get("governors") or ())) or None,
                "clock": f"{min(clocks):,.0f} to {max(clocks):,.0f} MHz" if clocks else None,
                "load": None if load is None or not cores else load / cores,
                "battery_percent": one.get("battery_percent"),
                "memory_available_bytes": one.get("memory_available_bytes"),
            }
        )
    during = [one for one in content if "execution" in one]
    pairs = list(pairwise(during))
    busy = [None, *(_busy_cores(*pair) for pair in pairs)]
    series = [
        {"name": name, "unit": unit, "x": [one["execution"] for one in during], "y": values}
        for name, unit, values in (
            ("temperature", "°C", [one.get("temperature_c") for one in during]),
            (
                "clock",
                "MHz",
                [max(one.get("frequencies_mhz") or (), default=None) for one in during],
            ),
            ("busy cores", "", busy),
        )
        if any(value is not None for value in values)
    ]
    disturbed = [
        (a["execution"], b["execution"], b["disturbance"]) for a, b in pairs if b.get("disturbance")
    ]
    return {"readings": readings, "course": {"series": series, "disturbed": disturbed}}


def _busy_cores(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """The number of cores that all programs used between two readings; None if unknown."""
    if before.get("busy_s") is None or after.get("busy_s") is None or after["at"] <= before["at"]:
        return None
    return float((after["busy_s"] - before["busy_s"]) / (after["at"] - before["at"]))


def _execution_chart(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    untraced = [one for one in content["latencies"] if one.get("traced") is None]
    series = [
        _series(str(one.get("method") or "method"), one["samples_ns"])
        for one in untraced
        if one["samples_ns"]
    ]
    count = sum(len(one["samples_ns"]) for one in untraced)
    if len(series) == 1:
        slow = slow_runs(np.asarray(untraced[0]["samples_ns"]), is_warmed_up=True).disturbed
        where = [x for x in series[0]["x"] if slow[x - 1]]
        times = dict(zip(series[0]["x"], series[0]["y"], strict=True))
        if where:
            series.append({"name": SLOW, "x": where, "y": [times[x] for x in where]})
    return {"series": series, "count": count, "x": "execution"} if series else None


def _token_chart(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    untraced = parse_generation(JsonValue(content["generation"])).of_pass(None)
    pace = None if untraced is None else Pace.of(untraced)
    if pace is None or not len(pace.positions):
        return None
    positions, place = np.unique(pace.positions, return_inverse=True)
    times = pace.inter_token_ns / _MS
    each = [times[place == index] for index in range(len(positions))]
    lines = {"median of the generations": [float(np.median(one)) for one in each]}
    if max(map(len, each)) > 1:
        lines["slowest"] = [float(one.max()) for one in each]
    return {
        "prompt": str(content.get(PROMPT) or ""),
        "series": [{"name": n, "x": positions.tolist(), "y": y} for n, y in lines.items()],
        "count": len(positions),
        "x": "position",
    }


def _series(name: str, samples_ns: Sequence[int]) -> Mapping[str, Any]:
    samples = np.asarray(samples_ns, dtype=np.float64) / _MS
    at = np.arange(len(samples))
    if len(samples) > _MOST_POINTS:
        extremes: set[int] = set()
        for stretch in np.array_split(at, _MOST_POINTS // 2):
            extremes.add(int(stretch[samples[stretch].argmin()]))
            extremes.add(int(stretch[samples[stretch].argmax()]))
        at = np.array(sorted(extremes))
    return {"name": name, "x": (at + 1).tolist(), "y": samples[at].tolist()}


def _round_chart(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the median of each round's process, for both sides."""
    series = []
    for side in ("baseline", "model"):
        rounds = [(one["round"] + 1, one[f"{side}_ns"]) for one in content["runs"]]
        medians = {number: float(np.median(one)) / _MS for number, one in rounds if one}
        series.append({"name": side, "x": list(medians), "y": list(medians.values())})
    count = len(content["runs"])
    return {"series": series, "count": count, "x": "round"} if count else None
