"""What `etscope run --save` says of a run, in run.json: where it ran, and how long it took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from etscope.errors import reading
from etscope.formats.exported_program.exported_json import (
    integer,
    mapping,
    parse_json,
    sequence,
    text,
)
from etscope.model.report import Section, facts, rows
from etscope.model.table import Column, Kind

_MS = 1e6  # ns
_TRACED = {None: "untraced", "times": "traced: times", "values": "traced: values"}
_Value = TypeVar("_Value")


def saved_program(path: Path) -> str | None:
    """The SHA-256 of the program that ran; `FormatError` for a damaged file."""
    with reading("run.json", str(path)):
        return _optional(text, _content(path).get("program_sha256"), "a hash")


def saved_sections(path: Path) -> list[Section]:
    """The sections "environment" and "latency"; `FormatError` for a damaged file."""
    with reading("run.json", str(path)):
        content = _content(path)
        return [_environment(content), _latency(content)]


def _content(path: Path) -> dict[str, Any]:
    return mapping(parse_json(path.read_text(encoding="utf-8")), "run.json")


def _environment(content: dict[str, Any]) -> Section:
    calls = sequence(content.get("calls") or [], "the calls")
    iterations = [integer(mapping(call, "a call")["iterations"], "iterations") for call in calls]
    return facts(
        "environment",
        "The run",
        (
            (Column("runner"), _optional(text, content.get("runner"), "a runner")),
            (
                Column("executorch", title="ExecuTorch"),
                _optional(text, content.get("executorch"), "a version"),
            ),
            (Column("threads", Kind.COUNT), _optional(integer, content.get("threads"), "threads")),
            (Column("program", Kind.PATH), _optional(text, content.get("program"), "a path")),
            (Column("calls", Kind.COUNT), len(calls)),
            (Column("iterations", Kind.COUNT), sum(iterations)),
            (
                Column("debug_level"),
                _optional(text, content.get("debug_level"), "a debug level"),
            ),
        ),
    )


def _latency(content: dict[str, Any]) -> Section:
    entries = sequence(content.get("latencies") or [], "the latencies")
    return rows(
        "latency",
        "Latency: around the runtime's execute",
        (
            Column("run"),
            Column("method"),
            Column("iterations", Kind.COUNT),
            Column("load", Kind.DURATION, "ms"),
            Column("first", Kind.DURATION, "ms", title="cold"),
            Column("avg", Kind.DURATION, "ms"),
            Column("p50", Kind.DURATION, "ms"),
            Column("p90", Kind.DURATION, "ms"),
            Column("min", Kind.DURATION, "ms"),
            Column("max", Kind.DURATION, "ms"),
        ),
        [_latency_row(mapping(entry, "a latency")) for entry in entries],
        notes=("Traced runs do more than the model: only an untraced one says how long it takes.",)
        if len(entries) > 1
        else (),
    )


def _latency_row(entry: dict[str, Any]) -> Sequence[Any]:
    listed = sequence(entry["samples_ns"], "samples")
    samples = np.array([integer(value, "a sample") for value in listed], np.int64) / _MS
    traced = _optional(text, entry.get("traced"), "what was traced")
    statistics: list[float | None] = [None] * 5
    if len(samples):
        p50, p90 = np.percentile(samples, (50, 90)).tolist()
        statistics = [float(samples.mean()), p50, p90, float(samples.min()), float(samples.max())]
    return (
        _TRACED.get(traced, traced),
        _optional(text, entry.get("method"), "a method"),
        len(samples),
        _milliseconds(entry.get("load_ns")),
        _milliseconds(entry.get("first_ns")),
        *statistics,
    )


def _milliseconds(value: Any) -> float | None:
    nanoseconds = _optional(integer, value, "a time")
    return None if nanoseconds is None else nanoseconds / _MS


def _optional(read: Callable[[Any, str], _Value], value: Any, what: str) -> _Value | None:
    return None if value is None else read(value, what)
