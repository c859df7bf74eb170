"""speedscope's JSON: one evented profile for each track that has spans.

Times are nanoseconds (for cycles: without a unit) from the timeline's first span on. Frames are the
names of spans; one with an annotation "source" ("file:line") is a frame of that line, so that
speedscope shows it.

Format: https://www.speedscope.app/file-format-schema.json
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from etscope._version import __version__
from etscope.model.timeline import Timeline
from etscope.views.strict_json import dumps
from etscope.views.traces.span_nesting import NestedSpans, nest_spans

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_FILE_AND_LINE = re.compile(r"(.+?):([0-9]{1,9})(?:, |$)", re.DOTALL)
_CHUNK = 1000  # events written at a time


def write(timeline: Timeline, out: TextIO) -> None:
    """One event a line."""
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
        out.write(f'{separator}{dumps(head | bounds)[:-1]}, "events": [')
        _write_events(lanes, mine, times, frame_of, out)
        out.write("]}")
        separator = ",\n"
    out.write("\n]}\n")


def _frames(timeline: Timeline) -> tuple[list[dict[str, Any]], npt.NDArray[np.int64]]:
    """The frames, and the index of each span's."""
    pairs = np.stack([timeline.name_id, timeline.args_id], axis=1)
    different, pair_of = np.unique(pairs, axis=0, return_inverse=True)
    index: dict[tuple[str, str], int] = {}
    frame_of_pair = [
        index.setdefault((timeline.names[name_id], _source(timeline, args_id)), len(index))
        for name_id, args_id in different.tolist()
    ]
    frames = [_frame(name, source) for name, source in index]
    return frames, np.array(frame_of_pair, np.int64)[pair_of.reshape(-1)]


def _source(timeline: Timeline, args_id: int) -> str:
    return str(timeline.args[args_id].get("source") or "") if args_id >= 0 else ""


def _frame(name: str, source: str) -> dict[str, Any]:
    """A frame of the line, the first if an operator has several ("a.py:3, a.py:4")."""
    place = _FILE_AND_LINE.match(source)
    if place is not None:
        return {"name": name, "file": place[1], "line": int(place[2])}
    return {"name": name, "file": source} if source else {"name": name}


def _write_events(
    lanes: NestedSpans,
    events: npt.NDArray[np.intp],
    times: list[int],
    frame_of: npt.NDArray[np.int64],
    out: TextIO,
) -> None:
    kinds = np.where(lanes.event_is_end[events], "C", "O").tolist()
    frames = frame_of[lanes.event_span[events]].tolist()
    lines = (
        f'{{"type": "{kind}", "frame": {frame}, "at": {at}}}'
        for kind, frame, at in zip(kinds, frames, times, strict=True)
    )
    separator = "\n"
    while chunk := list(islice(lines, _CHUNK)):
        out.write(separator + ",\n".join(chunk))
        separator = ",\n"
