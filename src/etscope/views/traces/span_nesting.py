"""Order the spans of a timeline as begin and end events, as trace formats need them.

Spans of one track should nest or be disjoint. Where they do not (events of several threads, a clock
that was set back), the span that crosses the end of another moves to another lane, an added
track of the same parent named "<track> (2)": no span is lost and no time is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.model.timeline import Timeline, Track

_NS_PER_SECOND = 10**9
_MAX_LANES = 100  # the time for more grows with the square of the spans
_MAX_NS = 2**62  # so that the difference of two times fits in 64 bits

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NestedSpans:
    """The spans of a timeline in lanes; in each lane spans nest.

    `tracks` are the timeline's, then the added lanes; `labels` their names with a note on their
    clock. `start_ns` and `end_ns` are a span's times: nanoseconds, or cycles where the timeline has
    cycles. `lane` is a span's index in `tracks`.

    `event_span` and `event_is_end` are the events in order of time, with balanced begins and ends
    in each lane.
    """

    tracks: tuple[Track, ...]
    labels: tuple[str, ...]
    start_ns: Ints
    end_ns: Ints
    lane: Ints
    event_span: Ints
    event_is_end: npt.NDArray[np.bool_]

    @property
    def event_ns(self) -> Ints:
        return np.where(
            self.event_is_end, self.end_ns[self.event_span], self.start_ns[self.event_span]
        )

    @property
    def origin_ns(self) -> int:
        """Start of the first span."""
        return int(self.start_ns.min()) if len(self.start_ns) else 0


def nest_spans(timeline: Timeline) -> NestedSpans:
    """Nest the spans of `timeline`. Raises `UsageError` for spans that end before they start."""
    start = _nanoseconds(timeline.start, timeline.ticks_per_second)
    end = _nanoseconds(timeline.end, timeline.ticks_per_second)
    backward = np.flatnonzero(end < start)
    if len(backward):
        name = timeline.names[timeline.name_id[backward[0]]]
        raise UsageError(f"span {backward[0]} of the timeline, {name!r}, ends before it starts")
    tracks = list(timeline.tracks)
    lane = timeline.track.astype(np.int64)
    spans: list[Ints] = []
    ends: list[npt.NDArray[np.bool_]] = []
    for index in range(len(timeline.tracks)):
        mine = np.flatnonzero(timeline.track == index)
        # Stable: of spans with equal times the first one is the parent.
        mine = mine[np.lexsort((-end[mine], start[mine]))]
        for number, (order, is_end) in enumerate(_stacks(mine, start, end)):
            if number:
                lane[order] = len(tracks)
                track = timeline.tracks[index]
                tracks.append(Track(f"{track.name} ({number + 1})", track.parent, track.note))
            spans.append(order)
            ends.append(is_end)
    event_span = np.concatenate([np.empty(0, np.int64), *spans])
    event_is_end = np.concatenate([np.empty(0, np.bool_), *ends])
    if len(event_span) != 2 * len(timeline):
        raise UsageError("the timeline has spans on tracks that it does not have")
    order = np.argsort(np.where(event_is_end, end[event_span], start[event_span]), kind="stable")
    clock = "cycles, not time" if timeline.ticks_per_second is None else None
    notes = [clock if track.note is None else track.note for track in tracks]
    named = zip((track.name for track in tracks), notes, strict=True)
    return NestedSpans(
        tracks=tuple(tracks),
        labels=tuple(name if note is None else f"{name} ({note})" for name, note in named),
        start_ns=start,
        end_ns=end,
        lane=lane,
        event_span=event_span[order],
        event_is_end=event_is_end[order],
    )


def _stacks(spans: Ints, start: Ints, end: Ints) -> Iterator[tuple[Ints, npt.NDArray[np.bool_]]]:
    """Split the events of sorted `spans` into stacks; a span that crosses another is in the next.

    Yields the spans of a stack's events, and for each event True if it is the end.
    """
    for _ in range(_MAX_LANES):
        events, crossing = _stack(spans.tolist(), start[spans].tolist(), end[spans].tolist())
        # An end is written as the complement of its span: one list is faster to fill than two.
        codes = np.array(events, np.int64)
        yield np.where(codes < 0, ~codes, codes), codes < 0
        if not crossing:
            return
        spans = np.array(crossing, np.int64)
    raise UsageError(
        f"more than {_MAX_LANES} spans of one track overlap without being nested: "
        "they cannot be events of calls"
    )


def _stack(spans: list[int], starts: list[int], ends: list[int]) -> tuple[list[int], list[int]]:
    """Begin and end events of the spans that nest, and the spans that cross another's end."""
    events: list[int] = []
    crossing: list[int] = []
    open_spans: list[int] = []
    open_ends: list[int] = []
    for span, start, end in zip(spans, starts, ends, strict=True):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
            events.append(~open_spans.pop())
        if open_ends and open_ends[-1] < end:
            crossing.append(span)
            continue
        events.append(span)
        open_spans.append(span)
        open_ends.append(end)
    events.extend(~span for span in reversed(open_spans))
    return events, crossing


def _nanoseconds(ticks: Ints, ticks_per_second: float | None) -> Ints:
    """Return `ticks` in nanoseconds; cycles unchanged."""
    factor = Fraction(1)
    if ticks_per_second is not None:
        factor = _NS_PER_SECOND / Fraction(ticks_per_second)
    largest = max(-int(ticks.min()), int(ticks.max())) if len(ticks) else 0
    if largest * factor > _MAX_NS:
        raise UsageError("the times of the timeline are too large for nanoseconds in 64 bits")
    if factor.denominator == 1:
        return ticks.astype(np.int64) * int(factor)
    return np.array([round(tick * factor) for tick in ticks.tolist()], np.int64)
