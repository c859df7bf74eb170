"""Tables of a job and of devices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from etscope.model.report import Report, Section, facts, rows
from etscope.model.table import Column, Kind
from etscope_lab.devices.peaks import peaks_in_words
from etscope_lab.jobs.generations import COLUMNS as GENERATION
from etscope_lab.jobs.generations import PHASES, rows_of
from etscope_lab.jobs.records import LATENCY, Device, Job, State

if TYPE_CHECKING:
    from etscope_lab.comparison.noise import Stability

SCHEMA = "etscope.lab.job/1"
DEVICES_SCHEMA = "etscope.lab.devices/1"
_CUT = 60  # characters of a text that tables never cut
_TITLES = {"relative": "change", "low": "at least", "high": "at most"}  # of an interval


def job_report(job: Job, link: str | None = None) -> Report:
    """A report on a job with its result. link: the address of its page.

    Sections: "job"; with a result also "ab", "metrics" and "sides", "generation" and "phases",
    "quality", "latency", "energy", "sustained", "numerics", "verification", and "summary" for other
    results; "marks". Empty sections are left out.
    """
    summary = dict(job.summary)
    generated = rows_of(summary)
    summary.pop("generation", None)
    of_tokens = job.spec.generation is not None
    latency, ab, quality, energy, sustained, numerics, verification = (
        summary.pop(name, None) or {}
        for name in (
            "latency", "ab", "quality", "energy", "sustained", "numerics", "verification",
        )
    )  # fmt: skip
    found = [
        _job(job, link),
        *(_ab(ab) if ab else ()),
        *generation_sections(generated),
        facts("quality", "quality", _flat(quality), _long(quality.get("verdict"))),
        facts(
            "latency",
            "latency, from token to token" if of_tokens else "latency",
            ((c, latency.get(c.name)) for c in LATENCY),
        ),
        facts(
            "energy",
            "energy of an execution, idle power not subtracted",
            _flat(energy),
            _long(energy.get("reason")),
        ),
        facts("sustained", "sustained load", _flat(sustained), _long(sustained.get("reason"))),
        facts("numerics", "numerics", _flat(numerics), _long(numerics.get("verdict"))),
        facts("verification", "expected outputs, cases", _flat(verification)),
        facts("summary", "result", _flat(summary)),
        rows("marks", "conditions that did not hold", (Column("mark"),), ((m,) for m in job.marks)),
    ]
    kept = []
    for section in found:
        values = (value for column in section.table.values.values() for value in column)
        if section.name == "job" or any(value is not None for value in values):
            kept.append(section)
    return Report({"id": job.id, "state": str(job.state)}, tuple(kept))


def database_records(jobs: Iterable[Job]) -> Iterator[dict[str, Any]]:
    """Yield records of PyTorch's benchmark database, schema v3: one for each time of a done job,
    and a FAILURE_REPORT for each that ended without a result. A/B and unfinished jobs have none.

    The form is that of ExecuTorch's `.github/scripts/extract_benchmark_results.py`.
    """
    for job in jobs:
        if not job.state.is_final or job.spec.kind == "ab":
            continue
        latency = job.summary.get("latency") or {}
        memory = (job.summary.get("memory") or {}).get("peak_rss_bytes")
        kind = "inference" if job.spec.generation is None else "token"
        names = {"mean": "avg", "p50": "p50", "p90": "p90"}
        values = {f"{name}_{kind}_latency(ms)": latency.get(f"{k}_ms") for k, name in names.items()}
        values["model_load_time(ms)"] = latency.get("load_ms")
        values["peak_inference_mem_usage(mb)"] = None if memory is None else memory / (1 << 20)
        labels = job.spec.labels
        config = {"job": job.id, "threads": job.spec.threads, "marks": list(job.marks), **labels}
        extra = {"app_type": "etscope", "benchmark_config": json.dumps(config)}
        if job.state is not State.DONE:
            values = {"FAILURE_REPORT": 0}
            report = json.dumps({"state": str(job.state), "error": job.error})
            extra |= {"job_conclusion": "FAILURE", "failure_level": "JOB", "job_report": report}
        variant = "_".join(labels[axis] for axis in ("backend", "quantize") if axis in labels)
        device = job.environment.get("device") or {}
        runner = {"name": job.device or "", "type": device.get("os", "")}
        if str(device.get("memory_bytes", "")).isdecimal():
            runner["total_mem_in_gb"] = round(int(device["memory_bytes"]) / (1 << 30), 3)
        about = {
            "benchmark": {"name": "ExecuTorch", "mode": "inference", "extra_info": extra},
            "model": {
                "name": labels.get("model", job.spec.title),
                "backend": variant or job.summary.get("backend") or "",
            },
            "runners": [runner],
        }
        method = {"method": job.summary.get("method") or job.spec.method or ""}
        for name, value in values.items():
            if value is not None:
                metric = {"name": name, "benchmark_values": [value], "target_value": 0}
                yield {**about, "metric": {**metric, "extra_info": method}}


def findings_of(job: Job) -> tuple[str, ...]:
    """Defects that a job found in its model: values that are not the reference's, unexpected
    outputs of a bundle's cases, more time than the baseline or under sustained load, a quality
    gate that failed."""
    found = []
    numerics, verification, ab, sustained, quality = (
        job.summary.get(name) or {}
        for name in ("numerics", "verification", "ab", "sustained", "quality")
    )
    if numerics.get("fine") is False:
        found.append(f"the values are not the reference's: {numerics.get('verdict', '')}")
    if failed := verification.get("failed"):
        cases = failed + verification.get("passed", 0)
        found.append(f"outputs of {failed} of {cases} test cases are not as expected")
    if ab.get("verdict") == "regressed":
        of = f" ({ab['metric']})" if "metric" in ab else ""
        found.append(f"the model is slower than the baseline, by {ab['relative']:.1%}{of}")
    if sustained.get("verdict") in ("throttled", "slower"):
        found.append(
            f"{sustained['verdict']} under sustained load: {sustained['relative']:+.1%} after "
            f"{sustained['after_s']:.0f} s; {sustained['reason']}"
        )
    if quality.get("fine") is False:
        found.append(f"the quality gate failed: {quality.get('verdict', '')}")
    return tuple(found)


def environment_line(job: Job) -> str:
    """The origin of a result in a line: "host · x86_64 · ExecuTorch 1.5.1 · python runner"."""
    about = job.environment
    device = about.get("device")
    device = device if isinstance(device, Mapping) else {}
    parts = [
        job.device,
        device.get("soc") or device.get("model") or device.get("arch"),
        about.get("executorch") and f"ExecuTorch {about['executorch']}",
        about.get("runner") and f"{about['runner']} runner",
        about.get("threads") and f"{about['threads']} threads",
    ]
    return " · ".join(str(part) for part in parts if part)


def devices_report(
    devices: Sequence[Device], steady: Mapping[str, Stability | None] = MappingProxyType({})
) -> Report:
    """A report on the devices of a lab, with a row for each. steady: by name, if known."""
    inputs = ("score", "cv", "spread", "tail", "rolling", "results")
    columns = (
        Column("name"),
        Column("driver"),
        Column("state"),
        Column("job", priority=2),
        Column("seen_at", priority=3),
        Column("conditions", Kind.LIST, priority=2),
        Column("attributes", Kind.LIST, priority=1),
        Column("peaks", Kind.LIST, priority=2),
        Column("message"),
        Column("stability", Kind.FLOAT, title="stability (0 to 100)", priority=1),
        *(Column(f"stability_{name}", Kind.FLOAT, priority=6) for name in inputs[1:]),
    )
    content = (
        (
            device.config.name,
            device.config.driver,
            device.state,
            (device.job or "")[:12],
            device.seen_at.isoformat(timespec="seconds") if device.seen_at else None,
            _conditions(device.conditions),
            _pairs(device.attributes),
            [f"{one['runner']}: {peaks_in_words(one)}" for one in device.calibrations] or None,
            device.message,
            *(getattr(steady.get(device.config.name), name, None) for name in inputs),
        )
        for device in devices
    )
    return Report({}, (rows("devices", "devices", columns, content),))


def _job(job: Job, link: str | None) -> Section:
    def text(name: str, value: Any) -> tuple[Column, Any]:
        return Column(name), value or None

    at = {
        name: getattr(job, name)
        for name in ("created_at", "claimed_at", "started_at", "finished_at")
    }
    return facts(
        "job",
        job.spec.title,
        [
            text("id", job.id),
            text("state", str(job.state)),
            text("error", job.error),
            text("error_slug", job.error_slug),
            text("title", job.spec.title),
            text("kind", job.spec.kind),
            text("device", job.device),
            text("submitter", job.submitter),
            (Column("attempt", Kind.COUNT), job.attempt),
            *(text(name, when and when.isoformat(timespec="seconds")) for name, when in at.items()),
            (Column("labels", Kind.LIST), _pairs(job.spec.labels) or None),
            text("link", link),
        ],
        _long(job.error),
    )


def _ab(ab: Mapping[str, Any]) -> Iterable[Section]:
    """The verdict on two models, and the times of each."""
    shares = ("relative", "low", "high", "noise_floor", "min_effect", "confidence")
    counts = ("rounds", "judged", "rounds_needed")
    failed = [f"Round {one['round']} failed: {one['error']}" for one in ab.get("failed", ())]
    reason = ab.get("reason")
    yield facts(
        "ab",
        "verdict, model against baseline",
        [
            (Column("verdict"), ab.get("verdict")),
            (Column("metric", title="time"), ab.get("metric")),
            *((Column(n, Kind.SHARE, title=_TITLES.get(n, "")), ab.get(n)) for n in shares),
            (Column("p", Kind.FLOAT), ab.get("p")),
            *((Column(name, Kind.COUNT), ab.get(name)) for name in counts),
        ],
        (*([f"No verdict: {reason}."] if reason else []), *failed),
    )
    metrics: Mapping[str, Mapping[str, Any]] = ab.get("metrics") or {}
    columns = (
        Column("metric"),
        Column("verdict"),
        *(Column(n, Kind.SHARE, title=_TITLES.get(n, "")) for n in ("relative", "low", "high")),
        *(Column(f"{side}_ms", Kind.DURATION, "ms", side) for side in ("baseline", "model")),
        Column("p", Kind.FLOAT, priority=1),
        Column("reason", priority=2),
    )
    yield rows(
        "metrics",
        "verdicts by time",
        columns,
        ([name, *(one.get(c.name) for c in columns[1:])] for name, one in metrics.items()),
    )
    sides: Mapping[str, Mapping[str, Any]] = ab.get("sides") or {}
    names = list(dict.fromkeys(name for side in sides.values() for name in side))
    heads = [column for column, _ in _flat(dict.fromkeys(names, 0.0))]
    content = ([side, *map(found.get, names)] for side, found in sides.items())
    yield rows("sides", "sides", (Column("side"), *heads), content)


def generation_sections(found: Sequence[Mapping[str, Any]]) -> Iterable[Section]:
    """The prompts of a job, and the phases of each; nothing without prompts."""
    if not found:
        return
    content = ([row.get(column.name) for column in GENERATION] for row in found)
    yield rows("generation", "generation, by prompt", GENERATION, content)
    phases = [
        [row.get("prompt"), *(phase.get(column.name) for column in PHASES)]
        for row in found
        for phase in row.get("phases") or ()
    ]
    yield rows("phases", "phases of a generation", (Column("prompt"), *PHASES), phases)


def _long(text: str | None) -> tuple[str, ...]:
    """A sentence that tables would cut, as a note, which is shown whole."""
    return (text,) if text and len(text) > _CUT else ()


def _conditions(content: Mapping[str, Any]) -> list[str]:
    """Conditions in a few words: heat, clock and so on, each with its unit."""
    heat, battery = content.get("temperature_c"), content.get("battery_percent")
    load, cores = content.get("load"), content.get("cores")
    clock = max(content.get("frequencies_mhz") or (), default=None)
    parts = (
        heat is not None and f"{heat:.0f} °C",
        ", ".join(content.get("governors") or ()),
        clock is not None and f"{clock:.0f} MHz",
        battery is not None and f"battery {battery:.0f}%",
        load is not None and cores and f"load {load / cores:.2f} a core",
        content.get("virtual") and "virtual machine",
    )
    return [part for part in parts if part]


def _flat(content: Mapping[str, Any], before: str = "") -> Iterable[tuple[Column, Any]]:
    """Facts of nested mappings: {"memory": {"peak": 1}} is memory_peak."""
    for key, value in content.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}_")
        elif isinstance(value, (list, tuple)):
            yield Column(name, Kind.LIST), [str(one) for one in value]
        elif isinstance(value, bool):
            yield Column(name, Kind.BOOL, title=name), value
        elif not isinstance(value, (int, float)):
            yield Column(name, title=name.removesuffix("_ms")), value
        elif name.endswith("_ms"):
            yield Column(name, Kind.DURATION, "ms", name.removesuffix("_ms")), value
        elif name.endswith("_bytes"):
            yield Column(name, Kind.BYTES, title=name), value
        else:
            kind = Kind.COUNT if isinstance(value, int) else Kind.FLOAT
            yield Column(name, kind, title=name), value


def _pairs(content: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in content.items() if value not in (None, "", (), [])]
