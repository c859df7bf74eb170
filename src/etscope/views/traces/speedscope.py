"""Write speedscope's JSON: one evented profile for each track that has spans.

Times are nanoseconds (for cycles: without a unit) from the timeline's first span on. Frames are the
names of spans; a span with an annotation "source" ("file:line") is a frame of that line, which
speedscope shows.

Format: https://www.speedscope.app/file-format-schema.json
"""

from __future__ import annotations

import re
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from etscope._version import __version__
from etscope.model.timeline import Timeline
from etscope.views.output import dumps, write_joined
from etscope.views.traces.span_nesting import nest_spans

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_FILE_AND_LINE = re.compile(r"(.+?):([0-9]{1,9})(?:, |$)", re.DOTALL)


def write(timeline: Timeline, out: TextIO) -> None:
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
