"""A few runs of a dump as they happened: the spans that a page draws of them.

A dump of ten thousand runs has millions of spans; of each method the first run, the median and
the slowest tell most of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.blocks import Block, EventKey
from etscope.analysis.profile.profile import MethodProfile, Ticks, executes
from etscope.analysis.profile.timeline import event_spans
from etscope.analysis.profile.trace import Trace

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RunSpans:
    """The spans of one run on its tracks, parents before children, `start` 0 at the first.

    tracks: (name, note) of each; `track`, `start`, `duration` (ticks), `level` (0: nested in no
    other of its track) and `event` are parallel. `event` is an index into `events`: the block and
    its key that a span is of. `left_out` counts the shortest spans, left out for their number.
    """

    run: int
    tracks: tuple[tuple[str, str | None], ...]
    events: Sequence[tuple[Block, EventKey]]
    track: Ints
    start: Ints
    duration: Ints
    level: Ints
    event: Ints
    left_out: int = 0


def few_runs(profile: MethodProfile) -> dict[int, str]:
    """The runs of a profile that tell most of it, as positions in `profile.runs`, and why each:
    "first", "median", "slowest"; one that is several has the words of all. The first run fills
    caches: it is neither of the others."""
    total = profile.total
    if len(total) == 1:
        return {0: "the only one"}
    later = np.arange(1, len(total))
    by_time = later[np.argsort(total[later], kind="stable")]
    chosen: dict[int, list[str]] = {0: ["first"]}
    chosen.setdefault(int(by_time[(len(by_time) - 1) // 2]), []).append("median")
    chosen.setdefault(int(by_time[-1]), []).append("slowest")
    return {position: ", ".join(words) for position, words in sorted(chosen.items())}


def loading_runs(trace: Trace) -> list[int]:
    """The runs of the dump that executed nothing, but were timed: loading."""
    runs = [
        run
        for block in trace.blocks
        if block.profiled and not executes(block)
        for run in block.runs.tolist()
    ]
    return sorted(runs)


def run_spans(trace: Trace, run: int, limit: int) -> RunSpans:
    """The spans of one run of the dump, the longest `limit` of them."""
    spans = event_spans(trace, [run])
    timeline = spans.timeline
    duration = timeline.end - timeline.start
    kept = np.arange(len(duration))
    if len(kept) > limit:
        # What holds a kept span is as long, so that no parent is missing.
        kept = np.sort(np.argsort(-duration, kind="stable")[:limit])
    track, start, end = timeline.track[kept], timeline.start[kept], timeline.end[kept]
    used, own = np.unique(track, return_inverse=True)
    tracks = [timeline.tracks[number] for number in used.tolist()]
    return RunSpans(
        run=run,
        tracks=tuple((found.name, found.note) for found in tracks),
        events=spans.events,
        track=own.astype(np.int64),
        start=start - (start.min() if len(start) else 0),
        duration=duration[kept],
        level=_levels(own, start, end),
        event=spans.event[kept],
        left_out=len(duration) - len(kept),
    )


def _levels(track: npt.NDArray[np.intp], start: Ticks, end: Ticks) -> Ints:
    """How many spans of its track each one lies in; spans stand after those that hold them."""
    levels = np.zeros(len(start), np.int64)
    around: list[int] = []  # where those end that hold what comes next
    before = -1
    columns = zip(track.tolist(), start.tolist(), end.tolist(), strict=True)
    for position, (number, begins, ends) in enumerate(columns):
        if number != before:
            around, before = [], number
        while around and not (begins < around[-1] and ends <= around[-1]):
            around.pop()
        levels[position] = len(around)
        around.append(ends)
    return levels
