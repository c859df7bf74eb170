"""Write a Perfetto trace: TrackEvent packets, as ui.perfetto.dev and `trace_processor` read them.

One process holds the timeline's tracks, each below its parent, in their order. Spans are nested
begin and end events. Times are the timeline's own in nanoseconds (shifted only if some are before
0); a cycle is written as one nanosecond, and its track says so in its name. The annotations of a
span become debug annotations. Names and texts are interned, which keeps many runs of one program
small.

The schema is protos/perfetto/trace/ of Perfetto. Its own generated classes write it (the package
`perfetto`); only the frame of a packet and its timestamp are encoded here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import count
from typing import Any, BinaryIO

from etscope.model.timeline import Timeline
from etscope.support.optional import require
from etscope.views.tables.cells import plain_value, without_surrogates
from etscope.views.traces import NestedSpans, nest_spans

_PB2 = "perfetto.protos.perfetto.trace.perfetto_trace_pb2"
_SEQUENCE = 1
_PROCESS_UUID = 1
_FIRST_TRACK_UUID = 2
_PID = 1  # a process needs a number; the dump does not know its own
_INT64 = range(-(2**63), 2**63)
# Encoded here because it is done for every event: Trace.packet (field 1, a message) and
# TracePacket.timestamp (field 8, a varint). https://protobuf.dev/programming-guides/encoding/
_PACKET_TAG = b"\x0a"
_TIMESTAMP_TAG = b"\x40"
_CHUNK = 1 << 16  # bytes written at a time


def write(timeline: Timeline, out: BinaryIO) -> None:
    """Write the trace. Raises `MissingDependencyError` without the package `perfetto`."""
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
