"""Summarise an ETDump: runs, events, delegates, logged values, allocations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.debug_values import ValueType
from etscope.formats.etdump.reader import ETDump, EventKind, LoggedValues, logged_values
from etscope.formats.program.scalar_type import scalar_type
from etscope.model.event_table import (
    EXECUTE,
    KERNEL_PREFIX,
    LOAD_EVENTS,
    Block,
    find_blocks,
)
from etscope.model.report import Section, facts, rows
from etscope.model.table import Column, Kind

_TICKS_PER_MS = 1e6  # of nanoseconds: see `_CLOCK`
_CLOCK = (
    "A dump does not store the unit of its clock. Times assume nanoseconds, as on "
    "desktops and phones (change it with etscope inspect --source-unit)."
)


def etdump_sections(dump: ETDump, blocks: Sequence[Block] | None = None) -> tuple[Section, ...]:
    """The sections "file", "blocks", "values" and "allocations"; a section without rows is left
    out. blocks: the dump's blocks, if they are known already.
    """
    blocks = find_blocks(dump) if blocks is None else blocks
    values = logged_values(dump)
    count = np.bincount(dump.kind, minlength=len(EventKind))
    head = facts(
        "file",
        f"{dump.source.name}: ETDump",
        (
            (Column("size", Kind.BYTES), dump.size),
            (Column("version", Kind.INT), dump.version),
            (Column("runs", Kind.COUNT), dump.num_runs),
            (Column("events", Kind.COUNT), dump.num_events),
            (Column("timed_events", Kind.COUNT), count[EventKind.PROFILE]),
            (Column("logged_values", Kind.COUNT), count[EventKind.DEBUG]),
            (Column("allocations", Kind.COUNT), count[EventKind.ALLOCATION]),
            (Column("strings", Kind.COUNT), len(dump.strings)),
            (Column("debug_buffer_needed", Kind.BYTES), values.buffer_size or None),
        ),
    )
    allocations = rows(
        "allocations",
        "Allocations, of all runs together",
        (
            Column("block"),
            Column("allocator"),
            Column("count", Kind.COUNT),
            Column("bytes", Kind.BYTES),
        ),
        [(*key, *sums) for key, sums in Trace(dump).allocations().items()],
    )
    found = (head, _blocks(blocks), _values(values), allocations)
    return tuple(section for section in found if len(section.table))


def _blocks(blocks: Sequence[Block]) -> Section:
    content = []
    for block in blocks:
        delegated = [key for key in block.keys if key.delegate_id is not None]
        calls = {key.instruction_id for key in block.keys if key.name == "DELEGATE_CALL"}
        calls |= {key.instruction_id for key in delegated}
        id_kinds = {"numbers" if isinstance(key.delegate_id, int) else "texts" for key in delegated}
        framework = {
            key.name: position
            for position, key in reversed(list(enumerate(block.keys)))
            if key.is_framework and key.profile is not None
        }
        # The event that spans the run: the method's execution, else its loading.
        index = next((framework[n] for n in (EXECUTE, *LOAD_EVENTS) if n in framework), None)
        samples = None if index is None else block.ticks[index] / _TICKS_PER_MS
        content.append(
            (
                block.name,
                block.bundled_input_index if block.bundled_input_index >= 0 else None,
                len(block.runs),
                block.length,
                sum(key.name.startswith(KERNEL_PREFIX) for key in block.keys),
                len(calls),
                len(delegated),
                " and ".join(sorted(id_kinds)) or None,
                None if index is None else block.keys[index].name,
                None if samples is None else float(samples[0]),
                None if samples is None else float(np.median(samples)),
            )
        )
    return rows(
        "blocks",
        "Blocks: runs that logged the same events",
        (
            Column("block"),
            Column("bundled_input", Kind.INT, title="input", priority=1),
            Column("runs", Kind.COUNT),
            Column("events", Kind.COUNT, title="events a run"),
            Column("kernels", Kind.COUNT, priority=2),
            Column("delegate_calls", Kind.COUNT, priority=2),
            Column("delegated", Kind.COUNT, title="events in delegates", priority=3),
            Column("identifiers", title="their ids are", priority=4),
            Column("timed", title="time of", priority=1),
            Column("first", Kind.DURATION, "ms"),
            Column("p50", Kind.DURATION, "ms"),
        ),
        content,
        notes=(_CLOCK,),
    )


def _values(values: LoggedValues) -> Section:
    content: list[tuple[str, int, int | None]] = []
    for number in np.unique(values.scalar_type).tolist():
        mine = values.scalar_type == number
        name = f"tensor of {scalar_type(number).torch_name}"
        content.append((name, int(mine.sum()), int(values.nbytes[mine].sum())))
    for kind in ValueType:
        count = int((values.kind == kind).sum())
        if count and kind is not ValueType.TENSOR:
            content.append((kind.name.lower().replace("_", " "), count, None))
    return rows(
        "values",
        "Logged values",
        (
            Column("type"),
            Column("count", Kind.COUNT),
            Column("bytes", Kind.BYTES, title="in the debug buffer"),
        ),
        content,
        notes=("The tensors of tensor lists are counted among the tensors.",)
        if (values.kind == ValueType.TENSOR_LIST).any()
        else (),
    )
