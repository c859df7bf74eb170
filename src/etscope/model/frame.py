"""Event blocks as pandas DataFrames: upstream's columns, order and dtypes.

Built column by column, never by joining one-row frames: statistics of all events of a block are
taken together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from etscope.errors import MissingDataError, UsageError
from etscope.optional import require

if TYPE_CHECKING:
    import pandas as pd

    from etscope.model.events import Event, EventBlock, PerfData

STATISTICS = ("p10", "p50", "p90", "avg", "min", "max")
# An event with this many op types or more has them written as a short text.
_LONG_LIST = 5


def blocks_frame(
    blocks: Sequence[EventBlock], include_units: bool, include_delegate_debug_data: bool
) -> pd.DataFrame:
    """One row for each event of each block. `MissingDataError` when no block has an event."""
    pandas = require("pandas", wanted_by="to_dataframe")
    if not any(block.events for block in blocks):
        raise MissingDataError(
            "no events: the dump holds no profiling or debug events to make a DataFrame of",
            hint="run the program with the event tracer on, then read its dump",
        )
    frames = []
    for block in blocks:
        if not block.events:
            continue
        units = f" ({block.target_time_scale.value})" if include_units else ""
        frame = events_frame(block.events, units)
        frame.insert(0, "event_block_name", np.asarray([block.name] * len(frame)))
        if include_delegate_debug_data:
            frame = _with_metadata(frame, block.events)
        frames.append(frame)
    return frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)


def events_frame(events: Sequence[Event], units: str) -> pd.DataFrame:
    """One row for each event."""
    pandas = require("pandas", wanted_by="to_dataframe")
    columns: dict[str, Any] = {
        "event_name": [event.name for event in events],
        "raw": [event.perf_data.raw if event.perf_data else None for event in events],
    }
    statistics = statistics_columns([event.perf_data for event in events])
    columns.update((name + units, values) for name, values in statistics.items())
    columns.update(
        op_types=[_op_types(event.op_types) for event in events],
        delegate_debug_identifier=_with_none([e.delegate_debug_identifier for e in events]),
        stack_traces=[event.stack_traces for event in events],
        module_hierarchy=[event.module_hierarchy for event in events],
        is_delegated_op=[event.is_delegated_op for event in events],
        delegate_backend_name=_with_none([event.delegate_backend_name for event in events]),
        debug_data=[event.debug_data for event in events],
        start_time=[event.start_time for event in events],
    )
    table: pd.DataFrame = pandas.DataFrame(columns)
    return table


def _with_none(values: list[Any]) -> Any:
    """The values as a column in which None stays None, as upstream has it, and is not made NaN."""
    if None not in values:
        return values
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return require("pandas", wanted_by="to_dataframe").Series(column, dtype=object)


def event_row(event: Event, units: str) -> dict[str, Any]:
    """One event as upstream's `Event.asdict` gives it: list-like cells are wrapped in a list."""
    perf = event.perf_data
    row: dict[str, Any] = {"event_name": event.name, "raw": [perf.raw if perf else None]}
    row.update((name + units, getattr(perf, name) if perf else None) for name in STATISTICS)
    row.update(
        op_types=[_op_types(event.op_types)],
        delegate_debug_identifier=event.delegate_debug_identifier,
        stack_traces=[event.stack_traces],
        module_hierarchy=[event.module_hierarchy],
        is_delegated_op=event.is_delegated_op,
        delegate_backend_name=event.delegate_backend_name,
        debug_data=[event.debug_data],
        start_time=[event.start_time],
    )
    return row


def _op_types(op_types: list[str]) -> list[str] | str:
    if len(op_types) < _LONG_LIST:
        return op_types
    return f"['{op_types[0]}', '{op_types[1]}' ... '{op_types[-1]}'] ({len(op_types)} total)"


def statistics_columns(perf_data: Sequence[PerfData | None]) -> dict[str, Any]:
    """Columns of p10 … max; NaN where an event has no samples."""
    result = {name: np.full(len(perf_data), np.nan) for name in STATISTICS}
    lengths = np.array([perf.count if perf else 0 for perf in perf_data])
    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        chosen = [perf for perf in perf_data if perf is not None and perf.count == length]
        samples = np.stack([perf.values for perf in chosen])
        percentiles = np.percentile(samples, (10, 50, 90), axis=1)
        result["p10"][rows], result["p50"][rows], result["p90"][rows] = percentiles
        result["avg"][rows] = samples.mean(axis=1)
        result["min"][rows] = samples.min(axis=1)
        result["max"][rows] = samples.max(axis=1)
    return result


def _with_metadata(frame: pd.DataFrame, events: Sequence[Event]) -> pd.DataFrame:
    """`frame` with columns of the delegates' metadata on the right, if there is any."""
    pandas = require("pandas", wanted_by="to_dataframe")
    rows: list[dict[str, Any]] = []
    for event in events:
        metadata = event.delegate_debug_metadatas
        if not metadata:
            rows.append({})
        elif isinstance(metadata, list):
            rows.append({"delegate_debug_metadata": metadata})
        elif isinstance(metadata, dict):
            rows.append(metadata)
        else:
            raise UsageError(
                f"Unexpected type for delegate_debug_metadata: {type(metadata)}",
                hint="the delegate_metadata_parser has to return a list or a dict",
            )
    if not any(rows):
        return frame
    joined: pd.DataFrame = pandas.concat([frame, pandas.DataFrame(rows)], axis=1)
    return joined
