"""All events of a method's runs for the page, with the columns of upstream's `to_dataframe`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from etscope.analysis.profile.profile import EXECUTE, KERNEL_PREFIX
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.source_location import user_line
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import TensorRef
from etscope.model.event_table import Block, EventKey
from etscope.model.events import STATISTICS, Event, EventBlock, statistics_columns
from etscope.model.table import Column, Kind, Table
from etscope.views.page.elements import Json, table_document
from etscope.views.page.method import ShownMethod

# So many samples are shown in the column `raw`, those of the first events.
MOST_RAW = 50_000
# So many nodes of one event are named, so many values that it logged.
_MOST_PARTS = 40

Pairs = Sequence[tuple[Block, EventBlock]]


def events_document(
    trace: Trace, pairs: Pairs, shown: ShownMethod, scale: Scale
) -> tuple[Json, list[int | None]]:
    """`Method.events` and `Method.eventRow`: one row an event of each block of `pairs`."""
    events: list[Event] = []
    blocks: list[Block] = []
    keys: list[EventKey] = []
    names: list[str] = []
    for block, found in pairs:
        events += found.events
        keys += block.keys
        blocks += [block] * len(block.keys)
        names += [found.name] * len(block.keys)
    raw, notes = _raw(events)
    values: dict[str, Any] = {
        "event_block_name": names,
        "event_name": [event.name for event in events],
        "raw": raw,
        **{
            name: column.tolist()
            for name, column in statistics_columns([event.perf_data for event in events]).items()
        },
        "op_types": [_cut(event.op_types) for event in events],
        "delegate_debug_identifier": [_text(event.delegate_debug_identifier) for event in events],
        "stack_traces": [_stack_lines(event) for event in events],
        "module_hierarchy": [_modules(event) for event in events],
        "is_delegated_op": [event.is_delegated_op for event in events],
        "delegate_backend_name": [event.delegate_backend_name for event in events],
        "debug_data": [_logged(trace, block, key) for block, key in zip(blocks, keys, strict=True)],
        "start_time": [_start(block, key) for block, key in zip(blocks, keys, strict=True)],
    }
    table = Table(
        columns=_columns(scale),
        values=values,
        title=f"Events of {shown.name}",
        notes=notes,
    )
    rows = [_row(shown, key) for key in keys]
    return table_document(table), rows


def _columns(scale: Scale) -> tuple[Column, ...]:
    unit = scale.unit
    return (
        Column("event_block_name", title="block", priority=6),
        Column("event_name", title="event"),
        Column("raw", Kind.LIST, unit, title="samples", priority=9),
        *(
            Column(name, Kind.DURATION, unit, priority=0 if name == "avg" else 4)
            for name in STATISTICS
        ),
        Column("op_types", Kind.LIST, title="ops", priority=1),
        Column("delegate_debug_identifier", title="delegate id", priority=3),
        Column("stack_traces", Kind.LIST, title="source lines", priority=5),
        Column("module_hierarchy", Kind.LIST, title="modules", priority=5),
        Column("is_delegated_op", Kind.BOOL, title="delegated", priority=6),
        Column("delegate_backend_name", title="backend", priority=3),
        Column("debug_data", Kind.LIST, title="logged values", priority=7),
        Column("start_time", Kind.INT, scale.source.value, title="first start", priority=8),
    )


def _raw(events: Sequence[Event]) -> tuple[list[list[float] | None], tuple[str, ...]]:
    """The samples of each event, as many as there is room for."""
    room = MOST_RAW
    cells: list[list[float] | None] = []
    for event in events:
        count = 0 if event.perf_data is None else event.perf_data.count
        room -= count
        cells.append(None if event.perf_data is None or room < 0 else event.perf_data.raw)
    if room >= 0:
        return cells, ()
    return cells, (
        "The samples of some events are left out, for their number: to_dataframe and "
        "etscope convert have them. The statistics are of all.",
    )


def _row(shown: ShownMethod, key: EventKey) -> int | None:
    if key.is_framework:
        return shown.row_named(EXECUTE) if key.name == EXECUTE else None
    if key.instruction is None:
        return shown.row_named(key.name.removeprefix(KERNEL_PREFIX))
    return shown.row_of(key.instruction, key.delegate_id)


def _text(value: int | str | None) -> str | None:
    return None if value is None else str(value)


def _start(block: Block, key: EventKey) -> int | None:
    """When the event began in the block's first run, in the dump's own ticks."""
    if key.profile is None:
        return None
    return int(block.dump.start[block.row(0, key.profile)])


def _stack_lines(event: Event) -> list[str]:
    """The user's innermost line of each node, with the node's name as upstream has it."""
    found = ((node, user_line(trace)) for node, trace in event.stack_traces.items())
    return _cut(f"{node}: {line}" for node, line in found if line is not None)


def _modules(event: Event) -> list[str]:
    """Path and type of the innermost module of each node."""
    known = ((node, frames) for node, frames in event.module_hierarchy.items() if frames)
    inner = ((node, list(frames.values())[-1]) for node, frames in known)
    return _cut(f"{node}: {path or '(root)'} ({kind})" for node, (path, kind) in inner)


def _logged(trace: Trace, block: Block, key: EventKey) -> list[str]:
    """What the event logged in the block's first run: numbers, and what tensors are."""
    rows = (block.row(0, position) for position in key.debug)
    return _cut(_value_text(trace.dump.value(row)) for row in rows)


def _value_text(value: Any) -> str:
    if isinstance(value, TensorRef):
        return f"{value.scalar_type.torch_name}[{', '.join(map(str, value.sizes))}]"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value_text, value[:_MOST_PARTS]))}]"
    return repr(value)


def _cut(texts: Iterable[str]) -> list[str]:
    listed = list(texts)
    if len(listed) <= _MOST_PARTS:
        return listed
    return [*listed[:_MOST_PARTS], f"… and {len(listed) - _MOST_PARTS} more"]
