"""Spans of files of backends' tools on the timeline of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.backend_files.placement import PlacedFile
from etscope.backends.registry.tool_files import ImportedSpans
from etscope.model.event_table import Ints
from etscope.model.timeline import Timeline, Track
from etscope.units import TimeScale, scale_factor


@dataclass(frozen=True)
class FileSpans:
    """The spans of a file on the dump's clock. `start`, `end`: in ticks; `run`: index in the dump;
    `lane`, `name`, `args`: indices into the lists of `imported`."""

    title: str
    note: str | None
    imported: ImportedSpans
    run: Ints
    start: Ints
    end: Ints

    def of_run(self, run: int, limit: int) -> FileSpans:
        """Return the spans of a run, the longest `limit` of them."""
        kept = np.flatnonzero(self.run == run)
        if len(kept) > limit:
            length = (self.end - self.start)[kept]
            kept = np.sort(kept[np.argsort(-length, kind="stable")[:limit]])
        return replace(
            self,
            imported=self.imported.take(kept),
            run=self.run[kept],
            start=self.start[kept],
            end=self.end[kept],
        )


def file_spans(placed: Sequence[PlacedFile], source: TimeScale) -> Iterator[FileSpans]:
    """Yield the spans of each file that has spans on a clock that converts to the dump's."""
    for one in placed:
        spans = one.file.spans
        if spans is None or not len(spans):
            continue
        if spans.unit == "us" and source is TimeScale.CYCLES:
            continue  # files do not record the length of a cycle
        factor = 1.0 if spans.unit == "cycles" else scale_factor(source, TimeScale.US)
        first = 0.0 if one.on_runtime_clock else spans.start.min()
        begin = np.rint((spans.start - first) * factor).astype(np.int64)
        call = one.calls[0]
        note = None
        if one.on_runtime_clock:
            nearest = np.searchsorted(call.start, begin + 1, "right") - 1
            run = call.run[np.maximum(nearest, 0)]
        else:
            begin += call.start[0]
            run = np.full(len(begin), call.run[0], np.int64)
            note = "from the start of the call"
            if spans.unit == "cycles":
                note = f"cycles, not time; {note}"
        end = begin + np.rint(spans.duration * factor).astype(np.int64)
        title = f"{one.name} · {one.file.kind}"
        yield FileSpans(title, note, spans, run.astype(np.int64), begin, end)


def with_files(timeline: Timeline, placed: Sequence[PlacedFile], source: TimeScale) -> Timeline:
    """Add a track for each file below the runtime's track, and one below it for each lane."""
    for spans in file_spans(placed, source):
        timeline = _with_spans(timeline, spans)
    return timeline


def _with_spans(timeline: Timeline, spans: FileSpans) -> Timeline:
    imported = spans.imported
    head = len(timeline.tracks)
    tracks = [
        Track(spans.title, 0, spans.note),
        *(Track(lane, head, spans.note) for lane in imported.lanes),
    ]
    args: list[Mapping[str, Any]] = [
        # A trace can hold numbers and texts.
        {key: of if isinstance(of, (int, float, str, bool)) else str(of) for key, of in one.items()}
        for one in imported.annotations
    ]
    order = np.lexsort((-spans.end, spans.start, imported.lane))
    track = imported.lane + head + 1
    name = imported.name + len(timeline.names)
    about = np.where(imported.args < 0, -1, imported.args + len(timeline.args))

    def added(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([old, new[order].astype(old.dtype)])

    return replace(
        timeline,
        tracks=(*timeline.tracks, *tracks),
        names=(*timeline.names, *imported.names),
        args=(*timeline.args, *args),
        track=added(timeline.track, track),
        start=added(timeline.start, spans.start),
        end=added(timeline.end, spans.end),
        name_id=added(timeline.name_id, name),
        args_id=added(timeline.args_id, about),
    )
