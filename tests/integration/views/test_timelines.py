"""Timelines as traces: balanced, ordered, and with totals equal to the nanosecond."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb2

from etscope.errors import UsageError
from etscope.model.timeline import Timeline, Track
from etscope.views import TIMELINE_VIEWS, write_timeline
from etscope.views.traces import nest_spans
from tests.support.golden_files import check_golden
from tests.support.views import shapes
from tests.support.views.trace_checks import Checked, check_trace

TIMELINES = ("timeline", "cycles", "crossing", "no_spans")


def written(timeline: Timeline, name: str) -> bytes:
    binary, text = io.BytesIO(), io.StringIO()
    write_timeline(timeline, name, binary if TIMELINE_VIEWS[name].binary else text)
    return binary.getvalue() or text.getvalue().encode()


def perfetto(timeline: Timeline) -> Checked:
    return check_trace(written(timeline, "perfetto"))


def chrome(timeline: Timeline) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(written(timeline, "chrome"), parse_constant=pytest.fail)
    return document


def speedscope(timeline: Timeline) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        written(timeline, "speedscope"), parse_constant=pytest.fail
    )
    check_speedscope(document)
    return document


def totals(timeline: Timeline) -> Counter[str]:
    """Ticks in all, by name as a trace writes it."""
    total: Counter[str] = Counter()
    for name, start, end in zip(timeline.name_id, timeline.start, timeline.end, strict=True):
        text = timeline.names[name].encode("utf-8", "backslashreplace").decode()
        total[text] += int(end) - int(start)
    return total


def check_speedscope(document: dict[str, Any]) -> None:
    """The rules of speedscope's schema (file-format-spec.ts) for evented profiles."""
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    for frame in frames:
        assert set(frame) <= {"name", "file", "line", "col"}
        assert isinstance(frame["name"], str)
        assert isinstance(frame.get("line", 1), int)
    for profile in document["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "events"}
        assert profile["type"] == "evented"
        units = ("none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes")
        assert profile["unit"] in units
        stack: list[int] = []
        last = profile["startValue"]
        for event in profile["events"]:
            assert set(event) == {"type", "frame", "at"}
            assert last <= event["at"] <= profile["endValue"]
            last = event["at"]
            assert 0 <= event["frame"] < len(frames)
            if event["type"] == "O":
                stack.append(event["frame"])
            else:
                assert event["type"] == "C"
                assert stack.pop() == event["frame"]
        assert not stack


@pytest.mark.parametrize("shape", TIMELINES)
def test_golden(shape: str) -> None:
    timeline = getattr(shapes, shape)()
    trace = pb2.Trace.FromString(written(timeline, "perfetto"))
    check_golden(f"perfetto/{shape}.txt", text_format.MessageToString(trace))
    check_golden(f"chrome/{shape}.json", written(timeline, "chrome").decode())
    text = written(timeline, "speedscope").decode()
    text = text.replace(f'"exporter": "{json.loads(text)["exporter"]}"', '"exporter": "etscope"')
    check_golden(f"speedscope/{shape}.json", text)


def test_numpy_annotations_are_numbers() -> None:
    args = ({"n": np.int64(3), "x": np.float32(0.5), "b": np.bool_(True), "big": 2**70, "l": [1]},)
    timeline = replace(shapes.cycles(), args=args, args_id=np.zeros(2, np.int32))
    plain = {"n": 3, "x": 0.5, "b": True}
    assert perfetto(timeline).slices[0].args == {**plain, "big": str(2**70), "l": "[1]"}
    assert chrome(timeline)["traceEvents"][-1]["args"] == {**plain, "big": 2**70, "l": [1]}


def test_crossing_spans_move_to_further_lanes() -> None:
    lanes = nest_spans(shapes.crossing())
    assert [track.name for track in lanes.tracks] == ["pool", "after", "pool (2)", "pool (3)"]
    assert lanes.lane.tolist() == [0, 2, 3, 1]
    assert perfetto(shapes.crossing()).totals() == Counter(a=110, b=100, c=100)


def test_of_spans_that_start_together_the_longest_is_the_parent() -> None:
    none = np.zeros(3, np.int32)
    places = {"track": none, "name_id": none, "args_id": none - 1}
    times = {"start": np.array([10, 10, 10]), "end": np.array([20, 40, 30])}
    lanes = nest_spans(replace(shapes.cycles(), **places, **times))
    assert len(lanes.tracks) == 1
    assert lanes.event_span.tolist() == [1, 2, 0, 0, 2, 1]


@pytest.mark.parametrize(
    ("ticks_per_second", "expected"),
    [(1e9, [3, 1000]), (1e6, [3000, 1_000_000]), (3e9, [1, 333]), (None, [3, 1000])],
)
def test_ticks_become_nanoseconds(ticks_per_second: float | None, expected: list[int]) -> None:
    times = {"start": np.zeros(2, np.int64), "end": np.array([3, 1000])}
    timeline = replace(shapes.cycles(), ticks_per_second=ticks_per_second, **times)
    assert nest_spans(timeline).end_ns.tolist() == expected


ONES = np.zeros(300, np.int32)
CROSSING = np.arange(300)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"track": ONES, "start": CROSSING, "end": CROSSING + 300}
            | {"name_id": ONES, "args_id": ONES - 1},
            "overlap without being nested",
        ),
        ({"end": np.array([30, 39])}, "span 1 of the timeline, 'conv', ends before it starts"),
        ({"track": np.array([0, 1], np.int32)}, "tracks that it does not have"),
        ({"ticks_per_second": 1.0, "end": np.array([30, 2**62])}, "too large"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        nest_spans(replace(shapes.cycles(), **changes))


def test_perfetto_shifts_times_before_zero() -> None:
    timeline = replace(shapes.cycles(), start=np.array([-20, 40]), end=np.array([0, 45]))
    assert [(each.start, each.end) for each in perfetto(timeline).slices] == [(0, 20), (60, 65)]


def test_perfetto_writes_repeated_events_small() -> None:
    once = shapes.timeline()
    many = replace(
        once,
        **{name: np.tile(getattr(once, name), 100) for name in ("track", "name_id", "args_id")},  # type: ignore[arg-type]
        start=np.concatenate([once.start + 100_000 * run for run in range(100)]),
        end=np.concatenate([once.end + 100_000 * run for run in range(100)]),
    )
    assert perfetto(many).totals() == Counter({k: 100 * v for k, v in totals(once).items()})
    assert len(written(many, "perfetto")) < 100 * len(once) * 2 * 35


def test_chrome_times_are_exact_to_the_nanosecond() -> None:
    timeline = shapes.timeline()
    document = chrome(timeline)
    assert document["otherData"] == {"origin_ns": "1000000001", "title": "model.etdp"}
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    total: Counter[str] = Counter()
    for event in events:
        total[event["name"].encode("utf-8", "backslashreplace").decode()] += round(
            event["dur"] * 1000
        )
        assert event["dur"] * 1000 == pytest.approx(round(event["dur"] * 1000), abs=1e-6)
    assert total == totals(timeline)
    assert sorted(round(event["ts"] * 1000) for event in events) == sorted(
        (timeline.start - timeline.start.min()).tolist()
    )


@pytest.mark.parametrize(
    ("source", "frame"),
    [
        ("model.py:34", {"file": "model.py", "line": 34}),
        ("C:/a, b.py:3, c.py:4", {"file": "C:/a, b.py", "line": 3}),
        ("model.py", {"file": "model.py"}),
        ("model.py:x", {"file": "model.py:x"}),
        (":3", {"file": ":3"}),
    ],
)
def test_speedscope_reads_the_first_line_of_a_source(source: str, frame: dict[str, Any]) -> None:
    args = ({"source": source},)
    timeline = replace(shapes.cycles(), args=args, args_id=np.zeros(2, np.int32))
    assert speedscope(timeline)["shared"]["frames"] == [{"name": "conv", **frame}]


spans = st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12), st.integers(0, 3))


@settings(max_examples=200, deadline=None)
@given(st.lists(spans, max_size=40))
def test_any_spans_become_balanced_events(drawn: list[tuple[int, int, int, int]]) -> None:
    track, start, length, name = np.array(drawn, np.int64).reshape(-1, 4).T
    timeline = Timeline(
        tracks=(Track("a"), Track("b", parent=0), Track("a", parent=1)),
        names=("n0", "n1", "n2", "n3"),
        args=(),
        ticks_per_second=1e9,
        track=track.astype(np.int32),
        start=start,
        end=start + length,
        name_id=name.astype(np.int32),
        args_id=np.full(len(drawn), -1, np.int32),
    )
    checked = perfetto(timeline)
    assert checked.totals() == totals(timeline)
    assert len(checked.slices) == len(drawn)
    events = [event for event in chrome(timeline)["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(drawn)
    opened = [
        event
        for profile in speedscope(timeline)["profiles"]
        for event in profile["events"]
        if event["type"] == "O"
    ]
    assert len(opened) == len(drawn)


@pytest.mark.skipif(
    shutil.which("trace_processor_shell") is None, reason="no trace_processor_shell on PATH"
)
def test_the_trace_processor_reads_the_same_totals(tmp_path: Path) -> None:
    timeline = shapes.timeline()
    trace, query = tmp_path / "trace.pftrace", tmp_path / "query.sql"
    trace.write_bytes(written(timeline, "perfetto"))
    query.write_text("select name, sum(dur) as total from slice group by name;")
    done = subprocess.run(
        ["trace_processor_shell", "-q", str(query), str(trace)],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("Method::execute", "XnnpackBackend", "native_call_add.out"):
        assert f'"{name}",{totals(timeline)[name]}' in done.stdout
