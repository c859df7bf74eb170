"""A method's profile for the page: its rows, what is behind each, and its modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from etscope.analysis.memory import MemoryPlan
from etscope.analysis.profile.module_times import ModuleTime, module_times, row_modules
from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.profile_table import closing_rows, profile_table
from etscope.analysis.profile.scale import Scale
from etscope.model.graph import Node
from etscope.views.page.elements import Json, Lines, table_document

# So many samples of rows are shown; those of the longest rows when there are more.
MOST_SAMPLES = 200_000


@dataclass(frozen=True)
class ShownMethod:
    """A profile, and where its parts stand in the document."""

    index: int
    profile: MethodProfile
    rows: Sequence[Row]  # with the closing ones, as `Method.rows` has them
    modules: Sequence[ModuleTime]

    @classmethod
    def of(cls, index: int, profile: MethodProfile) -> ShownMethod:
        rows = [*profile.rows, *closing_rows(profile, ())]
        return cls(index, profile, rows, module_times(profile))

    @property
    def name(self) -> str:
        return self.profile.method or "method"

    def row_of(self, instruction: int | None, delegate_id: int | str | None) -> int | None:
        """The row of an instruction, or of an event inside its delegate."""
        return self._places.get((instruction, delegate_id))

    def row_named(self, name: str) -> int | None:
        """The row of what was logged for no instruction, by its name."""
        return self._named.get(name)

    @cached_property
    def _places(self) -> dict[tuple[int | None, int | str | None], int]:
        return _places(self.rows)

    @cached_property
    def _named(self) -> dict[str, int]:
        return {
            row.name: number
            for number, row in enumerate(self.rows)
            if row.instruction_id is None and row.kind != "unaccounted"
        }


def _places(rows: Sequence[Row]) -> dict[tuple[int | None, int | str | None], int]:
    found: dict[tuple[int | None, int | str | None], int] = {}
    for number, row in enumerate(rows):
        if row.instruction_id is not None and not (row.depth and row.kind == "unaccounted"):
            found.setdefault((row.instruction_id, row.delegate_id), number)
    return found


def method_document(shown: ShownMethod, scale: Scale, lines: Lines) -> Json:
    """The parts of `Method` that its profile tells: all but links to graphs, and events."""
    profile = shown.profile
    samples, note = _samples(shown.rows, scale)
    modules = [*row_modules(profile, shown.modules), None, None]
    return {
        "name": shown.name,
        "runs": len(profile.runs),
        "runIndex": profile.runs.tolist(),
        "totals": scale(profile.total).tolist(),
        "rows": table_document(profile_table(profile, scale, sort="run")),
        "samples": samples,
        "samplesNote": note,
        "links": {
            "nodes": {},
            "lines": [lines.all_of(row.attribution.lines) for row in shown.rows],
            "stack": [_stack(row, lines) for row in shown.rows],
            "module": modules,
        },
        "modules": _modules(shown.modules, scale),
    }


def _samples(rows: Sequence[Row], scale: Scale) -> tuple[list[list[Any] | None], str | None]:
    """The samples of each row, None for the shorter rows when there are too many numbers."""
    runs = len(rows[-1].ticks)
    most = max(MOST_SAMPLES // max(runs, 1), 2)
    by_time = sorted(range(len(rows)), key=lambda i: -float(rows[i].ticks.mean()))
    by_time.sort(key=lambda i: rows[i].kind not in ("total", "unaccounted") or rows[i].depth > 0)
    kept = set(by_time[:most])
    samples = [_of_row(row, scale) if i in kept else None for i, row in enumerate(rows)]
    if len(rows) <= most:
        return samples, None
    return samples, (
        f"{runs:,} runs of {len(rows):,} rows are too many numbers for a page: it has the single "
        f"runs of the {most:,} longest rows. The statistics are of all runs."
    )


def _of_row(row: Row, scale: Scale) -> list[Any]:
    values: list[Any] = scale(row.ticks).tolist()
    if row.ran.all():
        return values
    for position in np.flatnonzero(~row.ran).tolist():
        values[position] = None
    return values


def _stack(row: Row, lines: Lines) -> list[int]:
    """The whole stack of the row's first line: of a node, else of the program's instruction."""
    found = row.attribution
    traced: Node | None = next((node for node in found.nodes if node.stack_trace), None)
    return lines.stack(traced.stack_trace) if traced is not None else lines.all_of(found.stack)


def _modules(modules: Sequence[ModuleTime], scale: Scale) -> list[Json]:
    return [
        {
            "path": module.path,
            "name": module.name,
            "type": module.type,
            "parent": module.parent,
            "depth": module.depth,
            "total": float(scale(module.total)),
            "self": float(scale(module.own)),
            "rows": module.rows,
        }
        for module in modules
    ]


# The memory plans of a program's methods for the page.


def memory_documents(plans: Mapping[str, MemoryPlan], methods: Sequence[ShownMethod]) -> list[Json]:
    """The `Memory` of each method; its instructions point at the rows of the runs, if it ran."""
    ran = {shown.profile.method: shown for shown in methods}
    return [_document(plan, ran.get(name)) for name, plan in plans.items()]


def _document(plan: MemoryPlan, shown: ShownMethod | None) -> Json:
    numbers = range(len(plan.labels))
    return {
        "method": plan.method,
        "summary": table_document(plan.summary()),
        "live": list(plan.live_bytes),
        "labels": list(plan.labels),
        "rows": [None if shown is None else shown.row_of(number, None) for number in numbers],
        "peak": plan.peak_bytes,
        "values": table_document(plan.table()),
    }
