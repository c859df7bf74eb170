"""All events of a dump as a `Table`, and as a `Timeline`: a track for the runtime, one for each
delegate, spans nested in calls."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import Attribution, handle_list
from etscope.model.event_table import ESTIMATED, Block, Clock, EventKey, Ints, Meaning, TableEvent
from etscope.model.table import Column, Kind, Table, object_column
from etscope.model.timeline import Timeline, Track
from etscope.units import TimeScale, scale_factor


def event_rows(trace: Trace, scale: Scale) -> Table:
    """Return all profiling events of the dump, run after run, in the order they were logged: one
    row for each event of each run, for other tools.

    `start` and `end` are the dump's own ticks, of unit `scale.source`; `elapsed` is in
    `scale.target`. A number that is not a time of the dump's clock is in `value`, with its unit;
    estimated times are there, in ticks. `backend_columns` is JSON. Of a language model there are
    `phase`, `position` and `tokens` of the call that a run is. Nothing is aggregated.
    """
    table, dump = trace.events, trace.dump
    keys, attributions = [event.key for event in table.events], trace.attributions
    is_time = table.where(lambda meaning: meaning.is_time)[table.event]
    shared: dict[Column, list[Any]] = {  # the same for an event in all runs
        Column("event_block"): [event.block.name for event in table.events],
        Column("method"): [table.methods[number] for number in table.block.tolist()],
        Column("event"): [key.name for key in keys],
        Column("instruction_id", Kind.INT): [key.instruction for key in keys],
        Column("delegate_debug_identifier"): [
            None if key.delegate_id is None else str(key.delegate_id) for key in keys
        ],
        Column("backend"): [found.backend_id for found in attributions],
        Column("debug_handles", Kind.LIST): [handle_list(a.debug_handles) for a in attributions],
        Column("op_types", Kind.LIST): [found.op_types for found in attributions],
        Column("module"): [found.module for found in attributions],
        Column("sources", Kind.LIST): [[str(line) for line in a.lines] for a in attributions],
        Column("quantity"): [quantity.value for quantity in table.quantity],
        Column("unit"): [
            None if one is None else one.unit_in(scale.source.value) for one in table.meaning
        ],
        Column("backend_columns"): [
            json.dumps(dict(one.columns)) if one is not None and one.columns else None
            for one in table.meaning
        ],
    }
    unit = None if scale.source is TimeScale.CYCLES else scale.source.value
    # numpy's arrays are sequences in all but name.
    content: dict[Column, Any] = {
        Column("run", Kind.INT): table.run,
        **_calls(trace),
        **{column: object_column(cells)[table.event] for column, cells in shared.items()},
        Column("start", Kind.INT, unit): table.start,
        Column("end", Kind.INT, unit): dump.end[table.row],
        Column("elapsed", Kind.DURATION, scale.unit): np.where(is_time, scale(table.ticks), np.nan),
        Column("value", Kind.FLOAT): np.where(is_time, np.nan, table.ticks),
    }
    return Table.of(content, title=f"events of {dump.path or 'the dump'}")


def _calls(trace: Trace) -> dict[Column, Any]:
    """Return the columns of a language model's calls by row of the events; {} without phases."""
    table, calls = trace.events, trace.calls_of_runs
    content: dict[Column, Any] = {}
    for column, cells in (
        (Column("phase"), calls.phase),
        (
            Column("position", Kind.INT),
            [None if one < 0 else one for one in calls.position.tolist()],
        ),
        (Column("tokens", Kind.INT), [one or None for one in calls.tokens.tolist()]),
    ):
        by_run = np.full(table.dump.num_runs, None, object)
        by_run[calls.run] = object_column(cells)
        content[column] = by_run[table.run]
    return content if calls.phases else {}


_RUNTIME = "runtime"
_OWN_CLOCK = "own clock"


@dataclass(frozen=True)
class EventSpans:
    """A timeline, and the event and the run of each span: `event` indexes `events`."""

    timeline: Timeline
    events: Sequence[TableEvent]
    event: Ints
    run: Ints

    def of_run(self, run: int, limit: int) -> RunSpans:
        """Return the spans of a run, the longest `limit` of them."""
        timeline = self.timeline
        kept = own = np.flatnonzero(self.run == run)
        duration = timeline.end - timeline.start
        if len(kept) > limit:
            # What holds a kept span is as long, so that no parent is missing.
            kept = np.sort(own[np.argsort(-duration[own], kind="stable")[:limit]])
        start, end = timeline.start[kept], timeline.end[kept]
        origin = int(start.min()) if len(start) else 0
        used, track = np.unique(timeline.track[kept], return_inverse=True)
        tracks = [timeline.tracks[number] for number in used.tolist()]
        return RunSpans(
            run=run,
            tracks=tuple((found.name, found.note) for found in tracks),
            events=self.events,
            track=track.astype(np.int64),
            start=start - origin,
            duration=duration[kept],
            level=span_levels(track, start, end),
            event=self.event[kept],
            left_out=len(own) - len(kept),
            origin=origin,
        )


def timeline(trace: Trace, source: TimeScale = TimeScale.NS) -> Timeline:
    """Return all profiling events of the dump as spans.

    Ticks are the dump's, of unit `source`; cycles stay cycles. Events inside delegates are
    on a track for each backend below the runtime's. Events on a delegate's own clock are moved to
    the start of their call, on a track that says so; estimated times have a track that says so,
    too. Numbers that are not times on a timeline are left out.
    """
    return event_spans(trace, source=source).timeline


def event_spans(
    trace: Trace, runs: Collection[int] | None = None, source: TimeScale = TimeScale.NS
) -> EventSpans:
    """Return the spans of the runs of these numbers, or of all; see `timeline`."""
    table = trace.events
    is_drawn = table.where(lambda meaning: meaning.is_drawn)
    chosen = is_drawn[table.event]
    if runs is not None:
        chosen &= np.isin(table.run, list(runs))
    event = table.event[chosen]
    tracks: dict[tuple[str, str | None], int] = {(_RUNTIME, None): 0}
    names: dict[str, int] = {}
    args: list[Mapping[str, Any]] = []
    shown = np.flatnonzero(is_drawn) if runs is None else np.unique(event)
    track, name_id, args_id = np.zeros((3, len(table.events)), np.int32)
    for number in shown.tolist():
        key, found = table.events[number].key, trace.attributions[number]
        meaning = table.meaning[number]
        head: tuple[str, str | None] = (_RUNTIME, None)
        if meaning is not None:
            own = _OWN_CLOCK if meaning.clock is Clock.DEVICE else None
            note = ", ".join(filter(None, (own, ESTIMATED if meaning.is_estimate else None)))
            head = (found.backend_id or "delegate", note or None)
        track[number] = tracks.setdefault(head, len(tracks))
        name = key.name if meaning is None else meaning.name
        name_id[number] = names.setdefault(name, len(names))
        about = _args(table.methods[table.block[number]], key, found, meaning)
        args_id[number] = len(args) if about else -1
        if about:
            args.append(about)
    start = (table.start[chosen].astype(np.int64) + _device_shifts(trace)[chosen]).astype(np.int64)
    end = start + table.ticks[chosen]
    # A parent starts no later and ends no earlier than its children; of two equal spans the one
    # that was logged last is the parent, since events are written when they end.
    order = np.lexsort((table.row[chosen], event, -event, -end, start, track[event]))
    event = event[order]
    return EventSpans(
        Timeline(
            tracks=tuple(
                Track(name, None if index == 0 else 0, note)
                for (name, note), index in tracks.items()
            ),
            names=tuple(names),
            args=tuple(args),
            ticks_per_second=None
            if source is TimeScale.CYCLES
            else scale_factor(source, TimeScale.S),
            track=track[event],
            start=start[order],
            end=end[order],
            name_id=name_id[event],
            args_id=args_id[event],
            title=trace.dump.path or "",
        ),
        [table.events[number] for number in shown.tolist()],
        np.searchsorted(shown, event),
        table.run[chosen][order].astype(np.int64),
    )


def _device_shifts(trace: Trace) -> Ints:
    """Return the ticks to add to the start of each row of the events, 0 on the runtime's clock: the
    first of a call, in each run, starts with the call."""

    def shifts(block: Block) -> Ints:
        found = np.zeros((len(block.profiled), len(block.runs)), np.int64)
        number = {index: at for at, index in enumerate(block.profiled)}
        apart: dict[int, list[int]] = {}  # by the event around them
        for index, meaning in trace.meanings(block).items():
            around = block.parents[index]
            is_apart = meaning.is_drawn and meaning.clock is Clock.DEVICE
            if is_apart and around is not None and block.keys[around].role == "delegate":
                apart.setdefault(around, []).append(index)
        for around, members in apart.items():
            shift = block.starts[around] - block.starts[members].min(axis=0)
            found[[number[index] for index in members]] = shift
        return found

    return trace.events.by_row(shifts(block) for block in trace.blocks)


def _args(
    method: str | None, key: EventKey, found: Attribution, meaning: Meaning | None
) -> dict[str, Any]:
    """Return the annotations that a trace viewer shows with a slice."""
    if key.is_framework:
        return {} if method is None else {"method": method}
    handles = found.debug_handles
    args = {
        "instruction_id": key.instruction,
        "delegate_debug_identifier": key.delegate_id,
        "debug_handle": None if handles is None else ", ".join(map(str, handle_list(handles))),
        "op_types": ", ".join(dict.fromkeys(found.op_types)) or None,
        "module": found.module or None,
        "source": ", ".join(map(str, found.lines)) or None,
    }
    known: dict[str, Any] = {name: value for name, value in args.items() if value is not None}
    if meaning is not None:
        known |= {**meaning.columns, **({"quantity": ESTIMATED} if meaning.is_estimate else {})}
    return known


# A page draws all spans of some runs only: a dump of ten thousand runs has millions of them. The
# first run, the median and the slowest of each method show most of it.


@dataclass(frozen=True)
class RunSpans:
    """The spans of one run on its tracks, parents before children, `start` 0 at the first.

    tracks: (name, note) of each; `track`, `start`, `duration` (ticks), `level` (0: nested in no
    other of its track) and `event` are parallel. `event` is an index into `events`. `left_out`
    counts the shortest spans, left out for their number. `origin` is where 0 is in the dump.
    """

    run: int
    tracks: tuple[tuple[str, str | None], ...]
    events: Sequence[TableEvent]
    track: Ints
    start: Ints
    duration: Ints
    level: Ints
    event: Ints
    left_out: int = 0
    origin: int = 0


def few_runs(profile: MethodProfile) -> dict[int, str]:
    """Choose the runs that show most: positions in `profile.runs`, each with the reason: "first",
    "median", "slowest", or several of these. The first run fills caches and is often the slowest:
    then the slowest of the others is chosen, too."""
    total = profile.total
    if len(total) == 1:
        return {0: "the only one"}
    by_time = np.argsort(total, kind="stable").tolist()
    chosen: dict[int, list[str]] = {0: ["first"]}
    chosen.setdefault(by_time[(len(by_time) - 1) // 2], []).append("median")
    chosen.setdefault(by_time[-1], []).append("slowest")
    if by_time[-1] == 0:
        chosen.setdefault(by_time[-2], []).append("slowest after the first")
    return {position: ", ".join(words) for position, words in sorted(chosen.items())}


def loading_runs(trace: Trace) -> list[int]:
    """Return the timed runs of the dump that executed nothing: loading."""
    blocks = [block for block in trace.blocks if block.profiled and not block.executions]
    return sorted(run for block in blocks for run in block.runs.tolist())


def run_spans(trace: Trace, runs: Sequence[int], limit: int) -> list[RunSpans]:
    spans = event_spans(trace, runs)
    return [spans.of_run(run, limit) for run in runs]


def span_levels(track: npt.NDArray[np.intp], start: Ints, end: Ints) -> Ints:
    """Return for each span how many other spans on its track contain it. An outer span must come
    before the spans inside it.
    """
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
