"""Contents of the pages about many jobs: the list of jobs, histories, comparisons, devices."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from etscope.analysis.statistics.compare_samples import Policy
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.model.table import Kind
from etscope.support.options import key_values
from etscope_lab.comparison.changes import changes_of
from etscope_lab.comparison.noise import device_noise, stability
from etscope_lab.devices.peaks import peaks_in_words
from etscope_lab.fleet.sql import DASHBOARDS, saved_queries, saved_query
from etscope_lab.jobs.generations import EXECUTION, PROMPT, rows_of, times_of
from etscope_lab.jobs.records import LATENCY, TOLD, UNFINISHED, Device, Filter, Job, Series, State
from etscope_lab.lab import Lab
from etscope_lab.pages._artifact_cache import Recipe
from etscope_lab.pages._site import NOTHING, share, size
from etscope_lab.server.errors import status_of
from etscope_lab.sweep import AXES, axes_of, jobs_of
from etscope_lab.watch import sentence

KINDS = ("benchmark", "generate", "accuracy", "ab")
_PAGE_SIZE = 50

_MOST_SERIES = 24  # drawn on one page
_MOST_NAMED = 200  # further series
_MOST_POINTS = 200  # of the series of one model
_FEW_POINTS = 40  # of each series on the page of all models
_MOST_DISMISSED = 20  # suspicions, the newest
_MOST_FINDINGS = 3  # of a series, the last ones

_EXTREMES = ("min_ms", "max_ms")  # depend on the number of executions
_STATISTICS = tuple(
    one for one in LATENCY if one.kind is Kind.DURATION and one.name not in _EXTREMES
)
_MOST_CHOICES = 40
_FRESH_SECONDS = 60  # a dashboard's numbers are not older
_NOISE_JOBS = 60  # the newest jobs, from which a device's noise is estimated


def jobs(lab: Lab, query: QueryParams) -> dict[str, Any]:
    """Return the context of the page of all jobs. Raises `UsageError` for an invalid filter."""
    wanted = _filter(query)
    page = lab.jobs(wanted, limit=_PAGE_SIZE, cursor=query.get("cursor") or None)
    unfinished = lab.jobs(Filter(states=UNFINISHED), limit=1)
    asked = [(key, value) for key, value in query.multi_items() if key != "cursor" and value]
    return {
        "page": page,
        "asked": QueryParams(asked),
        "chosen": {str(state) for state in wanted.states},
        "states": [str(state) for state in State],
        "kinds": KINDS,
        "devices": [device.config.name for device in lab.devices()],
        "unfinished": unfinished.count if unfinished.total else "",
        "is_first": not query.get("cursor"),
        "next_query": urlencode([*asked, ("cursor", page.next)]) if page.next else None,
        "first_query": urlencode(asked),
        # Only the first page of a lab with unfinished jobs changes by itself.
        "refresh": unfinished.total > 0 and not query.get("cursor"),
    }


def _filter(query: QueryParams) -> Filter:
    """Return the filter of a query: state (several), device, kind, model (a hash), label, text."""
    names = [text for text in query.getlist("state") if text]
    if unknown := [text for text in names if text not in {str(state) for state in State}]:
        raise UsageError(f"{unknown[0]!r} is not a state", hint=", ".join(map(str, State)))
    kind = query.get("kind") or None
    if kind is not None and kind not in KINDS:
        raise UsageError(f"{kind!r} is not a kind of job", hint=", ".join(KINDS))
    labels = _labels(query.get("label") or "")
    return Filter(
        states=tuple(State(text) for text in names),
        device=query.get("device") or None,
        kind=kind,
        model_sha256=query.get("model") or None,
        text=(query.get("text") or "").strip() or None,
        labels=labels or None,
    )


def _labels(text: str) -> dict[str, str]:
    """Parse labels as a form has them: "branch=main, commit=1f2e3d"."""
    return key_values(filter(None, (one.strip() for one in text.split(","))), "label")


def history(lab: Lab, query: QueryParams) -> dict[str, Any]:
    """Return the context of the page of histories: the times of each model, job after job, on a
    device and backend, with one runner, number of threads and inputs."""
    model, device = query.get("model") or None, query.get("device") or None
    limit = _MOST_POINTS if model else _FEW_POINTS
    found = lab.history(model, device, limit=limit, most=_MOST_SERIES)
    others = lab.database.series(model, device)[_MOST_SERIES:]
    return {
        "model": model or "",
        "device": device or "",
        "devices": [one.config.name for one in lab.devices()],
        "series": [_series(one) for one in found],
        "few": _FEW_POINTS,
        "left_out": [(one, _setup(one)) for one in others[:_MOST_NAMED]],
        "unnamed": max(len(others) - _MOST_NAMED, 0),
    }


def sweep(lab: Lab, name: str) -> dict[str, Any]:
    """Return the context of the board of a sweep: rows by all axes but the device, which are the
    columns. Raises `MissingDataError` for a sweep without jobs."""
    found = jobs_of(lab, name)
    if not found:
        raise MissingDataError(f"no job has the label sweep={name}")
    devices = sorted({_place(job) for job in found})
    rows: dict[tuple[str, ...], dict[str, Job]] = {}
    for job in found:
        rows.setdefault(axes_of(job), {})[_place(job)] = job
    used = [n for n, values in enumerate(zip(*rows, strict=True)) if any(values)]
    ended = sum(job.state.is_final for job in found)
    return {
        "name": name,
        "axes": [AXES[n] for n in used],
        "devices": devices,
        "rows": [([key[n] for n in used], [row.get(one) for one in devices])
                 for key, row in rows.items()],
        "ended": ended,
        "count": len(found),
        "refresh": ended < len(found),
    }  # fmt: skip


def _place(job: Job) -> str:
    return job.spec.device.name or job.device or "any device"


def alarms(lab: Lab) -> dict[str, Any]:
    """Return the context of the page of alarms: those that people were told of, and the suspicions
    that are being checked or were dismissed."""
    found = lab.alarms()
    return {
        "told": [(one, sentence(one)) for one in found if one.state in TOLD],
        "others": [one for one in found if one.state not in TOLD][:_MOST_DISMISSED],
    }


def _setup(series: Series) -> str:
    """Return how the jobs of a series were measured, without device and backend."""
    threads = {None: "", 1: "1 thread"}.get(series.threads, f"{series.threads} threads")
    inputs = series.inputs
    if inputs.startswith("sha256:"):
        inputs = f"inputs {inputs.removeprefix('sha256:')[:8]}"
    return ", ".join(filter(None, (f"{series.runner} runner", threads, inputs)))


def _series(series: Series) -> Mapping[str, Any]:
    points = series.points
    # Of the point before: a version is shown where it changed.
    earlier_software = [points[max(at - 1, 0)].software for at in range(len(points))]
    change = None  # of the last p50 from the one before, as a fraction
    if len(points) > 1 and points[-2].p50_ms:
        change = points[-1].p50_ms / points[-2].p50_ms - 1
    return {
        "model": series.model,
        "method": series.method,
        "metric": "" if series.metric == EXECUTION else series.metric,
        "device": series.device,
        "backend": series.backend,
        "setup": _setup(series),
        "count": len(points),
        "last": points[-1],
        "change": change,
        "marked": sum(point.marked for point in points),
        "unjudged": series.unjudged,
        "findings": changes_of(series)[-_MOST_FINDINGS:],
        "unit": series.unit,
        "chart": {
            "unit": series.unit,
            "at": [point.at.timestamp() for point in points],
            "p50": [point.p50_ms for point in points],
            "p90": [point.p90_ms for point in points],
            "marked": [point.marked for point in points],
            "standing": [str(point.standing) for point in points],
            "jobs": [point.job_id for point in points],
            "labels": [
                ", ".join(
                    [f"{key}={value}" for key, value in point.labels.items()]
                    + ([point.software] if point.software != earlier else [])
                )
                for point, earlier in zip(points, earlier_software, strict=True)
            ],
        },
    }


def compare(lab: Lab, query: QueryParams) -> dict[str, Any]:
    """Return the context of the page of two jobs: their statistics, or a choice of jobs.

    first, second: ids, or labels (commit=1f2e3d) for the newest done job with this label. text:
    narrows the choice.
    """
    names = [(query.get(side) or "").strip() for side in ("first", "second")]
    first, second = (_named(lab, name) if name else None for name in names)
    text = (query.get("text") or "").strip()
    wanted = Filter(states=(State.DONE,), text=text or None)
    found = {one.id: one for one in (first, second) if one is not None}
    found |= {one.id: one for one in lab.jobs(wanted, limit=_MOST_CHOICES).jobs}
    choices: dict[str, list[Job]] = {}
    for job in found.values():  # the same model first
        choices.setdefault(job.spec.title, []).append(job)
    rows: list[Mapping[str, Any]] = []
    if first is not None and second is not None:
        latencies = [job.summary.get("latency") or {} for job in (first, second)]
        for one in _STATISTICS:
            before, after = (latency.get(one.name) for latency in latencies)
            change = after / before - 1 if before and after is not None else None
            rows.append({"name": one.title, "first": before, "second": after, "relative": change})
        rows += _of_prompts(first, second)
    return {"first": first, "second": second, "text": text, "choices": choices, "rows": rows}


def _of_prompts(first: Job, second: Job) -> Iterator[Mapping[str, Any]]:
    """Yield the times of generations of the same prompts, in ms, with their change."""
    before, after = (
        {row.get(PROMPT): row for row in rows_of(job.summary)} for job in (first, second)
    )
    for prompt in before.keys() & after.keys():
        for metric, times in times_of(before[prompt]).items():
            other = times_of(after[prompt]).get(metric)
            if other is not None:
                own, now = times["p50_ms"], other["p50_ms"]
                yield {
                    "name": f"{metric} of {prompt}, p50",
                    "first": own,
                    "second": now,
                    "relative": now / own - 1 if own else None,
                }


def _named(lab: Lab, name: str) -> Job:
    """Return the job of an id, or the newest done one with labels."""
    if "=" not in name:
        return lab.job(name)
    labels = _labels(name)
    found = lab.jobs(Filter(states=(State.DONE,), labels=labels), limit=1).jobs
    if not found:
        raise MissingDataError(f"no done job has the label {name[:200]}")
    return found[0]


def verdict(lab: Lab, query: QueryParams) -> tuple[int, dict[str, Any]]:
    """Return status and context of the verdict on two jobs, a part of their page."""
    first, second = (query.get(side) or "" for side in ("first", "second"))
    if not first or not second:
        raise UsageError("name two jobs to compare", hint="first=ID&second=ID")
    ids = _named(lab, first).id, _named(lab, second).id
    try:
        return 200, {"found": _comparison(lab, *ids, int(time.monotonic() // 60))}
    except EtscopeError as error:
        return status_of(error), {"failure": str(error)}


@lru_cache(maxsize=64)
def _comparison(lab: Lab, first: str, second: str, minute: int) -> Mapping[str, Any]:
    """Compare two done jobs. They do not change, but the noise estimate does: keep the result for a
    minute."""
    return lab.compare(first, second)


def devices(lab: Lab) -> dict[str, Any]:
    """Return the context of the page of the lab's devices."""
    found = list(lab.devices())
    return {
        "devices": found,
        "at_work": {device.job: lab.job(device.job) for device in found if device.job},
        "conditions": {device.config.name: _conditions(device) for device in found},
        "peaks": {device.config.name: list(_peaks(device)) for device in found},
    }


def _peaks(device: Device) -> Iterator[tuple[Mapping[str, str], list[str]]]:
    """Yield the peaks of a device on each runner as texts, with what is said against them."""
    for one in device.calibrations:
        when = one["measured_at"].replace("T", " ").partition("+")[0]
        facts = {f"{one['runner']} runner": peaks_in_words(one), "measured": f"{when} UTC"}
        yield facts, one["marks"]


def _conditions(device: Device) -> Mapping[str, str]:
    """Return the conditions of a device as texts (`etscope_lab.worker.conditions.Conditions`)."""
    found = device.conditions
    load, cores = found.get("load"), found.get("cores")
    clocks = found.get("frequencies_mhz") or ()
    heat, battery = found.get("temperature_c"), found.get("battery_percent")
    shown = {
        "hottest sensor": None if heat is None else f"{heat:.1f} °C {found.get('sensor') or ''}",
        "governor": ", ".join(map(str, found.get("governors") or ())),
        "clocks": f"{min(clocks):,.0f} to {max(clocks):,.0f} MHz" if clocks else None,
        "load per core": f"{load / cores:.2f}" if load is not None and cores else None,
        "battery": None if battery is None else f"{battery:.0f} % {found.get('battery_status')}",
        "memory free": size(found.get("memory_available_bytes")),
        "virtual machine": "yes" if found.get("virtual") else None,
    }
    return {name: text for name, text in shown.items() if text and text != NOTHING}


def noise(lab: Lab, name: str) -> Mapping[str, str]:
    """Return how much jobs on a device differ without a change, and its stability, as texts; empty
    if unknown.

    Raises `MissingDataError` if the device does not exist.
    """
    if all(device.config.name != name for device in lab.devices()):
        raise MissingDataError(f"no device has the name {name!r}")
    done = lab.jobs(Filter(states=(State.DONE,), device=name), limit=_NOISE_JOBS).jobs
    found = device_noise(done, done[:1])
    floor = found.floor(Policy())
    steady = stability(lab.history(device=name))
    shown = {}
    if steady is not None:
        shown = {
            "stability": f"{steady.score:.0f} of 100",
            "from": f"variation {share(steady.cv)}, slowest / fastest {steady.spread:.2f}, "
            f"p99 / p50 {steady.tail:.2f}; {steady.results} results, "
            f"{share(steady.rolling)} among five in a row",
        }
    if found.spread is None:
        return shown
    return shown | {
        "spread of repeats": share(found.spread),
        "smallest detectable change": share(floor)
        if floor is not None
        else f"not known: {found.jobs} repeated jobs are too few",
        "known from": f"{found.jobs} {found.source}",
    }


def dashboards(lab: Lab) -> dict[str, Any]:
    """Return the context of the list of dashboards."""
    folder = lab.home.folder / DASHBOARDS
    return {"queries": saved_queries(folder).values(), "folder": folder}


def dashboard(lab: Lab, name: str, query: QueryParams) -> tuple[dict[str, Any], Recipe | None]:
    """Return the context of a dashboard, a saved query with its parameters, and the recipe of its
    table and chart; None while a parameter has no value. Raises `MissingDataError` for another
    name, `FormatError` for a damaged file, and `UsageError` for a value of another type."""
    saved = saved_query(name, lab.home.folder / DASHBOARDS)
    given = {one.name: query[one.name] for one in saved.parameters if query.get(one.name)}
    context = {"saved": saved, "given": given, "query": urlencode(given)}
    if any(one.default is None and one.name not in given for one in saved.parameters):
        return context, None
    options = {
        "home": str(lab.home.folder),
        "sql": saved.sql,
        "chart": None if saved.chart is None else asdict(saved.chart),
        "parameters": saved.values(given),
        "until": int(time.time() // _FRESH_SECONDS),
    }
    return context, Recipe("dashboard", {}, options)
