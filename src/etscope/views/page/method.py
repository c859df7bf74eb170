"""A method for the page: rows of its profile, what is behind each, its modules and its events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.rollup import NO_MODULE, ROOT, Group, module_name, rollup
from etscope.analysis.profile.scale import Scale, TimeConverter, block_samples
from etscope.analysis.profile.trace import Trace, runs_of, warn_own_clock
from etscope.analysis.program.correlate import Attribution
from etscope.analysis.program.source_location import user_line
from etscope.analysis.tables.profile_table import closing_rows, profile_table
from etscope.analysis.work.columns import (
    NAMES,
    SHOWN,
    WORK_COLUMNS,
    work_cells,
    work_notes,
)
from etscope.analysis.work.limits import ProfileLimits
from etscope.formats.etdump.reader import TensorRef
from etscope.model.event_table import EXECUTE, KERNEL_PREFIX, Block, EventKey
from etscope.model.events import STATISTICS
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind, Table
from etscope.views.page.elements import CHOSEN, Json, Lines, table_document

# Samples of rows in the document, of the longest rows first. A sample takes 7 to 10 bytes, so
# all take at most 2 MB.
MOST_SAMPLES = 200_000
# Samples in the events' column `raw`, for the first events: at most 0.5 MB. The
# column is the last one shown, and `to_dataframe` has all.
MOST_RAW = 50_000
# Nodes and logged values in one event's cells: a delegate call of a whole model has thousands.
_MOST_PARTS = 40


@dataclass(frozen=True)
class ShownMethod:
    """A profile, and where its parts are in the document. scale: converts the profile's ticks to
    the report's times. limits: the limits of its rows, if known.
    """

    index: int
    profile: MethodProfile
    scale: Scale
    limits: ProfileLimits | None = None

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The rows with the closing ones, as `Method.rows` has them."""
        return [*self.profile.rows, *closing_rows(self.profile, ())]

    @cached_property
    def modules(self) -> Sequence[Group]:
        """The modules of the rows, parents before children."""
        return rollup(self.profile, "module").tree(None)

    @property
    def name(self) -> str:
        return self.profile.title()

    def row_of(self, instruction: int | None, delegate_id: int | str | None) -> int | None:
        """The row of an instruction, or of an event inside its delegate."""
        return self._places.get((instruction, delegate_id))

    def row_of_event(self, key: EventKey) -> int | None:
        """Return the row of an event: its instruction's, or the one of its name without an
        instruction."""
        if key.instruction is not None:
            return self.row_of(key.instruction, key.delegate_id)
        if key.is_framework and key.name != EXECUTE:
            return None
        return self._named.get(key.name.removeprefix(KERNEL_PREFIX))

    @cached_property
    def _places(self) -> dict[tuple[int | None, int | str | None], int]:
        found: dict[tuple[int | None, int | str | None], int] = {}
        for number, row in enumerate(self.rows):
            if row.instruction_id is not None and not (row.depth and row.kind == "unaccounted"):
                found.setdefault((row.instruction_id, row.delegate_id), number)
        return found

    @cached_property
    def _named(self) -> dict[str, int]:
        return {
            row.name: number
            for number, row in enumerate(self.rows)
            if row.instruction_id is None and row.kind != "unaccounted"
        }

    def document(self, lines: Lines) -> Json:
        """Return the parts of `Method` from its profile: all but links to graphs, and events."""
        profile, scale = self.profile, self.scale
        samples, note = self._samples()
        excluded = None
        if profile.excluded is not None:
            every = profile.every
            left = ~np.isin(every.runs, profile.runs)
            excluded = {
                "words": profile.runs_in_words,
                "runIndex": every.runs[left].tolist(),
                "totals": scale(every.total[left]).tolist(),
            }
        own_lines = [lines.all_of(row.attribution.lines) for row in self.rows]
        number = {module.name: at for at, module in enumerate(self.modules)}
        modules: list[int | None] = []  # of each row: the one that holds all its nodes
        stacks = []  # of each row: of its first line, from a node or else from the instruction
        for row in self.rows:
            origin = row.attribution
            named = None if origin.module is None else number.get(module_name(origin.module))
            modules.append(named)
            trace = next((node.stack_trace for node in origin.located if node.stack_trace), None)
            stacks.append(lines.all_of(origin.stack) if trace is None else lines.stack(trace))
        return {
            "name": self.name,
            "runs": len(profile.runs),
            "runIndex": profile.runs.tolist(),
            "totals": scale(profile.total).tolist(),
            "excluded": excluded,
            "rows": table_document(self._table()),
            "samples": samples,
            "samplesNote": note,
            "links": {"lines": own_lines, "stack": stacks, "module": modules},
            "modules": self._modules(),
        }

    def _modules(self) -> list[Json]:
        """`Method.modules`: each with its time, and the rows that count for itself."""
        number = {id(row): at for at, row in enumerate(self.rows)}
        types: dict[str, str] = {}
        for _, leaf in self.profile.leaves:
            for node in leaf.attribution.located:
                for frame in node.modules:
                    types.setdefault(module_name(frame.path), frame.type.rpartition(".")[2])
        found = []
        for module in self.modules:
            path = "" if module.name == ROOT else module.name
            own = module.own
            found.append(
                {
                    "path": path,
                    "name": path if path == NO_MODULE else path.rpartition(".")[2],
                    "type": types.get(module.name),
                    "parent": module.parent,
                    "depth": module.depth,
                    "total": float(self.scale(module.average)),
                    "self": 0.0 if own is None else float(self.scale(own.average)),
                    "rows": [] if own is None else [number[id(leaf)] for leaf in own.rows],
                }
            )
        return found

    def _table(self) -> Table:
        """Return the rows in run order. The reader chooses whether to see the columns of work; the
        heads of the columns hold their notes."""
        table = profile_table(self.profile, self.scale, sort="run", limits=self.limits)
        of_work = set(work_notes(self.limits))
        return replace(
            table,
            columns=tuple(
                replace(column, priority=CHOSEN) if column.name in NAMES else column
                for column in table.columns
            ),
            notes=tuple(note for note in table.notes if note not in of_work),
        )

    def _samples(self) -> tuple[list[list[Any] | None], str | None]:
        """The samples of each row, None for the shorter rows when there are too many numbers."""
        rows = self.rows
        runs = len(rows[-1].ticks)
        most = max(MOST_SAMPLES // max(runs, 1), 2)
        by_time = sorted(range(len(rows)), key=lambda i: -float(rows[i].ticks.mean()))
        by_time.sort(
            key=lambda i: rows[i].kind not in ("total", "unaccounted") or rows[i].depth > 0
        )
        samples: list[list[Any] | None] = [None] * len(rows)
        for number in by_time[:most]:
            row = rows[number]
            if not row.is_time:
                continue
            values: list[Any] = self.scale(row.ticks).tolist()
            for position in np.flatnonzero(~row.ran).tolist():
                values[position] = None
            samples[number] = values
        if len(rows) <= most:
            return samples, None
        return samples, (
            f"The page shows single runs only for the {most:,} longest rows, to stay small: "
            f"{runs:,} runs of {len(rows):,} rows are too many. The statistics cover all runs."
        )

    # -- All events of the runs: the columns of upstream's `to_dataframe`, and their tensors.

    def events(self, trace: Trace, convert: TimeConverter | None) -> tuple[Json, list[int | None]]:
        """Return `Method.events` and `Method.eventRow`: one row for each event of each block. The
        first method also has the runs that executed nothing.

        convert: the user's, for events inside delegates.
        """
        scale, limits = self.scale, self.limits
        runs = set(self.profile.runs.tolist())
        cells: list[Mapping[str, Any]] = []
        rows: list[int | None] = []
        room = MOST_RAW
        for every in trace.blocks:
            if every.executions and runs.isdisjoint(every.runs.tolist()):
                continue
            if not every.executions and self.index:
                continue
            block = runs_of(every, runs) if every.executions else every
            if convert is None:
                warn_own_clock(block, trace.meanings(block))
            attribution = trace.shown_at(block)
            samples = block_samples(block, scale, convert)
            profiled = set(block.profiled)
            statistics = {
                name: column.tolist() for name, column in summarize(samples, STATISTICS).items()
            }
            for index, key in enumerate(block.keys):
                is_timed = index in profiled
                row = self.row_of_event(key)
                of_row = slice(0) if row is None else slice(row, row + 1)  # none of a closing row
                room -= len(block.runs) if is_timed else 0
                cells.append(
                    {
                        **_event_cells(trace, block, key, attribution(key)),
                        "raw": samples[index].tolist() if is_timed and room >= 0 else None,
                        **{
                            name: column[index] if is_timed else math.nan
                            for name, column in statistics.items()
                        },
                        **work_cells(limits if is_timed else None, self.profile.rows[of_row]),
                    }
                )
                rows.append(row)
        notes = (
            "Some events do not show their samples, to keep the page small: to_dataframe and "
            "etscope convert have them. The statistics cover all samples.",
        )
        table = Table.of_cells(
            _columns(scale, has_work=limits is not None),
            cells,
            title=f"Events of {self.name}",
            notes=notes if room < 0 else (),
        )
        return table_document(table), rows


def _event_cells(
    trace: Trace, block: Block, key: EventKey, found: Attribution
) -> Mapping[str, Any]:
    """The cells of an event's row but its samples and their statistics."""
    nodes = {f"{node.name}_": node for node in found.located}  # named as upstream has it
    return {
        "event_block_name": block.name,
        "event_name": key.name,
        "op_types": _cut(found.op_types),
        "inputs": list(found.inputs),
        "outputs": list(found.outputs),
        "delegate_debug_identifier": None if key.delegate_id is None else str(key.delegate_id),
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


def _columns(scale: Scale, *, has_work: bool) -> tuple[Column, ...]:
    unit = scale.unit
    work = [
        replace(column, priority=max(column.priority, 2))
        for column in WORK_COLUMNS
        if has_work and column.name in SHOWN
    ]
    return (
        Column("event_block_name", title="block", priority=6),
        Column("event_name", title="event"),
        Column("raw", Kind.LIST, unit, title="samples", priority=9),
        *(
            Column(name, Kind.DURATION, unit, priority=0 if name == "avg" else 4)
            for name in STATISTICS
        ),
        *work,
        Column("op_types", Kind.LIST, title="ops", priority=1),
        Column("inputs", Kind.LIST, priority=6),
        Column("outputs", Kind.LIST, priority=2),
        Column("delegate_debug_identifier", title="delegate id", priority=3),
        Column("stack_traces", Kind.LIST, title="source lines", priority=5),
        Column("module_hierarchy", Kind.LIST, title="modules", priority=5),
        Column("is_delegated_op", Kind.BOOL, title="delegated", priority=6),
        Column("delegate_backend_name", title="backend", priority=3),
        Column("debug_data", Kind.LIST, title="logged values", priority=7),
        Column("start_time", Kind.INT, scale.source.value, title="first start", priority=8),
    )


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
