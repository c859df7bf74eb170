"""The event table: one row for each event of each run, with what is behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.correlate import Attribution, handle_list
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.source_location import common_module
from etscope.analysis.profile.trace import Trace
from etscope.model.event_table import Block
from etscope.model.table import Column, Kind, Table
from etscope.units import TimeScale


def event_rows(trace: Trace, scale: Scale) -> Table:
    """All profiling events of the dump, run after run, in the order they were logged.

    `start` and `end` are the dump's own ticks, of unit `scale.source`; `elapsed` is in
    `scale.target`. Nothing is aggregated: this is the table for other tools.
    """
    rows: list[npt.NDArray[np.int64]] = []
    key_ids: list[npt.NDArray[np.int64]] = []
    elapsed: list[npt.NDArray[np.int64]] = []
    facts: dict[str, list[Any]] = {column.name: [] for column in _FACTS}
    for block in trace.blocks:
        attribution = trace.attribution(block)
        method = trace.method_of(block)
        for index in block.profiled:
            key = block.keys[index]
            if key.profile is None:
                continue
            rows.append(block.column(key.profile))
            key_ids.append(np.full(len(block.runs), len(facts["event"])))
            elapsed.append(block.ticks[index])
            fact = _fact(block, method, index, attribution(key))
            for name, values in facts.items():
                values.append(fact[name])
    return _table(trace, scale, rows, key_ids, elapsed, facts)


_FACTS = (
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


def _fact(block: Block, method: str | None, index: int, found: Attribution) -> dict[str, Any]:
    key = block.keys[index]
    return {
        "event_block": block.name,
        "method": method,
        "event": key.name,
        "instruction_id": key.instruction,
        "delegate_debug_identifier": None if key.delegate_id is None else str(key.delegate_id),
        "backend": found.backend_id,
        "debug_handles": handle_list(found.debug_handles),
        "op_types": found.op_types,
        "module": common_module(found.nodes),
        "sources": [str(line) for line in found.lines],
    }


def _table(
    trace: Trace,
    scale: Scale,
    rows: list[npt.NDArray[np.int64]],
    key_ids: list[npt.NDArray[np.int64]],
    elapsed: list[npt.NDArray[np.int64]],
    facts: dict[str, list[Any]],
) -> Table:
    empty = np.zeros(0, np.int64)
    row = np.concatenate([empty, *rows])
    order = np.argsort(row, kind="stable")
    row = row[order]
    key_id = np.concatenate([empty, *key_ids])[order]
    dump = trace.dump
    unit = None if scale.source is TimeScale.CYCLES else scale.source.value
    # numpy's arrays are sequences in all but name.
    values: dict[str, Any] = {
        "run": dump.run[row],
        **{name: _taken(values, key_id) for name, values in facts.items()},
        "start": dump.start[row],
        "end": dump.end[row],
        "elapsed": scale(np.concatenate([empty, *elapsed])[order]),
    }
    return Table(
        columns=(
            Column("run", Kind.INT),
            *_FACTS,
            Column("start", Kind.INT, unit),
            Column("end", Kind.INT, unit),
            Column("elapsed", Kind.DURATION, scale.unit),
        ),
        values=values,
        title=f"events of {dump.path or 'the dump'}",
    )


def _taken(values: list[Any], index: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    """`values[i]` for each i, lists as they are."""
    column = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        column[position] = value
    return column[index]
