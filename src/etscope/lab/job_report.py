"""A job, and devices, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etscope.lab.records import Device, Job
from etscope.model.report import Report, Section, facts, rows
from etscope.model.table import Column, Kind

SCHEMA = "etscope.lab.job/1"
DEVICES_SCHEMA = "etscope.lab.devices/1"


def _ms(name: str, title: str) -> Column:
    return Column(name, Kind.DURATION, "ms", title)


_LATENCY = (
    Column("iterations", Kind.COUNT),
    _ms("load_ms", "load"),
    _ms("first_ms", "first"),
    _ms("p10_ms", "p10"),
    _ms("p50_ms", "p50"),
    _ms("p90_ms", "p90"),
    _ms("mean_ms", "mean"),
    _ms("stdev_ms", "stdev"),
    _ms("mad_ms", "MAD"),
    Column("cv", Kind.SHARE, title="cv"),
    _ms("min_ms", "min"),
    _ms("max_ms", "max"),
)


def job_report(job: Job, link: str | None = None) -> Report:
    """A job with its result, for people. link: where its page is.

    Sections: "job"; with a result also "latency", and "summary" for what else was found; "marks".
    Those without content are left out.
    """
    summary = dict(job.summary)
    latency = summary.pop("latency", None) or {}
    found = [
        _job(job, link),
        facts("latency", "latency", ((c, latency.get(c.name)) for c in _LATENCY)),
        facts("summary", "result", _flat(summary)),
        rows("marks", "conditions that did not hold", (Column("mark"),), ((m,) for m in job.marks)),
    ]
    kept = tuple(section for section in found if section.name == "job" or _has_content(section))
    return Report({"id": job.id, "state": str(job.state)}, kept)


def environment_line(job: Job) -> str:
    """Where a result comes from, in a line: "host · x86_64 · ExecuTorch 1.5.1 · python runner"."""
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


def devices_report(devices: Sequence[Device]) -> Report:
    """The devices of a lab, a row each."""
    columns = (
        Column("name"),
        Column("driver"),
        Column("state"),
        Column("job", priority=2),
        Column("seen_at", priority=3),
        Column("conditions", Kind.LIST, priority=2),
        Column("attributes", Kind.LIST, priority=1),
        Column("message"),
    )
    content = (
        (
            device.config.name,
            device.config.driver,
            device.state,
            (device.job or "")[:12],
            device.seen_at.isoformat(timespec="seconds") if device.seen_at else None,
            _pairs(device.conditions),
            _pairs(device.attributes),
            device.message,
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
    )


def _flat(content: Mapping[str, Any], before: str = "") -> Iterable[tuple[Column, Any]]:
    """Facts of nested mappings: {"memory": {"peak": 1}} is memory_peak."""
    for key, value in content.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}_")
        elif isinstance(value, (list, tuple)):
            yield Column(name, Kind.LIST), [str(one) for one in value]
        else:
            unit = "ms" if _is_ms(name, value) else None
            yield Column(name, _kind(name, value), unit, name.removesuffix("_ms")), value


def _kind(name: str, value: Any) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOL
    if isinstance(value, (int, float)):
        if _is_ms(name, value):
            return Kind.DURATION
        if name.endswith("_bytes"):
            return Kind.BYTES
        return Kind.COUNT if isinstance(value, int) else Kind.FLOAT
    return Kind.TEXT


def _is_ms(name: str, value: Any) -> bool:
    return name.endswith("_ms") and isinstance(value, (int, float))


def _pairs(content: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in content.items() if value not in (None, "", (), [])]


def _has_content(section: Section) -> bool:
    values = section.table.values.values()
    return any(value is not None for column in values for value in column)
