"""The calls of a language model in a dump by phase and method: tokens, times and rates.

The times come from the dump: only the runtime's `execute`. The time of the whole generation, with
sampling and host, untraced, is in run.json: `etscope.analysis.generation.pace`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.pace import PERCENTILES, RATES, rate
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.formats.generation import DECODE, PREFILL
from etscope.model.statistics import statistic
from etscope.model.table import Column, Kind, Table
from etscope.units import TimeScale

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PhaseTimes:
    """The calls of a phase, of one method or of all that run in it, int64 [calls].

    method: None for one that is not known. is_whole: of all methods of the phase. ticks: of each
    call. tokens: that each call takes, 0 where it is not known. total_tokens: that the phase took;
    of all methods each token once. note: a sentence on phases that were inferred from the dump.
    """

    phase: str
    method: str | None
    ticks: Ints
    tokens: Ints
    total_tokens: int
    note: str | None = None
    is_whole: bool = False

    @property
    def token_ticks(self) -> Floats:
        """Return the ticks for each token, over the calls with a known number of tokens;
        float64."""
        known = self.tokens > 0
        found: Floats = self.ticks[known] / self.tokens[known]
        return found


def phase_times(profiles: Sequence[MethodProfile]) -> tuple[PhaseTimes, ...]:
    """Return the phases in order of their first call, each with its methods. A phase of several
    methods comes as a whole, then method by method; profiles without a phase are left out."""
    by_phase: dict[str, list[MethodProfile]] = {}
    known = [profile for profile in profiles if profile.phase is not None]
    for profile in sorted(known, key=lambda one: int(one.runs[0])):
        by_phase.setdefault(profile.phase or "", []).append(profile)
    found = []
    for phase, members in by_phase.items():
        parts = [
            PhaseTimes(
                *(phase, one.method, one.total, one.calls.tokens),
                *(int(one.calls.tokens.sum()), one.calls.note),
            )
            for one in members
            if one.calls is not None
        ]
        if len(parts) > 1:
            # An embedding and the decoder after it take the same tokens.
            note = next((part.note for part in parts if part.note), None)
            empty = np.zeros(0, np.int64)
            ticks = np.concatenate([part.ticks for part in parts])
            tokens = max(part.total_tokens for part in parts)
            found.append(PhaseTimes(phase, None, ticks, empty, tokens, note, is_whole=True))
        found += parts
    return tuple(found)


def phase_table(phases: Sequence[PhaseTimes], scale: Scale) -> Table:
    """Return one row for each phase and method: calls, tokens, times and rates in the dump."""
    methods = {one.method for one in phases if not one.is_whole}
    is_time = scale.source is not TimeScale.CYCLES
    columns = (
        Column("phase"),
        *([Column("method", priority=0 if len(methods) > 1 else 9)] if methods - {None} else []),
        Column("calls", Kind.COUNT),
        Column("tokens", Kind.COUNT),
        Column("time", Kind.DURATION, scale.unit, priority=1),
        Column("call_mean", Kind.DURATION, scale.unit, "call"),
        *(Column(f"call_{p}", Kind.DURATION, scale.unit, f"call {p}", 3) for p in PERCENTILES),
        Column("token_mean", Kind.DURATION, scale.unit, "token", priority=1),
        *(Column(f"token_{p}", Kind.DURATION, scale.unit, f"token {p}", 4) for p in PERCENTILES),
        *(RATES if is_time else ()),
        Column("share", Kind.SHARE),
    )
    whole = sum(int(one.ticks.sum()) for one in phases if not one.is_whole)
    with_parts = {one.phase for one in phases if one.is_whole}
    depth = [int(one.phase in with_parts and not one.is_whole) for one in phases]
    notes = [
        "Times and rates of the runtime alone, in this traced run: without the choice of tokens, "
        "the host, and with what tracing costs.",
        *dict.fromkeys(one.note for one in phases if one.note is not None),
    ]
    if any(not one.total_tokens and one.phase in (PREFILL, DECODE) for one in phases):
        notes.append("How many tokens some calls took is not known: they have no times of a token.")
    return Table.of_cells(
        columns,
        [_cells(one, scale, whole) for one in phases],
        title="Phases of the calls",
        notes=tuple(notes),
        depth=depth if any(depth) else None,
    )


def _cells(one: PhaseTimes, scale: Scale, whole: int) -> dict[str, Any]:
    """The cells of a row. whole: ticks of all phases."""
    total, by_token = int(one.ticks.sum()), one.token_ticks
    cells: dict[str, Any] = {
        "phase": one.phase,
        "method": one.method,
        "calls": len(one.ticks),
        "tokens": one.total_tokens or None,
        "time": float(scale(total)),
        "token_mean": float(scale(total)) / one.total_tokens if one.total_tokens else None,
        "rate_mean": None,
        "share": total / whole if whole else None,
        # Calls of several methods have no typical length.
        "call_mean": None if one.is_whole else float(scale(one.ticks).mean()),
    }
    rates = np.zeros(0)
    if scale.source is not TimeScale.CYCLES:
        seconds = Scale(scale.source, TimeScale.S)
        rates = 1 / seconds(np.maximum(by_token, 1))
        if one.total_tokens and total:
            cells["rate_mean"] = one.total_tokens / float(seconds(total))
    for p in PERCENTILES:
        known = len(by_token) > 0
        cells[f"call_{p}"] = None if one.is_whole else statistic(scale(one.ticks), p)
        cells[f"token_{p}"] = statistic(scale(by_token), p) if known else None
        cells[f"rate_{p}"] = rate(rates, p)
    return cells
