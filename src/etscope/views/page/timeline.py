"""The timeline of the page: the runs as they happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from etscope.analysis.backend_files.file_views import FileSpans, file_spans
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.timeline import (
    RunSpans,
    few_runs,
    loading_runs,
    run_spans,
    span_levels,
)
from etscope.model.event_table import EXECUTE, EventKey
from etscope.views.page.elements import Json
from etscope.views.page.method import ShownMethod
from etscope.views.page.run import ReportRun

# Spans in the document. A span takes 30 to 50 bytes, so all take at most 1 MB.
MOST_SPANS = 20_000
# Runs on the timeline, most of them as one span: each is a track.
MOST_RUNS = 500
_CALLS = ("OPERATOR_CALL", "DELEGATE_CALL")  # the runtime's names for every call


def timeline_document(run: ReportRun) -> Json | None:
    """Return the `Timeline`: a track for each run, below it a track for each of its clocks.

    The runs that show most have all their spans. The others follow in run order while there is
    room; later runs are one span each. Every run starts at 0, so that the reader can compare
    them. Files of backends' tools have tracks below their runs. None without any run.
    """
    trace, scale = run.trace, run.scale
    if trace is None:
        return None
    shown = [_TimelineRun(one, "loading", None, 0, "loading") for one in loading_runs(trace)[:1]]
    shown += (one for method in run.methods for one in _runs_of(method))
    if not shown:
        return None
    notes = []
    counts = np.bincount(trace.events.run, minlength=1)
    first = [one for one in shown if one.why]
    limit = MOST_SPANS // len(first)
    room = MOST_SPANS - sum(min(int(counts[one.run]), limit) for one in first)
    others = [one for one in shown if not one.why]
    size = np.cumsum([int(counts[one.run]) for one in others])
    detailed = {id(one) for one in [*first, *others[: int(np.searchsorted(size, room, "right"))]]}
    listed = {id(one) for one in [*first, *others[: max(MOST_RUNS - len(first), 0)]]}
    left_out = len(shown) - len(listed)
    shown = [one for one in shown if id(one) in listed]
    whole = sum(id(one) not in detailed for one in shown)
    if whole:
        notes.append(f"{whole:,} runs are one span each: they have too many events.")
    if left_out:
        notes.append(f"{left_out:,} later runs are left out.")

    columns = _TimelineColumns(scale)
    runs = [one.run for one in shown if id(one) in detailed]
    spans = dict(zip(runs, run_spans(trace, runs, limit), strict=True))
    tracks: dict[int, int] = {}  # by run
    for one in shown:
        if id(one) in detailed:
            tracks[one.run] = columns.add(one, spans[one.run])
        elif one.method is not None:
            columns.add_whole(one, one.method)
    left = columns.add_files(list(file_spans(run.backend_files, scale.source)), spans, tracks)
    if shortest := left + sum(found.left_out for found in spans.values()):
        notes.append(f"{shortest:,} of the shortest spans are left out.")
    return {"note": " ".join(notes) or None, **columns.document()}


def _runs_of(method: ShownMethod) -> Iterator[_TimelineRun]:
    """All runs of a method; those that are excluded from its times are marked."""
    every = method.profile.every
    reasons, counted = few_runs(every), set(method.profile.runs.tolist())
    for position, run in enumerate(every.runs.tolist()):
        why = reasons.get(position)
        words = ", ".join(filter(None, (why, "excluded" * (run not in counted))))
        name = f"{method.name} · run {run}{f' ({words})' if words else ''}"
        yield _TimelineRun(run, name, method, position, why)


@dataclass(frozen=True, slots=True)
class _TimelineRun:
    """A run of the timeline, and the position of it among its method's runs. why: the reason to
    show all of it, None for one run among others."""

    run: int
    title: str
    method: ShownMethod | None
    position: int
    why: str | None


class _TimelineColumns:
    """Collects the tracks and spans of a `Timeline`."""

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._tracks: list[Json] = []
        self._runs: dict[int, int] = {}  # by the number of their track
        self._names: dict[str, int] = {}
        names = ("track", "start", "duration", "name", "level", "row")
        self._columns: dict[str, list[Any]] = {name: [] for name in names}

    def document(self) -> Json:
        runs = [self._runs.get(number) for number in range(len(self._tracks))]
        names = list(self._names)
        return {"tracks": self._tracks, "runs": runs, "names": names, **self._columns}

    def add_whole(self, one: _TimelineRun, method: ShownMethod) -> None:
        """Add a run of a method as one span."""
        total = float(self._scale(method.profile.every.total[one.position]))
        name = self._names.setdefault(EXECUTE, len(self._names))
        row = [method.index, len(method.rows) - 1]
        self._runs[len(self._tracks)] = one.run
        self._extend(
            track=[len(self._tracks)],
            start=[0.0],
            duration=[total],
            name=[name],
            level=[0],
            row=[row],
        )
        self._tracks.append({"name": one.title, "parent": None, "note": None})

    def add(self, one: _TimelineRun, spans: RunSpans) -> int:
        """Add the spans of a run; return its track."""
        parent = len(self._tracks)
        self._runs[parent] = one.run
        self._tracks.append({"name": one.title, "parent": None, "note": None})
        self._tracks += (
            {"name": name, "parent": parent, "note": note} for name, note in spans.tracks
        )
        used, place = np.unique(spans.event, return_inverse=True)
        events = [self._event(spans.events[number].key, one.method) for number in used.tolist()]
        self._extend(
            track=(spans.track + parent + 1).tolist(),
            start=self._scale(spans.start).tolist(),
            duration=self._scale(spans.duration).tolist(),
            level=spans.level.tolist(),
            name=[events[event][0] for event in place.tolist()],
            row=[events[event][1] for event in place.tolist()],
        )
        return parent

    def add_files(
        self, files: Sequence[FileSpans], runs: Mapping[int, RunSpans], tracks: Mapping[int, int]
    ) -> int:
        """Add the spans of files below the tracks of their runs; return how many of the shortest
        spans are left out."""
        left = 0
        for spans in files:
            counts = np.bincount(spans.run, minlength=1)
            own = [run for run in tracks if run < len(counts) and counts[run]]
            for run in own:
                kept = spans.of_run(run, MOST_SPANS // (len(files) * len(own)))
                left += int(counts[run]) - len(kept.run)
                self._add_file(kept, tracks[run], runs[run].origin)
        return left

    def _add_file(self, spans: FileSpans, parent: int, origin: int) -> None:
        imported = spans.imported
        order = np.lexsort((-spans.end, spans.start, imported.lane))
        lane, start, end = imported.lane[order], spans.start[order], spans.end[order]
        used, track = np.unique(lane, return_inverse=True)
        self._extend(
            track=(track + len(self._tracks)).tolist(),
            start=self._scale(start - origin).tolist(),
            duration=self._scale(end - start).tolist(),
            level=span_levels(track, start, end).tolist(),
            name=[
                self._names.setdefault(imported.names[number], len(self._names))
                for number in imported.name[order].tolist()
            ],
            row=[None] * len(order),
        )
        self._tracks += (
            {
                "name": f"{spans.title} · {imported.lanes[number]}",
                "parent": parent,
                "note": spans.note,
            }
            for number in used.tolist()
        )

    def _event(self, key: EventKey, method: ShownMethod | None) -> tuple[int, list[int] | None]:
        """The name of an event's spans, and the method and row that they belong to."""
        row = None if method is None else method.row_of_event(key)
        if method is None or row is None:
            return self._names.setdefault(key.name, len(self._names)), None
        is_told = key.name in _CALLS or key.role == "delegated"
        name = method.rows[row].name if is_told else key.name  # of what it calls
        return self._names.setdefault(name, len(self._names)), [method.index, row]

    def _extend(self, **columns: Sequence[Any]) -> None:
        for name, values in columns.items():
            self._columns[name] += values
