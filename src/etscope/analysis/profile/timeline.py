"""A dump as a `Timeline`: a track for the method, one for each delegate, slices as they nested."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.correlate import Attribution, handle_list
from etscope.analysis.profile.profile import MethodProfile, Ticks, executes
from etscope.analysis.profile.source_location import common_module
from etscope.analysis.profile.trace import Trace
from etscope.model.event_table import DELEGATE_CALL, Block, EventKey
from etscope.model.timeline import Timeline, Track
from etscope.units import TimeScale, scale_factor

_RUNTIME = "runtime"
_OWN_CLOCK = "own clock"


def timeline(trace: Trace, source: TimeScale = TimeScale.NS) -> Timeline:
    """All profiling events of the dump as spans.

    Ticks are those of the dump, of unit `source`; cycles stay cycles. Events inside delegates are
    on a track for each backend below the runtime's. One whose times do not lie inside its call is
    on a clock of its own: it is moved to the start of the call, on a track that says so.
    """
    return event_spans(trace, source=source).timeline


@dataclass(frozen=True)
class EventSpans:
    """A timeline, and of which event each span is: `event` indexes `events`."""

    timeline: Timeline
    events: Sequence[tuple[Block, EventKey]]
    event: npt.NDArray[np.int64]


def event_spans(
    trace: Trace, runs: Collection[int] | None = None, source: TimeScale = TimeScale.NS
) -> EventSpans:
    """The spans of the dump's runs of these numbers, or of all; see `timeline`."""
    builder = _Builder()
    for block in trace.blocks:
        shown = None if runs is None else np.flatnonzero(np.isin(block.runs, list(runs)))
        if shown is None or len(shown):
            _add_block(builder, trace, block, shown)
    per_second = None if source is TimeScale.CYCLES else scale_factor(source, TimeScale.S)
    return builder.spans(trace.dump.path or "", per_second)


def _add_block(
    builder: _Builder, trace: Trace, block: Block, shown: npt.NDArray[np.intp] | None
) -> None:
    """Add the block's spans; `shown` are positions in its runs, None for all."""
    attribution = trace.attribution(block)
    for index in block.profiled:
        key = block.keys[index]
        start = block.starts[index]
        found = attribution(key)
        track, note = _RUNTIME, None
        if key.delegate_id is not None:
            track = found.backend_id or "delegate"
            if key.instruction in block.own_clock:
                note = _OWN_CLOCK
                start = start + _shift(block, key.instruction)
        end = start + block.ticks[index]
        if shown is not None:
            start, end = start[shown], end[shown]
        builder.events.append((block, key))
        builder.add(track, note, key.name, _args(trace, block, key, found), start, end)


def _shift(block: Block, instruction: int | None) -> npt.NDArray[np.int64]:
    """From a delegate's own clock to the start of its call, for each run."""
    of_instruction = [i for i in block.profiled if block.keys[i].instruction == instruction]
    inner = [i for i in of_instruction if block.keys[i].delegate_id is not None]
    call = next(i for i in of_instruction if block.keys[i].name == DELEGATE_CALL)
    shift: npt.NDArray[np.int64] = block.starts[call] - block.starts[inner].min(axis=0)
    return shift


def _args(trace: Trace, block: Block, key: EventKey, found: Attribution) -> dict[str, Any]:
    """What a trace viewer shows with a slice."""
    args: dict[str, Any] = {}
    if key.is_framework:
        method = trace.method_of(block)
        return {} if method is None else {"method": method}
    if key.instruction is not None:
        args["instruction_id"] = key.instruction
    if key.delegate_id is not None:
        args["delegate_debug_identifier"] = key.delegate_id
    if found.debug_handles is not None:
        args["debug_handle"] = ", ".join(map(str, handle_list(found.debug_handles)))
    if found.op_types:
        args["op_types"] = ", ".join(dict.fromkeys(found.op_types))
    module = common_module(found.nodes)
    if module:
        args["module"] = module
    lines = found.lines
    if lines:
        args["source"] = ", ".join(map(str, lines))
    return args


class _Builder:
    """Collects columns, one part for each event of a block."""

    def __init__(self) -> None:
        self.tracks: dict[tuple[str, str | None], int] = {(_RUNTIME, None): 0}
        self.names: dict[str, int] = {}
        self.args: list[Mapping[str, Any]] = []
        self.parts: list[tuple[int, int, int, Any, Any]] = []
        self.events: list[tuple[Block, EventKey]] = []  # of each part

    def add(
        self, track: str, note: str | None, name: str, args: Mapping[str, Any], start: Any, end: Any
    ) -> None:
        self.parts.append(
            (
                self.tracks.setdefault((track, note), len(self.tracks)),
                self.names.setdefault(name, len(self.names)),
                len(self.args) if args else -1,
                start,
                end,
            )
        )
        if args:
            self.args.append(args)

    def spans(self, title: str, ticks_per_second: float | None) -> EventSpans:
        counts = [len(start) for *_, start, _ in self.parts]
        ids = np.repeat(
            np.array([part[:3] for part in self.parts], np.int32).reshape(-1, 3), counts, axis=0
        )
        empty = np.zeros(0, np.int64)
        start = np.concatenate([empty, *(part[3] for part in self.parts)])
        end = np.concatenate([empty, *(part[4] for part in self.parts)])
        # A parent starts no later and ends no earlier than its children; of two equal spans the
        # one that was logged last is the parent, since events are written when they end.
        position = np.repeat(np.arange(len(self.parts)), counts)
        order = np.lexsort((-position, -end, start, ids[:, 0]))
        ids = ids[order]
        timeline = Timeline(
            tracks=tuple(
                Track(name, None if index == 0 else 0, note)
                for (name, note), index in self.tracks.items()
            ),
            names=tuple(self.names),
            args=tuple(self.args),
            ticks_per_second=ticks_per_second,
            track=ids[:, 0],
            start=start[order],
            end=end[order],
            name_id=ids[:, 1],
            args_id=ids[:, 2],
            title=title,
        )
        return EventSpans(timeline, self.events, position[order])


# A few runs of a dump as they happened: the spans that a page draws of them.
#
# A dump of ten thousand runs has millions of spans; of each method the first run, the median and
# the slowest tell most of it.


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
