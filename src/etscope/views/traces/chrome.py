"""Write Trace Event JSON, which chrome://tracing, Perfetto and others read.

Complete events ("X") with `ts` and `dur` in microseconds, written with three decimals so that they
are exact to the nanosecond, counted from the first span so that they stay exact as JSON numbers;
"otherData" has the time of that. Each track is a thread. Cycles are written as if one were a
nanosecond, and the name of their track says that they are cycles.

Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TextIO

from etscope.model.timeline import Timeline
from etscope.views.output import dumps, write_joined
from etscope.views.tables.cells import plain_value
from etscope.views.traces.span_nesting import NestedSpans, nest_spans

_PID = 1  # a process needs a number; the dump does not know its own


def write(timeline: Timeline, out: TextIO) -> None:
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
