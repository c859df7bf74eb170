"""Read Trace Event JSON, the format of chrome://tracing, Perfetto and most tools.

A file is an object with `traceEvents`, or the bare array, and an array may lack its end. This
module reads durations (`B` with `E`, or `X` with `dur`), instants (`i`, `I`), counters (`C`) and
metadata (`M`). `ts` and `dur` are microseconds.

Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from etscope.backends.common.imported import (
    BackendFile,
    Basis,
    Floats,
    Ids,
    ImportedRow,
    ImportedSpans,
)
from etscope.errors import FormatError
from etscope.model.event_table import Clock, Quantity
from etscope.model.table import Column, Kind

KIND = "Chrome trace"
COLUMNS = (
    Column("self_time", Kind.FLOAT, "us", title="self", priority=1),
    Column("shortest", Kind.FLOAT, "us", title="min", priority=3),
    Column("longest", Kind.FLOAT, "us", title="max", priority=3),
    Column("least", Kind.FLOAT, priority=4),  # of a counter: the trace does not have its unit
    Column("most", Kind.FLOAT, priority=4),
)
_COUNTER_NOTE = "A counter's value is the mean of its samples; the trace does not have its unit."
# Tolerance of `_inside`: a tool may round a time to a whole microsecond.
_ROUNDING_US = 1.0
_SPACE = re.compile(r"[ \t\r\n]*")
_decode = json.JSONDecoder().raw_decode


def trace_events(text: str, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events one by one: a trace is much larger in memory than in its file. Put the
    object's other members into `about`. Raises `json.JSONDecodeError`."""
    at = _skip(text, 0)
    if text[at : at + 1] == "[":
        yield from _array(text, at, may_be_cut=True)
        return
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        key, at = _decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":" or not isinstance(key, str):
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        at = _skip(text, at + 1)
        if key == "traceEvents" and text[at : at + 1] == "[":
            at = yield from _array(text, at)
        else:
            about[key], at = _decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "}":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _array(text: str, at: int, may_be_cut: bool = False) -> Generator[dict[str, Any], None, int]:
    """Yield the objects of an array; return the position behind it."""
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        if at >= len(text) and may_be_cut:
            return at
        value, at = _decode(text, at)
        if isinstance(value, dict):
            yield value
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]" and not (may_be_cut and at >= len(text)):
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    return at + 1


def read(path: str, text: str) -> BackendFile:
    """Read a trace. Raises `FormatError` if it does not have a readable event."""
    events = _Events()
    for event in trace_events(text, {}):
        events.add(event)
    spans, counters = events.spans(), events.counters()
    if not len(spans) and not len(counters.time):
        raise FormatError(
            "this trace does not have an event that etscope can show",
            hint="etscope shows events of the phases B with E, X, i and C",
        )
    return _file(path, spans, counters, tuple(events.notes()))


def _file(
    path: str, spans: ImportedSpans, counters: _Counters, notes: tuple[str, ...]
) -> BackendFile:
    def between(intervals: Sequence[tuple[float, float]]) -> BackendFile:
        inside = _inside(spans.start, spans.start + spans.duration, intervals)
        sampled = _inside(counters.time, counters.time, intervals)
        return _file(path, spans.take(inside), counters.take(sampled), notes)

    if len(counters.time):
        notes = (*dict.fromkeys((*notes, _COUNTER_NOTE)),)
    return BackendFile(
        path=path,
        kind=KIND,
        backends=(),
        rows=(*span_rows(spans), *counters.rows()),
        clock=Clock.HOST,
        group_title="thread",
        value_title="total or mean" if len(counters.time) else "total",
        columns=COLUMNS,
        spans=spans,
        notes=notes,
        has_host_clock=True,
        between=between,
    )


def _inside(start: Floats, end: Floats, intervals: Sequence[tuple[float, float]]) -> Any:
    """Return a mask of the spans inside an interval. Intervals are ordered and do not overlap."""
    if not intervals:
        return np.zeros(len(start), np.bool_)
    begins, ends = np.array(intervals).T
    around = np.searchsorted(begins - _ROUNDING_US, start, "right") - 1
    return (around >= 0) & (end <= ends[around] + _ROUNDING_US)


class Numbered:
    """Numbers for texts, from 0, in the order of their first use."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def of(self, text: str) -> int:
        return self.number.setdefault(text, len(self.number))

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self.number)


@dataclass(frozen=True)
class _Counters:
    """Samples of counters, in the order of the file."""

    names: tuple[str, ...]
    name: Ids
    time: Floats
    value: Floats

    def take(self, chosen: Any) -> _Counters:
        return replace(
            self, name=self.name[chosen], time=self.time[chosen], value=self.value[chosen]
        )

    def rows(self) -> Iterator[ImportedRow]:
        for number in np.unique(self.name).tolist():
            values = self.value[self.name == number]
            yield ImportedRow(
                self.names[number],
                float(values.mean()),
                None,
                "counter",
                len(values),
                basis=Basis.DERIVED,
                extra={"least": float(values.min()), "most": float(values.max())},
            )


class _Events:
    """The events of a trace, collected as columns."""

    def __init__(self) -> None:
        self._names, self._counter_names = Numbered(), Numbered()
        self._threads: dict[tuple[Any, Any], int] = {}
        self._process_names: dict[Any, str] = {}
        self._thread_names: dict[tuple[Any, Any], str] = {}
        self._open: dict[tuple[Any, Any], list[tuple[int, float, int]]] = {}
        self._annotations: list[Mapping[str, Any]] = []
        self._spans: list[tuple[int, int, int, float, float]] = []
        self._samples: list[tuple[int, float, float]] = []
        self._problems: Counter[str] = Counter()

    def add(self, event: Mapping[str, Any]) -> None:
        phase = event.get("ph")
        if phase == "M":
            self._name(event)
            return
        time = event.get("ts")
        if not is_number(time):
            self._problems["without a time"] += 1
            return
        thread = (_plain(event.get("pid")), _plain(event.get("tid")))
        if phase == "X":
            length = event.get("dur")
            if not is_number(length):
                self._problems["of phase X without a duration"] += 1
            elif length < 0:
                self._problems["that end before they begin"] += 1
            else:
                self._span(thread, self._begun(event), float(time), float(length))
        elif phase == "B":
            name, args = self._begun(event)
            self._open.setdefault(thread, []).append((name, float(time), args))
        elif phase == "E":
            opened = self._open.get(thread)
            if not opened:
                self._problems["of phase E without a B"] += 1
                return
            name, begin, args = opened.pop()
            if time < begin:
                self._problems["that end before they begin"] += 1
            else:
                self._span(thread, (name, args), begin, float(time) - begin)
        elif phase in ("i", "I"):
            self._span(thread, self._begun(event), float(time), 0.0)
        elif phase == "C":
            self._sample(event, float(time))
        else:
            self._problems[f"of phase {str(phase)[:20]}"] += 1

    def _begun(self, event: Mapping[str, Any]) -> tuple[int, int]:
        """Return the numbers of an event's name and annotations."""
        args = event.get("args")
        number = -1
        if isinstance(args, dict) and args:
            number = len(self._annotations)
            self._annotations.append(args)
        return self._names.of(str(event.get("name") or "(no name)")), number

    def _span(
        self, thread: tuple[Any, Any], what: tuple[int, int], start: float, length: float
    ) -> None:
        lane = self._threads.setdefault(thread, len(self._threads))
        self._spans.append((lane, *what, start, length))

    def _sample(self, event: Mapping[str, Any], time: float) -> None:
        args = event.get("args")
        for key, value in args.items() if isinstance(args, dict) else ():
            if is_number(value):
                name = " ".join(filter(None, (str(event.get("name") or ""), key)))
                self._samples.append((self._counter_names.of(name), time, float(value)))

    def _name(self, event: Mapping[str, Any]) -> None:
        args = event.get("args")
        name = args.get("name") if isinstance(args, dict) else None
        process, thread = _plain(event.get("pid")), _plain(event.get("tid"))
        if isinstance(name, str) and event.get("name") == "process_name":
            self._process_names[process] = name
        elif isinstance(name, str) and event.get("name") == "thread_name":
            self._thread_names[process, thread] = name

    def spans(self) -> ImportedSpans:
        lane, name, args, start, duration = (
            zip(*self._spans, strict=True) if self._spans else [()] * 5
        )
        return ImportedSpans(
            "us",
            tuple(map(self._lane, self._threads)),
            self._names.texts,
            self._annotations,
            np.array(lane, np.int32),
            np.array(name, np.int32),
            np.array(args, np.int32),
            np.array(start, np.float64),
            np.array(duration, np.float64),
        )

    def _lane(self, thread: tuple[Any, Any]) -> str:
        process = self._process_names.get(thread[0])
        if process is None and len({pid for pid, _ in self._threads}) > 1:
            process = f"process {thread[0]}"
        own = self._thread_names.get(thread, f"thread {thread[1]}")
        return own if process is None else f"{process} / {own}"

    def counters(self) -> _Counters:
        name, time, value = zip(*self._samples, strict=True) if self._samples else [()] * 3
        return _Counters(
            self._counter_names.texts,
            np.array(name, np.int32),
            np.array(time, np.float64),
            np.array(value, np.float64),
        )

    def notes(self) -> Iterator[str]:
        unended = sum(map(len, self._open.values()))
        problems = {**self._problems, **({"of phase B without an E": unended} if unended else {})}
        if problems:
            listed = ", ".join(f"{count:,} {what}" for what, count in problems.items())
            yield f"Events left out: {listed}."


def is_number(value: Any) -> TypeGuard[int | float]:
    """True for a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value)


def _plain(identifier: Any) -> Any:
    """Return the id of a process or thread in a form that a dictionary takes as a key."""
    return identifier if isinstance(identifier, (int, str)) else str(identifier)


def span_rows(spans: ImportedSpans) -> Iterator[ImportedRow]:
    """Yield a row for each name of each lane, the longest first.

    The value is the sum of the durations. If events of one name are nested, these sums count time
    twice, and only the self times add up to the lane's time.
    """
    own = self_times(spans)
    keys = spans.lane.astype(np.int64) * max(len(spans.names), 1) + spans.name
    _, first, group, count = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    total, alone = np.bincount(group, spans.duration), np.bincount(group, own)
    shortest, longest = np.full((2, len(first)), np.inf)
    longest = -longest
    np.minimum.at(shortest, group, spans.duration)
    np.maximum.at(longest, group, spans.duration)
    for number in np.argsort(-total, kind="stable").tolist():
        is_instant = longest[number] == 0
        yield ImportedRow(
            spans.names[spans.name[first[number]]],
            None if is_instant else float(total[number]),
            None if is_instant else spans.unit,
            spans.lanes[spans.lane[first[number]]],
            int(count[number]),
            Quantity.INSTANT if is_instant else Quantity.INTERVAL,
            extra={}
            if is_instant
            else {
                "self_time": float(alone[number]),
                "shortest": float(shortest[number]),
                "longest": float(longest[number]),
            },
        )


def self_times(spans: ImportedSpans) -> Floats:
    """Return the duration of each span minus the spans nested in it on the same lane."""
    own = spans.duration.copy()
    end = spans.start + spans.duration
    order = np.lexsort((-end, spans.start, spans.lane))
    columns = (order, spans.lane[order], spans.start[order], end[order], spans.duration[order])
    around: list[tuple[int, float]] = []
    before = -1
    for number, lane, begins, ends, length in zip(*(c.tolist() for c in columns), strict=True):
        if lane != before:
            around, before = [], lane
        while around and not (begins < around[-1][1] and ends <= around[-1][1]):
            around.pop()
        if around:
            own[around[-1][0]] -= length
        around.append((number, ends))
    found: Floats = np.maximum(own, 0)
    return found
