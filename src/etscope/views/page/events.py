"""All events of a method's runs for the page, with the columns of upstream's `to_dataframe`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from etscope.analysis.profile.scale import Scale, TimeConverter, block_samples
from etscope.analysis.profile.source_location import user_line
from etscope.analysis.profile.trace import Trace, warn_own_clock
from etscope.formats.etdump.reader import TensorRef
from etscope.model.event_table import EXECUTE, KERNEL_PREFIX, Block, EventKey
from etscope.model.events import STATISTICS
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind, Table
from etscope.views.page.elements import Json, table_document
from etscope.views.page.method import ShownMethod

# Samples in the column `raw`; those of later events are left out.
MOST_RAW = 50_000
# Nodes that are named of one event, and values that it logged.
_MOST_PARTS = 40


def events_document(
    trace: Trace,
    blocks: Sequence[Block],
    shown: ShownMethod,
    scale: Scale,
    convert: TimeConverter | None = None,
) -> tuple[Json, list[int | None]]:
    """Return `Method.events` and `Method.eventRow`: one row for each event of each block."""
    values: dict[str, list[Any]] = {column.name: [] for column in _columns(scale)}
    rows: list[int | None] = []
    room = MOST_RAW
    for block in blocks:
        if block.own_clock and convert is None:
            warn_own_clock(block.own_clock)
        attribution = trace.attribution(block)
        samples = block_samples(block, scale, convert)
        profiled = set(block.profiled)
        statistics = {
            name: column.tolist() for name, column in summarize(samples, STATISTICS).items()
        }
        for index, key in enumerate(block.keys):
            found = attribution(key)
            nodes = {f"{node.name}_": node for node in found.nodes}  # named as upstream has it
            is_timed = index in profiled
            room -= len(block.runs) if is_timed else 0
            cells = {
                "event_block_name": block.name,
                "event_name": key.name,
                "raw": samples[index].tolist() if is_timed and room >= 0 else None,
                **{
                    name: column[index] if is_timed else math.nan
                    for name, column in statistics.items()
                },
                "op_types": _cut(found.op_types),
                "delegate_debug_identifier": None
                if key.delegate_id is None
                else str(key.delegate_id),
                "stack_traces": _cut(
                    f"{name}: {line}"
                    for name, node in nodes.items()
                    if (line := user_line(node.stack_trace)) is not None
                ),
                "module_hierarchy": _cut(
                    f"{name}: {node.modules[-1].path or '(root)'} ({node.modules[-1].type})"
                    for name, node in nodes.items()
                    if node.modules
                ),
                "is_delegated_op": key.delegate_id is not None,
                "delegate_backend_name": found.backend_id,
                # Of the block's first run.
                "debug_data": _cut(
                    _value_text(trace.dump.value(block.row(0, position))) for position in key.debug
                ),
                "start_time": None
                if key.profile is None
                else int(block.dump.start[block.row(0, key.profile)]),
            }
            for name, column in values.items():
                column.append(cells[name])
            rows.append(_row(shown, key))
    notes = (
        "The samples of some events are left out, for their number: to_dataframe and "
        "etscope convert have them. The statistics are of all.",
    )
    table = Table(
        columns=_columns(scale),
        values=values,
        title=f"Events of {shown.name}",
        notes=notes if room < 0 else (),
    )
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


def _row(shown: ShownMethod, key: EventKey) -> int | None:
    if key.is_framework:
        return shown.row_named(EXECUTE) if key.name == EXECUTE else None
    if key.instruction is None:
        return shown.row_named(key.name.removeprefix(KERNEL_PREFIX))
    return shown.row_of(key.instruction, key.delegate_id)


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
