"""Timelines as traces (Chrome, speedscope, Perfetto), and spans as the nested events of traces.

Spans of one track should nest or be disjoint. Where they do not (events of several threads, a clock
that was set back), the span that crosses the end of another moves to another lane, an added
track of the same parent named "<track> (2)": no span is lost and no time is changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import count
from typing import Any, BinaryIO, TextIO

import numpy as np
import numpy.typing as npt

from etscope._version import __version__
from etscope.errors import UsageError
from etscope.model.timeline import Timeline, Track
from etscope.support.optional import require
from etscope.views.output import dumps, write_joined
from etscope.views.tables.cells import plain_value, without_surrogates

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


# -- Trace Event JSON, which chrome://tracing, Perfetto and others read.
#
# Complete events ("X") with `ts` and `dur` in microseconds, written with three decimals so that
# they are exact to the nanosecond, counted from the first span so that they stay exact as JSON
# numbers; "otherData" has the time of that. Each track is a thread. Cycles are written as if one
# were a nanosecond, and the name of their track says that they are cycles.
#
# Format: "Trace Event Format",
# https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

_PID = 1  # a process needs a number; the dump does not know its own


def write_chrome(timeline: Timeline, out: TextIO) -> None:
    """Write one event a line."""
    lanes = nest_spans(timeline)
    unit = "ms" if timeline.ticks_per_second is not None else "ns"
    about = {"origin_ns": str(lanes.origin_ns), "title": timeline.title}
    out.write(f'{{"displayTimeUnit": "{unit}",\n"otherData": {dumps(about)},\n')
    out.write('"traceEvents": [\n')
    write_joined(out, _events(timeline, lanes), ",\n")
    out.write("\n]}\n")


def _events(timeline: Timeline, lanes: NestedSpans) -> Iterator[str]:
    """The names of the lanes, then the spans by start, a parent before its children."""

    def record(what: str, tid: int, **args: Any) -> str:
        return dumps({"ph": "M", "name": what, "pid": _PID, "tid": tid, "args": args})

    yield record("process_name", 0, name=timeline.title or "etscope")
    for index, label in enumerate(lanes.labels):
        yield record("thread_name", index + 1, name=label)
        yield record("thread_sort_index", index + 1, sort_index=index)
    order = lanes.event_span[~lanes.event_is_end]
    columns = (
        lanes.lane[order],
        timeline.name_id[order],
        timeline.args_id[order],
        lanes.start_ns[order] - lanes.origin_ns,
        lanes.end_ns[order] - lanes.start_ns[order],
    )
    rows = [column.tolist() for column in columns]
    names = [dumps(name) for name in timeline.names]
    args: dict[int, str] = {-1: ""}
    for lane, name_id, args_id, start, duration in zip(*rows, strict=True):
        if args_id not in args:
            values = {name: plain_value(value) for name, value in timeline.args[args_id].items()}
            args[args_id] = f', "args": {dumps(values)}'
        yield (
            f'{{"ph": "X", "name": {names[name_id]}, "pid": {_PID}, "tid": {lane + 1}, '
            f'"ts": {_microseconds(start)}, "dur": {_microseconds(duration)}{args[args_id]}}}'
        )


def _microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


# -- speedscope's JSON: one evented profile for each track that has spans.
#
# Times are nanoseconds (for cycles: without a unit) from the timeline's first span on. Frames are
# the names of spans; a span with an annotation "source" ("file:line") is a frame of that line,
# which speedscope shows.
#
# Format: https://www.speedscope.app/file-format-schema.json

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_FILE_AND_LINE = re.compile(r"(.+?):([0-9]{1,9})(?:, |$)", re.DOTALL)


def write_speedscope(timeline: Timeline, out: TextIO) -> None:
    """Write one event a line."""
    lanes = nest_spans(timeline)
    frames, frame_of = _frames(timeline)
    unit = "none" if timeline.ticks_per_second is None else "nanoseconds"
    out.write(f'{{"$schema": "{_SCHEMA}",\n"exporter": "etscope {__version__}",\n')
    out.write(f'"name": {dumps(timeline.title or "etscope")},\n')
    out.write(f'"shared": {dumps({"frames": frames})},\n"profiles": [')
    separator = "\n"
    for lane, label in enumerate(lanes.labels):
        mine = np.flatnonzero(lanes.lane[lanes.event_span] == lane)
        if not len(mine):
            continue
        times = (lanes.event_ns[mine] - lanes.origin_ns).tolist()
        head = {"type": "evented", "name": label, "unit": unit}
        bounds = {"startValue": times[0], "endValue": times[-1]}
        out.write(f'{separator}{dumps(head | bounds)[:-1]}, "events": [\n')
        kinds = np.where(lanes.event_is_end[mine], "C", "O").tolist()
        frame_ids = frame_of[lanes.event_span[mine]].tolist()
        events = (
            f'{{"type": "{kind}", "frame": {frame}, "at": {at}}}'
            for kind, frame, at in zip(kinds, frame_ids, times, strict=True)
        )
        write_joined(out, events, ",\n")
        out.write("]}")
        separator = ",\n"
    out.write("\n]}\n")


def _frames(timeline: Timeline) -> tuple[list[dict[str, Any]], npt.NDArray[np.int64]]:
    """The frames, and the index of each span's."""
    pairs = np.stack([timeline.name_id, timeline.args_id], axis=1)
    different, pair_of = np.unique(pairs, axis=0, return_inverse=True)
    index: dict[tuple[str, str], int] = {}
    frame_of_pair: list[int] = []
    for name_id, args_id in different.tolist():
        source = str(timeline.args[args_id].get("source") or "") if args_id >= 0 else ""
        frame_of_pair.append(index.setdefault((timeline.names[name_id], source), len(index)))
    frames: list[dict[str, Any]] = []
    for name, source in index:
        line = _FILE_AND_LINE.match(source)  # the first of an operator with several ("a.py:3, …")
        if line is not None:
            frames.append({"name": name, "file": line[1], "line": int(line[2])})
        else:
            frames.append({"name": name, "file": source} if source else {"name": name})
    return frames, np.array(frame_of_pair, np.int64)[pair_of.reshape(-1)]


# -- Perfetto: TrackEvent packets, as ui.perfetto.dev and `trace_processor` read them. The package
# `perfetto` writes them by the schema in protos/perfetto/trace/.

_PB2 = "perfetto.protos.perfetto.trace.perfetto_trace_pb2"
_SEQUENCE = 1
_PROCESS_UUID = 1
_FIRST_TRACK_UUID = 2
_INT64 = range(-(2**63), 2**63)
# Encoded here because it is done for every event: Trace.packet (field 1, a message) and
# TracePacket.timestamp (field 8, a varint). https://protobuf.dev/programming-guides/encoding/
_PACKET_TAG = b"\x0a"
_TIMESTAMP_TAG = b"\x40"
_CHUNK = 1 << 16  # bytes written at a time


def write_perfetto(timeline: Timeline, out: BinaryIO) -> None:
    """Write a Perfetto trace. Raises `MissingDependencyError` without the package `perfetto`.

    One process holds the timeline's tracks, each below its parent, in their order. Times are in
    nanoseconds, shifted only if some are before 0; a cycle is written as one nanosecond, and its
    track says so in its name. Names and texts are interned, which keeps many runs of one program
    small.
    """
    pb2 = require(_PB2, wanted_by="the Perfetto format")
    lanes = nest_spans(timeline)
    buffer = bytearray()
    packets = _Packets(pb2, timeline, lanes, buffer.extend)
    packets.describe_tracks()
    shift = max(0, -lanes.origin_ns)  # a timestamp is unsigned
    events = zip(
        lanes.event_span.tolist(),
        lanes.event_is_end.tolist(),
        (lanes.event_ns + shift).tolist(),
        strict=True,
    )
    for span, is_end, time_ns in events:
        packet = packets.end(span) if is_end else packets.begin(span)
        timestamp = _TIMESTAMP_TAG + _varint(time_ns)
        buffer += _PACKET_TAG + _varint(len(packet) + len(timestamp)) + packet + timestamp
        if len(buffer) > _CHUNK:
            out.write(bytes(buffer))
            buffer.clear()
    out.write(bytes(buffer))


class _Packets:
    """Makes the packets of one trace. Packets that others refer to go to `emit` before them.

    Most events repeat an earlier run's in all but time: each different one is made once.
    """

    def __init__(
        self, pb2: Any, timeline: Timeline, lanes: NestedSpans, emit: Callable[[bytes], None]
    ) -> None:
        self._pb2 = pb2
        self._timeline = timeline
        self._lanes = lanes
        self._emit = emit
        self._lane = lanes.lane.tolist()
        self._name_id = timeline.name_id.tolist()
        self._args_id = timeline.args_id.tolist()
        self._begin_of, self._end_of = cache(self._new_begin), cache(self._new_end)
        self._interned = pb2.InternedData()  # what was not yet emitted
        self._iid, self._iids = cache(self._intern), count(1)

    def describe_tracks(self) -> None:
        """Write the descriptions of the process and of its tracks, and start the packet sequence
        that all packets belong to.
        """
        kinds = self._pb2.TrackDescriptor
        packet = self._packet(cleared=True)
        process = packet.track_descriptor
        process.uuid = _PROCESS_UUID
        process.process.pid = _PID
        process.process.process_name = without_surrogates(self._timeline.title or "etscope")
        process.child_ordering = kinds.EXPLICIT
        self._emit_packet(packet)
        tracks = zip(self._lanes.tracks, self._lanes.labels, strict=True)
        for index, (track, label) in enumerate(tracks):
            packet = self._packet()
            descriptor = packet.track_descriptor
            descriptor.uuid = _FIRST_TRACK_UUID + index
            descriptor.parent_uuid = (
                _PROCESS_UUID if track.parent is None else _FIRST_TRACK_UUID + track.parent
            )
            descriptor.name = without_surrogates(label)
            descriptor.sibling_order_rank = index
            descriptor.child_ordering = kinds.EXPLICIT
            # Else the viewer draws tracks of one name as one.
            descriptor.sibling_merge_behavior = kinds.SIBLING_MERGE_BEHAVIOR_NONE
            self._emit_packet(packet)

    def begin(self, span: int) -> bytes:
        """The packet that begins `span`, without its timestamp."""
        return self._begin_of(self._lane[span], self._name_id[span], self._args_id[span])

    def end(self, span: int) -> bytes:
        """The packet that ends `span`, without its timestamp."""
        return self._end_of(self._lane[span])

    def _new_end(self, lane: int) -> bytes:
        packet = self._event(lane, self._pb2.TrackEvent.TYPE_SLICE_END)
        return packet.SerializeToString()  # type: ignore[no-any-return]

    def _new_begin(self, lane: int, name_id: int, args_id: int) -> bytes:
        packet = self._event(lane, self._pb2.TrackEvent.TYPE_SLICE_BEGIN)
        event = packet.track_event
        event.name_iid = self._iid("event_names", self._timeline.names[name_id])
        if args_id >= 0:
            self._annotate(event.debug_annotations, self._timeline.args[args_id])
        if self._interned.ByteSize():
            dictionary = self._packet()
            dictionary.interned_data.CopyFrom(self._interned)
            self._emit_packet(dictionary)
            self._interned.Clear()
        return packet.SerializeToString()  # type: ignore[no-any-return]

    def _annotate(self, annotations: Any, args: Mapping[str, Any]) -> None:
        for name, anything in args.items():
            value = plain_value(anything)
            if value is None:
                continue
            annotation = annotations.add()
            annotation.name_iid = self._iid("debug_annotation_names", name)
            if isinstance(value, bool):
                annotation.bool_value = value
            elif isinstance(value, int) and value in _INT64:
                annotation.int_value = value
            elif isinstance(value, float):
                annotation.double_value = value
            else:
                iid = self._iid("debug_annotation_string_values", str(value))
                annotation.string_value_iid = iid

    def _intern(self, kind: str, text: str) -> int:
        """The number of `text` in the interned strings of `kind`; 0 would mean none."""
        number = next(self._iids)
        entry = getattr(self._interned, kind).add()
        entry.iid = number
        if kind == "debug_annotation_string_values":
            # Bytes in the schema, unlike its siblings.
            entry.str = without_surrogates(text).encode()
        else:
            entry.name = without_surrogates(text)
        return number

    def _event(self, lane: int, kind: int) -> Any:
        packet = self._packet()
        packet.track_event.type = kind
        packet.track_event.track_uuid = _FIRST_TRACK_UUID + lane
        return packet

    def _packet(self, *, cleared: bool = False) -> Any:
        """A packet of our sequence. The first clears the incremental state; all others need it."""
        kinds = self._pb2.TracePacket
        packet = kinds(trusted_packet_sequence_id=_SEQUENCE)
        packet.sequence_flags = (
            kinds.SEQ_INCREMENTAL_STATE_CLEARED if cleared else kinds.SEQ_NEEDS_INCREMENTAL_STATE
        )
        return packet

    def _emit_packet(self, packet: Any) -> None:
        self._emit(self._pb2.Trace(packet=[packet]).SerializeToString())


def _varint(value: int) -> bytes:
    """Base 128, the least significant group first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
