"""Vendor profiler files in tables and on the timeline of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.backend_files.placement import PlacedFile, PlacedRow
from etscope.analysis.program.source_location import short_lines
from etscope.backends.registry.tool_files import Basis, ImportedSpans
from etscope.model.event_table import Ints
from etscope.model.table import Column, Kind, Table
from etscope.model.timeline import Timeline, Track
from etscope.units import TimeScale, scale_factor

# Columns of a file's rows that a profile lacks, in the tables for programs.
_OF_FILES = (
    Column("file", Kind.PATH, priority=9),
    Column("file_kind", title="kind of file", priority=9),
    Column("placed_by", title="put there because", priority=9),
    Column("group", priority=1),
    Column("events", Kind.COUNT, priority=2),
    Column("quantity", priority=9),
    Column("basis", priority=1),
    Column("clock", priority=9),
)


def file_table(placed: PlacedFile, limit: int | None = None) -> Table:
    """Return the rows of a file with their nodes, at most `limit` rows."""
    file = placed.file
    rows = placed.rows if limit is None else placed.rows[:limit]
    columns = (
        Column("method", priority=9),
        Column("instruction", Kind.INT, title="#", priority=9),
        Column("event"),
        Column("value", Kind.FLOAT, title=file.value_title),
        Column("unit"),
        *(replace(c, title=file.group_title) if c.name == "group" else c for c in _OF_FILES),
        *file.columns,
        Column("op_types", Kind.LIST, title="ops", priority=8),
        Column("module", Kind.PATH, priority=1),
        Column("source", Kind.PATH),
        Column("sources", Kind.LIST, title="source lines", priority=8),
        Column("backend", priority=9),
        Column("debug_handles", Kind.LIST, title="debug handles", priority=9),
    )
    calls = " and ".join(call.title for call in placed.calls)
    notes = [
        f"Belongs to {calls}: {placed.reason}.",
        *file.notes,
        *placed.notes,
    ]
    if file.spans is not None and not placed.on_runtime_clock:
        drawn = "Its clock is not the dump's: its times start with "
        drawn += "the call in its first run"
        if file.spans.unit == "cycles":
            drawn += ", a cycle as long as a tick of the dump"
        notes.insert(1, f"{drawn}.")
    if more := len(placed.rows) - len(rows):
        notes.insert(0, f"{more:,} more rows are not shown (--limit).")
    return Table.of_cells(
        columns,
        [_cells(placed, row) for row in rows],
        title=f"{placed.name} · {file.kind} · {calls}",
        notes=tuple(notes),
        depth=[row.row.depth for row in rows],
    )


def _cells(placed: PlacedFile, one: PlacedRow) -> dict[str, Any]:
    row, file = one.row, placed.file
    call = placed.calls[0] if len(placed.calls) == 1 else None
    return {
        "method": placed.calls[0].method,
        "instruction": None if call is None else call.instruction,
        "event": row.name,
        "value": row.value,
        "unit": f"{row.unit}, {row.basis.value}" if row.basis is Basis.ESTIMATED else row.unit,
        "file": placed.name,
        "file_kind": file.kind,
        "placed_by": placed.reason,
        "group": row.group,
        "events": row.events,
        "quantity": row.quantity.value,
        "basis": row.basis.value,
        "clock": "runtime" if placed.on_runtime_clock else file.clock.value,
        **{column.name: row.extra.get(column.name) for column in file.columns},
        "op_types": [node.op for node in one.nodes],
        "module": one.module,
        "source": short_lines(one.lines) or None,
        "sources": [str(line) for line in one.lines],
        "backend": placed.calls[0].backend,
        "debug_handles": one.handles,
    }


_SHOWN = ("event", "group", "events", "value", "unit")
_LOCATED = ("module", "source")


def for_readers(table: Table) -> Table:
    """Return `file_table` without empty columns. A unit that all rows share moves to the head. The
    basis is shown only if rows differ in it: units and notes already mark estimates."""
    of_files = {column.name for column in _OF_FILES}
    skipped = {"method", "instruction", "op_types", "sources", "backend", "debug_handles"}
    own = [name for name in table.names if name not in {*skipped, *of_files, *_SHOWN, *_LOCATED}]
    basis = ["basis"] if len(set(table.values["basis"])) > 1 else []
    names = [
        name
        for name in (*_SHOWN, *basis, *own, *_LOCATED)
        if any(value not in (None, "", [], 0) for value in table.values[name])
    ] or ["event"]
    cells = zip(table.values["value"], table.values["unit"], strict=True)
    units = {unit for value, unit in cells if value is not None}
    unit = units.pop() if len(units) == 1 else None
    if unit is not None and "unit" in names:
        names.remove("unit")
    columns = tuple(
        replace(column, unit=unit) if column.name == "value" else column for column in table.columns
    )
    return replace(table, columns=columns).select(names)


def joined_tables(profiles: Sequence[Table], files: Sequence[Table]) -> Table:
    """Concatenate tables for programs: the columns of profiles, then the columns of files only.

    `file` and all columns after it are empty in the rows of a profile.
    """
    columns: dict[str, Column] = {}
    for column in (*(c for table in profiles for c in table.columns), *_OF_FILES):
        columns.setdefault(column.name, column)
    for column in (c for table in files for c in table.columns):
        columns.setdefault(column.name, column)
    for name in ("value", "group"):  # their titles name one file
        columns[name] = replace(columns[name], title=None)
    tables = (*profiles, *files)
    depths = [list(table.depth or [0] * len(table)) for table in tables]
    return Table(
        tuple(columns.values()),
        {
            name: [
                value
                for table in tables
                for value in (table.values.get(name) or [None] * len(table))
            ]
            for name in columns
        },
        notes=tuple(dict.fromkeys(note for table in tables for note in table.notes)),
        depth=[level for depth in depths for level in depth],
        findings=tuple(finding for table in profiles for finding in table.findings),
    )


# -- spans on the timeline


@dataclass(frozen=True)
class FileSpans:
    """The spans of a file on the dump's clock. `start`, `end`: in ticks; `run`: index in the dump;
    `lane`, `name`, `args`: indices into the lists of `imported`."""

    title: str
    note: str | None
    imported: ImportedSpans
    run: Ints
    start: Ints
    end: Ints

    def of_run(self, run: int, limit: int) -> FileSpans:
        """Return the spans of a run, at most the longest `limit` of them."""
        kept = np.flatnonzero(self.run == run)
        if len(kept) > limit:
            length = (self.end - self.start)[kept]
            kept = np.sort(kept[np.argsort(-length, kind="stable")[:limit]])
        return replace(
            self,
            imported=self.imported.take(kept),
            run=self.run[kept],
            start=self.start[kept],
            end=self.end[kept],
        )


def file_spans(placed: Sequence[PlacedFile], source: TimeScale) -> Iterator[FileSpans]:
    """Yield the spans of each file that has spans on a clock that converts to the dump's."""
    for one in placed:
        spans = one.file.spans
        if spans is None or not len(spans):
            continue
        if spans.unit == "us" and source is TimeScale.CYCLES:
            continue  # files do not record the length of a cycle
        factor = 1.0 if spans.unit == "cycles" else scale_factor(source, TimeScale.US)
        first = 0.0 if one.on_runtime_clock else spans.start.min()
        begin = np.rint((spans.start - first) * factor).astype(np.int64)
        call = one.calls[0]
        note = None
        if one.on_runtime_clock:
            nearest = np.searchsorted(call.start, begin + 1, "right") - 1
            run = call.run[np.maximum(nearest, 0)]
        else:
            begin += call.start[0]
            run = np.full(len(begin), call.run[0], np.int64)
            note = "from the start of the call"
            if spans.unit == "cycles":
                note = f"cycles, not time; {note}"
        end = begin + np.rint(spans.duration * factor).astype(np.int64)
        title = f"{one.name} · {one.file.kind}"
        yield FileSpans(title, note, spans, run.astype(np.int64), begin, end)


def with_files(timeline: Timeline, placed: Sequence[PlacedFile], source: TimeScale) -> Timeline:
    """Add a track for each file below the runtime's track, and one below it for each lane."""
    for spans in file_spans(placed, source):
        imported = spans.imported
        head = len(timeline.tracks)
        tracks = [
            Track(spans.title, 0, spans.note),
            *(Track(lane, head, spans.note) for lane in imported.lanes),
        ]
        args: list[Mapping[str, Any]] = [
            # A trace can hold numbers and texts.
            {
                key: of if isinstance(of, (int, float, str, bool)) else str(of)
                for key, of in one.items()
            }
            for one in imported.annotations
        ]
        order = np.lexsort((-spans.end, spans.start, imported.lane))
        track = imported.lane + head + 1
        name = imported.name + len(timeline.names)
        about = np.where(imported.args < 0, -1, imported.args + len(timeline.args))

        timeline = replace(
            timeline,
            tracks=(*timeline.tracks, *tracks),
            names=(*timeline.names, *imported.names),
            args=(*timeline.args, *args),
            track=_added(timeline.track, track[order]),
            start=_added(timeline.start, spans.start[order]),
            end=_added(timeline.end, spans.end[order]),
            name_id=_added(timeline.name_id, name[order]),
            args_id=_added(timeline.args_id, about[order]),
        )
    return timeline


def _added(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate([old, new.astype(old.dtype)])
