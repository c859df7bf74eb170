"""The work of a dataset's events: FLOPs, bytes, and the limits of the machine where they ran."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etscope.analysis.profile.profile import Row
from etscope.analysis.profile.trace import Trace
from etscope.analysis.work.limits import BOUNDS, OVERHEAD_SHARE, ProfileLimits
from etscope.analysis.work.profile_work import ProfileWork, profile_work
from etscope.analysis.work.roofline import choose_calibration
from etscope.errors import FormatError
from etscope.formats.calibration import Calibration, calibrations_folder
from etscope.formats.run_json import SavedRun
from etscope.model.event_table import CALL_ROLES

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
