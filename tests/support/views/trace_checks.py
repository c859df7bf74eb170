"""What must hold of a Perfetto trace, checked without Perfetto's own trace processor."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb2

INTERNED = ("event_names", "debug_annotation_names", "debug_annotation_string_values")


@dataclass
class Slice:
    track: int
    name: str
    start: int
    end: int
    depth: int
    args: dict[str, Any]


@dataclass
class Checked:
    """A trace that passed: its slices, and its tracks as uuid -> (name, parent's uuid)."""

    slices: list[Slice] = field(default_factory=list)
    tracks: dict[int, tuple[str, int]] = field(default_factory=dict)

    def totals(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for each in self.slices:
            total[each.name] += each.end - each.start
        return total


def check_trace(data: bytes) -> Checked:
    """Parse `data` and check it as a reader would understand it, packet by packet."""
    trace = pb2.Trace.FromString(data)
    _check_no_unknown_fields(trace)
    checked = Checked()
    interned: dict[str, dict[int, str]] = {kind: {} for kind in INTERNED}
    open_slices: dict[int, list[Slice]] = defaultdict(list)
    last = 0
    for number, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        cleared = bool(packet.sequence_flags & packet.SEQ_INCREMENTAL_STATE_CLEARED)
        needs = bool(packet.sequence_flags & packet.SEQ_NEEDS_INCREMENTAL_STATE)
        assert (cleared, needs) == (number == 0, number != 0)
        _learn(packet.interned_data, interned)
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert descriptor.uuid not in checked.tracks
            assert descriptor.parent_uuid == 0 or descriptor.parent_uuid in checked.tracks
            name = descriptor.name or descriptor.process.process_name
            checked.tracks[descriptor.uuid] = (name, descriptor.parent_uuid)
        if packet.HasField("track_event"):
            assert packet.timestamp >= last, "timestamps of a sequence must not fall"
            last = packet.timestamp
            _follow(packet, interned, open_slices[packet.track_event.track_uuid], checked)
    assert not any(open_slices.values()), "every begin has an end"
    return checked


def _follow(
    packet: Any, interned: dict[str, dict[int, str]], stack: list[Slice], checked: Checked
) -> None:
    event = packet.track_event
    assert event.track_uuid in checked.tracks
    if event.type == event.TYPE_SLICE_END:
        ended = stack.pop()
        ended.end = packet.timestamp
        return
    assert event.type == event.TYPE_SLICE_BEGIN
    args = {
        interned["debug_annotation_names"][each.name_iid]: _value(each, interned)
        for each in event.debug_annotations
    }
    name = interned["event_names"][event.name_iid]
    slice_ = Slice(event.track_uuid, name, packet.timestamp, -1, len(stack), args)
    stack.append(slice_)
    checked.slices.append(slice_)


def _value(annotation: Any, interned: dict[str, dict[int, str]]) -> Any:
    kind = annotation.WhichOneof("value")
    if kind == "string_value_iid":
        return interned["debug_annotation_string_values"][annotation.string_value_iid]
    return getattr(annotation, kind)


def _learn(data: Any, interned: dict[str, dict[int, str]]) -> None:
    for kind in INTERNED:
        for entry in getattr(data, kind):
            assert entry.iid != 0
            assert entry.iid not in interned[kind]
            text = entry.str.decode() if kind.endswith("string_values") else entry.name
            interned[kind][entry.iid] = text


def _check_no_unknown_fields(message: Any) -> None:
    assert len(UnknownFieldSet(message)) == 0, f"unknown fields in {type(message).__name__}"
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            repeated = hasattr(value, "__len__") and not hasattr(value, "ListFields")
            for child in value if repeated else [value]:
                _check_no_unknown_fields(child)
