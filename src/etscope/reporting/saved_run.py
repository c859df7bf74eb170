"""Sections of a report on what run.json says: where the run took place, and how long it took."""

from __future__ import annotations

from etscope.errors import reading
from etscope.formats.exported_program.exported_json import integer
from etscope.formats.run_json import RUN_JSON, SavedRun
from etscope.model.report import Section, facts, rows
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind

_MS = 1e6  # ns
_TRACED = {None: "untraced", "times": "traced: times", "values": "traced: values"}


def saved_sections(saved: SavedRun) -> list[Section]:
    """Return the sections "environment" and "latency"; `FormatError` for a damaged file."""
    with reading(RUN_JSON, saved.path):
        return [_environment(saved), _latency(saved)]


def _environment(saved: SavedRun) -> Section:
    calls = saved.calls
    return facts(
        "environment",
        "The run",
        (
            (Column("runner"), saved.text("runner")),
            (Column("executorch", title="ExecuTorch"), saved.text("executorch")),
            (Column("threads", Kind.COUNT), saved.count("threads")),
            (Column("program", Kind.PATH), saved.text("program")),
            (Column("calls", Kind.COUNT), len(calls)),
            (
                Column("iterations", Kind.COUNT),
                sum(integer(call["iterations"], "iterations") for call in calls),
            ),
            (Column("debug_level"), saved.text("debug_level")),
        ),
    )


def _latency(saved: SavedRun) -> Section:
    names = ("avg", "p50", "p90", "min", "max")
    latencies = saved.latencies
    content = []
    for latency in latencies:
        count = len(latency.samples_ns)
        statistics = summarize(latency.samples_ns / _MS, names).values()
        content.append(
            (
                _TRACED.get(latency.traced, latency.traced),
                latency.method,
                count,
                None if latency.load_ns is None else latency.load_ns / _MS,
                None if latency.first_ns is None else latency.first_ns / _MS,
                *(float(value) if count else None for value in statistics),
            )
        )
    return rows(
        "latency",
        "Latency: around the runtime's execute",
        (
            Column("run"),
            Column("method"),
            Column("iterations", Kind.COUNT),
            Column("load", Kind.DURATION, "ms"),
            Column("first", Kind.DURATION, "ms", title="cold"),
            *(Column(name, Kind.DURATION, "ms") for name in names),
        ),
        content,
        notes=("Traced runs do more than the model: only an untraced one says how long it takes.",)
        if len(latencies) > 1
        else (),
    )
