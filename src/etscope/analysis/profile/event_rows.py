"""All events of a dump as a `Table` for other tools: one row for each event of each run."""

from __future__ import annotations

from typing import Any

from etscope.analysis.profile.correlate import handle_list
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.source_location import common_module
from etscope.analysis.profile.trace import Trace
from etscope.model.table import Column, Kind, Table, object_column
from etscope.units import TimeScale


def event_rows(trace: Trace, scale: Scale) -> Table:
    """Return all profiling events of the dump, run after run, in the order they were logged.

    `start` and `end` are the dump's own ticks, of unit `scale.source`; `elapsed` is in
    `scale.target`. Nothing is aggregated.
    """
    table, dump = trace.events, trace.dump
    shared: dict[Column, list[Any]] = {column: [] for column in _SHARED}
    for event, number, found in zip(
        table.events, table.block.tolist(), trace.attributions, strict=True
    ):
        key = event.key
        values = (
            event.block.name,
            table.methods[number],
            key.name,
            key.instruction,
            None if key.delegate_id is None else str(key.delegate_id),
            found.backend_id,
            handle_list(found.debug_handles),
            found.op_types,
            common_module(found.nodes),
            [str(line) for line in found.lines],
        )
        for column, value in zip(shared.values(), values, strict=True):
            column.append(value)
    unit = None if scale.source is TimeScale.CYCLES else scale.source.value
    # numpy's arrays are sequences in all but name.
    content: dict[Column, Any] = {
        Column("run", Kind.INT): table.run,
        **{column: object_column(cells)[table.event] for column, cells in shared.items()},
        Column("start", Kind.INT, unit): table.start,
        Column("end", Kind.INT, unit): dump.end[table.row],
        Column("elapsed", Kind.DURATION, scale.unit): scale(table.ticks),
    }
    return Table.of(content, title=f"events of {dump.path or 'the dump'}")


# The columns whose values are the same for an event in all runs.
_SHARED = (
    Column("event_block"),
    Column("method"),
    Column("event"),
    Column("instruction_id", Kind.INT),
    Column("delegate_debug_identifier"),
    Column("backend"),
    Column("debug_handles", Kind.LIST),
    Column("op_types", Kind.LIST),
    Column("module"),
    Column("sources", Kind.LIST),
)
