"""Columns that follow from a dump's events as a whole: their work (FLOPs, bytes, the limits of the
machine where they ran), and the leaves and rests of divided events, as its profiles have them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etscope.analysis.profile.profile import MethodProfile, Row, identity, method_profile
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import UNATTRIBUTED
from etscope.analysis.work.limits import BOUNDS, OVERHEAD_SHARE, ProfileLimits
from etscope.analysis.work.profile_work import ProfileWork, profile_work
from etscope.analysis.work.roofline import choose_calibration
from etscope.errors import FormatError
from etscope.formats.calibration import Calibration, calibrations_folder
from etscope.formats.run_json import SavedRun
from etscope.model.event_table import CALL_ROLES, EventTable
from etscope_lab.fleet._dataset import EVENTS, arrow_schema

_ROLES = frozenset({*CALL_ROLES, "kernel", "delegated"})
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EventWork:
    """The work of one occurrence of each event of a program, [K]; NaN if it is unknown, or depends
    on sizes of the run.

    rows: for each event, the row of a profile that has its work, with the work of that profile.
    """

    rows: Sequence[tuple[ProfileWork, Row] | None]
    flops: _Floats
    activations: _Floats
    weights: _Floats
    _known: dict[Hashable, _Floats] = field(default_factory=dict, init=False, repr=False)

    def columns(self) -> dict[str, Any]:
        """Return the columns of events that need no calibration."""
        moved = self.activations + self.weights
        with np.errstate(divide="ignore", invalid="ignore"):
            intensity = np.where(moved > 0, self.flops / moved, np.nan)
        named = {
            "flops": self.flops,
            "activation_bytes": self.activations,
            "weight_bytes": self.weights,
            "intensity": intensity,
        }
        return {name: pa.array(values, mask=~np.isfinite(values)) for name, values in named.items()}

    def limits(
        self, calibration: Calibration | None, threads: int | None, event: Any, ns: Any
    ) -> dict[str, Any]:
        """Return the columns that a calibration gives for rows, [N]: the least time, and what
        bounds it, by the rule in `etscope.analysis.work.limits`. event: the number of each row's
        event among the K; ns: the time of each row.
        """
        compute, memory, overhead = self._least(calibration, threads)[:, event]
        roof = np.maximum(compute, memory)
        bound = np.where(compute > memory, 0, 1)
        is_overhead = (roof == 0) | ((overhead > roof) & (overhead >= OVERHEAD_SHARE * ns))
        bound = np.where(is_overhead, 2, bound).astype(np.int32)
        unknown = np.isnan(roof)
        indices = pa.array(bound, mask=unknown)
        return {
            "least_ns": pa.array(roof, mask=unknown),
            "bound": pa.DictionaryArray.from_arrays(indices, pa.array(BOUNDS, pa.string())),
        }

    def _least(self, calibration: Calibration | None, threads: int | None) -> _Floats:
        """The least times, [3, K], by compute, memory and overhead; NaN where not known."""
        key = None if calibration is None else (calibration.path, calibration.measured_at, threads)
        if key not in self._known:
            least = np.full((3, len(self.rows)), np.nan)
            for number, found in enumerate(self.rows if calibration is not None else ()):
                if found is None:
                    continue
                work, row = found
                one = ProfileLimits(work, calibration=calibration, threads=threads).of([row])
                if one is not None and one.roof_ns is not None:
                    given = (one.compute_ns or 0.0, one.memory_ns or 0.0, one.overhead_ns or 0.0)
                    least[:, number] = np.array(given) / float(row.calls.mean())
            self._known[key] = least
        return self._known[key]


def event_work(trace: Trace) -> EventWork:
    """Return the work of `trace.events`."""
    rows: dict[tuple[str | None, int, int | str | None], tuple[ProfileWork, Row]] = {}
    for profile in trace.profiles() if trace.record or trace.program else ():
        profile = profile.every  # the next dump of the program may count others of its runs
        work = profile_work(trace, profile)
        for row in profile.rows if work is not None else ():
            if row.instruction_id is not None and row.kind != "unaccounted" and work is not None:
                rows.setdefault((profile.method, row.instruction_id, row.delegate_id), (work, row))
    events = trace.events
    of_events: list[tuple[ProfileWork, Row] | None] = []
    numbers = np.full((3, len(events.events)), np.nan)
    for number, (event, block) in enumerate(zip(events.events, events.block, strict=True)):
        key, found = event.key, None
        if key.instruction is not None and key.role in _ROLES and event.block.executions:
            found = rows.get((events.methods[block], key.instruction, key.delegate_id))
        of_events.append(found)
        if found is None:
            continue
        done, calls = found[0].of([found[1]]), float(found[1].calls.mean())
        if done is None or done.is_bound or calls <= 0:
            continue
        if done.known_flops is not None:
            numbers[0, number] = done.flops / calls
        if done.known_bytes is not None:
            moved = done.traffic.activations + done.traffic.state
            numbers[1:, number] = moved / calls, done.traffic.weights / calls
    return EventWork(of_events, *numbers)


def calibration_of(saved: SavedRun) -> Calibration | None:
    """Find the calibration of the machine of a run; None if there is none."""
    try:
        conditions = saved.conditions
        environment = saved.content.get("environment")
        of_lab = environment.get("cpu") if isinstance(environment, dict) else None
        cpu = (conditions and conditions.cpu) or (of_lab if isinstance(of_lab, str) else "")
        facts = saved.text("runner"), saved.text("executorch"), saved.count("threads")
        cores = None if conditions is None else conditions.cores
    except FormatError:
        return None  # a dataset has runs without conditions, too
    folder = calibrations_folder()
    changed = folder.stat().st_mtime_ns if folder.is_dir() else 0
    return _found(cpu or "", cores, facts, changed)


@lru_cache(maxsize=256)
def _found(
    cpu: str, cores: int | None, facts: tuple[str | None, str | None, int | None], changed: int
) -> Calibration | None:
    """The calibration for the facts of many runs, as long as their folder has not changed."""
    runner, executorch, threads = facts
    content = {"runner": runner, "executorch": executorch, "threads": threads}
    about = {"cpu": cpu, "cores": cores, "load": None}
    return choose_calibration(None, SavedRun({**content, "conditions": about}))


# -- Leaves.

_Ints = npt.NDArray[np.int64]
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
