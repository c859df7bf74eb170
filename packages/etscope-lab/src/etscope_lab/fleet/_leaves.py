"""Leaves of a dump and the rests of divided events, as its profiles have them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etscope.analysis.profile.profile import MethodProfile, Row, identity, method_profile
from etscope.analysis.program.correlate import UNATTRIBUTED
from etscope.model.event_table import EventTable
from etscope_lab.fleet._dataset import EVENTS, arrow_schema

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
# What is known of a call, but not of the part that its events leave.
_NOT_OF_A_REST = ("activation_bytes", "weight_bytes", "intensity", "least_ns", "bound")


@dataclass(frozen=True, eq=False)
class Leaves:
    """The leaves of a dump.

    row: int64 [K], each distinct event's row among the rows of all profiles, -1 for none. leaf:
    bool [rows]. head: int64 [rows], the row of the instruction. rests: the rows of rests, each with
    its profile and the row that it is the rest of.
    """

    table: EventTable
    row: _Ints
    leaf: list[bool] = field(default_factory=list)
    head: list[int] = field(default_factory=list)
    rests: list[tuple[MethodProfile, Row, int]] = field(default_factory=list)

    @classmethod
    def of(cls, table: EventTable) -> Leaves:
        """Return the leaves of all executions. Blocks of unknown methods are treated one by one."""
        found = cls(table, np.full(len(table.events), -1, np.int64))
        groups: dict[Hashable, list[int]] = {}
        for number, (block, method) in enumerate(zip(table.blocks, table.methods, strict=True)):
            if block.executions:
                groups.setdefault(number if method is None else method, []).append(number)
        counts = [len(block.profiled) for block in table.blocks]
        first = np.cumsum([0, *counts])
        for numbers in groups.values():
            places = found._add(numbers)
            for number in numbers:
                block = table.blocks[number]
                for event, index in enumerate(block.profiled, start=int(first[number])):
                    found.row[event] = places.get(identity(block.keys[index]), -1)
        return found

    def _add(self, numbers: Sequence[int]) -> dict[Hashable, int]:
        """Add the rows of a profile of these blocks; return their places by identity."""
        blocks = [self.table.blocks[number] for number in numbers]
        meanings = {id(self.table.blocks[n]): self.table.meanings[n] for n in numbers}
        profile = method_profile(blocks, lambda _: UNATTRIBUTED, lambda one: meanings[id(one)])
        places: dict[Hashable, int] = {}
        for call in profile.instructions:
            head = len(self.leaf)
            for row in (call.head, *call.below):
                assert row.event is not None  # of all rows of a profile
                if row.kind == "unaccounted":
                    self.rests.append((profile, row, places[identity(row.event)]))
                else:
                    places[identity(row.event)] = len(self.leaf)
                self.leaf.append(row.leaf)
                self.head.append(head)
        return places

    def of_rows(self) -> npt.NDArray[np.bool_]:
        """Bool [N]: whether the events of the table are leaves."""
        return np.array([*self.leaf, False], np.bool_)[self.row[self.table.event]]

    def with_rests(self, events: Any, flops: _Floats, factor: int) -> Any:
        """Return a `pyarrow.Table` of the table's events with a row of the kind "rest" for each
        rest in each run, as a copy of the first event in the run that it is the rest of.

        flops: [K], of an occurrence of each event. factor: ns of a tick.
        """
        if not self.rests:
            return events
        runs = self.table.dump.num_runs
        code = self.row[self.table.event] * runs + self.table.run
        known, first = np.unique(code, return_index=True)
        unexplained = self._unexplained(flops, runs)
        parts: dict[str, list[Any]] = {"name": [], "op": [], "at": [], "ns": [], "flops": []}
        backends = events["delegate"]
        for profile, row, whole in self.rests:
            ran = row.ran
            codes = whole * runs + profile.runs[ran]
            at = first[np.searchsorted(known, codes)]
            op = f"(rest of {backends[int(at[0])].as_py() or 'the delegate'})"
            left = unexplained[codes] if row.depth == 1 else np.full(len(at), np.nan)
            for name, values in (("at", at), ("ns", row.ticks[ran] * factor), ("flops", left)):
                parts[name].append(values)
            parts["name"] += [row.name] * len(at)
            parts["op"] += [op if row.depth == 1 else row.name] * len(at)
        rests = events.take(pa.array(np.concatenate(parts["at"])))
        count, left = rests.num_rows, np.concatenate(parts["flops"])
        columns = {
            "kind": pa.array(["rest"] * count, pa.string()).dictionary_encode(),
            "name": pa.array(parts["name"], pa.string()).dictionary_encode(),
            "op": pa.array(parts["op"], pa.string()).dictionary_encode(),
            "leaf": pa.array(np.ones(count, np.bool_)),
            "duration_ns": pa.array(np.concatenate(parts["ns"])),
            "flops": pa.array(left, mask=np.isnan(left)),
        }
        for field_ in arrow_schema(EVENTS):
            if field_.name in _NOT_OF_A_REST:
                columns[field_.name] = pa.nulls(count, field_.type)
        for name, values in columns.items():
            rests = rests.set_column(rests.schema.get_field_index(name), rests.field(name), values)
        return pa.concat_tables([events, rests]).unify_dictionaries()

    def _unexplained(self, flops: _Floats, runs: int) -> _Floats:
        """Return the FLOPs, [rows x runs], of calls that none of their events has; NaN where not
        known."""
        row = self.row[self.table.event]
        head = np.array([*self.head, -1], np.int64)[row]
        is_leaf, is_call = self.of_rows(), (head == row) & (row >= 0)
        code, size = head * runs + self.table.run, len(self.leaf) * runs
        known = np.nan_to_num(flops)[self.table.event]
        inside = is_leaf & ~is_call
        whole, explained = (
            np.bincount(code[chosen], weights=known[chosen], minlength=size)
            for chosen in (is_call, inside)
        )
        left = whole - explained
        # Less is what rounding leaves.
        return np.where(left > 1e-9 * whole, left, np.nan)
