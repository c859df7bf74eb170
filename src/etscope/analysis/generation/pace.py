"""The pace of a generation: time to first token, rates of the phases, time between tokens.

Of a whole generation, with sampling and host, untraced, from run.json (`Pace`); and of the calls in
a dump (`PhaseTimes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.growth import CONFIDENCE, Growth, growth, is_enough
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.formats.generation import (
    CONTEXT,
    DECODE,
    INTERRUPTED,
    PREFILL,
    Generation,
    GenerationCalls,
    GenerationPass,
)
from etscope.model.report import Section, facts
from etscope.model.statistics import statistic
from etscope.model.table import Column, Kind, Table
from etscope.support.shown import Shown
from etscope.units import TimeScale, format_share

__all__ = ["Pace", "phase_table"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MS = 1e6  # ns


@dataclass(frozen=True, slots=True, eq=False)
class PhasePace:
    """The pace of one phase of the generations of a pass (traced or untraced).

    calls, tokens: their number in one generation; the mean if there are several. wall_ns:
    [generations] the time of the phase, where each of its calls counts until the next call of any
    phase starts. rates: tokens a second, [generations] of prefill, [tokens] of decode; empty for a
    phase without tokens.
    """

    phase: str
    calls: float
    tokens: float
    wall_ns: Floats
    rates: Floats

    @property
    def mean_rate(self) -> float | None:
        """Tokens a second over the whole phase."""
        total = float(self.wall_ns.sum())
        return self.tokens * len(self.wall_ns) / total * 1e9 if total and self.tokens else None


@dataclass(frozen=True, eq=False)
class Pace(Shown):
    """The pace of the generations of a pass (traced or untraced), from its calls.

    load_ns: reading the program and loading its methods. cold_first_token_ns: the time to the first
    token of the first generation after loading, None if not known.
    """

    calls: GenerationCalls
    load_ns: int
    cold_first_token_ns: int | None = None

    @classmethod
    def of(cls, found: GenerationPass) -> Pace:
        return cls(found.calls, found.load_ns, found.cold_first_token_ns)

    @cached_property
    def first_token_ns(self) -> Ints:
        """The time from the start of a generation to the choice of its first token; [generations]
        that have one.
        """
        decodes = self.calls.in_phase(DECODE)
        last = np.flatnonzero(~decodes & (self.calls.sampling_ns > 0))
        return self._ends[last]

    @cached_property
    def _ends(self) -> Ints:
        return self.calls.start_ns + self.calls.execute_ns + self.calls.sampling_ns

    @cached_property
    def _decoded(self) -> tuple[Ints, Ints]:
        """Positions of the tokens that decode calls took, and the ns since the token before was
        chosen."""
        calls, ends = self.calls, self._ends
        place = calls.position + calls.tokens - 1
        decodes = calls.in_phase(DECODE)
        if not decodes.any():
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        # A token may take several calls; it ends with the last of them.
        next_is_other = np.ones(len(calls), bool)
        next_is_other[:-1] = (np.diff(place) != 0) | (np.diff(calls.run) != 0)
        next_is_other[:-1] |= decodes[1:] != decodes[:-1]
        last = np.flatnonzero(decodes & next_is_other)
        first = np.flatnonzero(decodes & np.concatenate(([True], next_is_other[:-1])))
        before = ends[np.maximum(first - 1, 0)]
        return place[last], ends[last] - before

    @property
    def positions(self) -> Ints:
        """The position of each decoded token of all generations; [tokens]."""
        return self._decoded[0]

    @property
    def inter_token_ns(self) -> Ints:
        """The time from the choice of one token to the choice of the next, in the order of
        `positions`; [tokens].
        """
        return self._decoded[1]

    @cached_property
    def growth(self) -> Growth | None:
        """The growth of the time between tokens over the position; None for too few tokens."""
        if not is_enough(self.positions):
            return None
        return growth(self.positions, self.inter_token_ns[None])

    @cached_property
    def wall_ns(self) -> Ints:
        """The time from the start of each call to the start of the next call of its generation;
        [calls].
        """
        found: Ints = self._ends - self.calls.start_ns
        same = np.diff(self.calls.run) == 0
        found[:-1][same] = np.diff(self.calls.start_ns)[same]
        return found

    @property
    def sampling_share(self) -> float:
        """The fraction of the whole time that went into choosing tokens."""
        return float(self.calls.sampling_ns.sum()) / max(int(self.wall_ns.sum()), 1)

    @property
    def host_share(self) -> float:
        """The fraction of the whole time outside the runtime's `execute` and the sampling."""
        total = max(int(self.wall_ns.sum()), 1)
        return 1 - float((self.calls.execute_ns + self.calls.sampling_ns).sum()) / total

    @cached_property
    def phases(self) -> tuple[PhasePace, ...]:
        present = (name for name in self.calls.phases if self.calls.in_phase(name).any())
        return tuple(map(self._phase, present))

    def _phase(self, name: str) -> PhasePace:
        calls, mask = self.calls, self.calls.in_phase(name)
        runs, run = np.unique(calls.run[mask], return_inverse=True)
        wall = np.bincount(run, self.wall_ns[mask], len(runs)).astype(np.float64)
        if name == DECODE:
            tokens = np.full(len(runs), len(self.positions) / len(runs))
            rates = 1e9 / np.maximum(self.inter_token_ns, 1)
        else:
            tokens = np.bincount(run, self._new_tokens()[mask], len(runs))
            rates = tokens / np.maximum(wall, 1) * 1e9 if tokens.any() else np.zeros(0)
        return PhasePace(name, float(mask.sum()) / len(runs), float(tokens.mean()), wall, rates)

    def _new_tokens(self) -> Ints:
        """Return the new tokens of each call; an embedding and the decoder after it count once."""
        calls = self.calls
        place = np.maximum(calls.position, 0) + calls.tokens
        found: Ints = calls.tokens.copy()
        again = (np.diff(place) == 0) & (np.diff(calls.run) == 0) & (calls.tokens[1:] > 0)
        found[1:][again] = 0
        return found


# -- tables

PERCENTILES = ("p50", "p95")
RATES = (
    Column("rate_mean", Kind.FLOAT, "tokens/s", "mean"),
    *(Column(f"rate_{name}", Kind.FLOAT, "tokens/s", name, priority=1) for name in PERCENTILES),
)


def rate(rates: Floats, name: str) -> float | None:
    """Return a percentile of the tokens' times as a rate: this share of the tokens is at least as
    fast. rates: tokens a second; None without any.
    """
    return 1 / statistic(1 / rates, name) if len(rates) else None


def phase_table(pace: Pace) -> Table:
    columns = (
        Column("phase"),
        Column("calls", Kind.COUNT),
        Column("tokens", Kind.COUNT),
        Column("time", Kind.DURATION, "ms"),
        *RATES,
        Column("share", Kind.SHARE, priority=2),
    )
    total = sum(float(phase.wall_ns.sum()) for phase in pace.phases) or 1.0
    rows = [
        (
            phase.phase,
            round(phase.calls),
            round(phase.tokens) or None,
            float(phase.wall_ns.mean()) / _MS,
            phase.mean_rate,
            *(rate(phase.rates, name) for name in PERCENTILES),
            float(phase.wall_ns.sum()) / total,
        )
        for phase in pace.phases
    ]
    return Table.of_rows(columns, rows, title="Phases of a generation")


def pace_section(pace: Pace) -> Section:
    """Return the facts of a pace: first token, time between tokens, growth, shares."""
    first, between, fit = pace.first_token_ns, pace.inter_token_ns, pace.growth
    cold = pace.cold_first_token_ns

    def time(name: str, title: str, ns: float | None) -> tuple[Column, Any]:
        return Column(name, Kind.DURATION, "ms", title), None if ns is None else ns / _MS

    def slope(name: str, title: str, values: str) -> tuple[Column, Any]:
        column = Column(name, Kind.FLOAT, "ns/token", title)
        return column, None if fit is None else float(getattr(fit, values)[0])

    p50, p95 = (statistic(between, one) if len(between) else None for one in PERCENTILES)
    entries = [
        time("load", "load the program and its methods", pace.load_ns),
        time("first_token", "time to first token", float(np.median(first)) if len(first) else None),
        time(
            "first_token_with_load",
            "cold time to first token, with loading",
            None if cold is None else cold + pace.load_ns,
        ),
        time("inter_token_p50", "between tokens, p50", p50),
        time("inter_token_p95", "between tokens, p95", p95),
        slope("slope", "growth over position", "slope"),
        slope("slope_low", f"{CONFIDENCE:.0%} interval, from", "low"),
        slope("slope_high", "to", "high"),
        (Column("sampling_share", Kind.SHARE, title="sampling"), pace.sampling_share),
        (Column("host_share", Kind.SHARE, title="host"), pace.host_share),
    ]
    return facts("pace", "Pace", entries, notes=tuple(growth_in_words(pace)))


_REMARKS = {
    INTERRUPTED: "It was interrupted: this is what was recorded until then.",
    CONTEXT: "The cache is full: export the model with a larger one to generate more.",
}


def generation_section(found: Generation, more: Sequence[tuple[Column, Any]] = ()) -> Section:
    """Return the facts of a generation: its tokens, what ended it, what the model takes. more:
    facts of the run that made it."""
    entries = [
        (Column("text", is_sentence=True), found.text),
        (Column("tokens"), ",".join(map(str, found.generated_tokens.tolist()))),
        (Column("prompt_tokens", Kind.COUNT), len(found.prompt_tokens) or None),
        (Column("generated_tokens", Kind.COUNT), len(found.generated_tokens) or None),
        (Column("stopped_by"), found.stopped_by),
        (Column("context_length", Kind.COUNT), found.context_length),
        (Column("vocabulary_size", Kind.COUNT), found.vocabulary_size),
        (Column("generations", Kind.COUNT), found.runs),
        *more,
    ]
    remark = _REMARKS.get(found.stopped_by or "")
    return facts("generation", "Generation", entries, notes=() if remark is None else (remark,))


def growth_in_words(pace: Pace) -> Iterator[str]:
    """Say in words whether the time of a token grows with its position."""
    fit = pace.growth
    if fit is None:
        return
    first, last = int(pace.positions.min()), int(pace.positions.max())
    where = f"from position {first:,} to {last:,}"
    if fit.grows[0]:
        # Of the line, as a mean of the times has their interruptions in it.
        rise = float(fit.slope[0] * (last - first) / (fit.intercept[0] + fit.slope[0] * first))
        yield f"A token's time grows by {format_share(rise)} {where}."
    else:
        yield f"No growth of a token's time is certain {where}."


# -- Times in a dump: the runtime's `execute` alone, traced.


@dataclass(frozen=True, slots=True, eq=False)
class PhaseTimes:
    """The calls of a phase, int64 [calls]: the calls of one method, or of all methods that run in
    the phase.

    method: None if unknown. is_whole: True for the calls of all methods of the phase. ticks: the
    time of each call. tokens: how many tokens each call takes, 0 if unknown. total_tokens: how many
    tokens the phase takes; a token that several methods process counts once. note: a sentence if
    the phases were inferred from the dump.
    """

    phase: str
    method: str | None
    ticks: Ints
    tokens: Ints
    total_tokens: int
    note: str | None = None
    is_whole: bool = False

    def cells(self, scale: Scale, whole: int) -> dict[str, Any]:
        """The cells of a row. whole: ticks of all phases."""
        known = self.tokens > 0
        by_token = self.ticks[known] / self.tokens[known]
        total = int(self.ticks.sum())
        cells: dict[str, Any] = {
            "phase": self.phase,
            "method": self.method,
            "calls": len(self.ticks),
            "tokens": self.total_tokens or None,
            "time": float(scale(total)),
            "token_mean": float(scale(total)) / self.total_tokens if self.total_tokens else None,
            "rate_mean": None,
            "share": total / whole if whole else None,
            # Calls of several methods have no typical length.
            "call_mean": None if self.is_whole else float(scale(self.ticks).mean()),
        }
        rates = np.zeros(0)
        if scale.source is not TimeScale.CYCLES:
            seconds = Scale(scale.source, TimeScale.S)
            rates = 1 / seconds(np.maximum(by_token, 1))
            if self.total_tokens and total:
                cells["rate_mean"] = self.total_tokens / float(seconds(total))
        for p in PERCENTILES:
            cells[f"call_{p}"] = None if self.is_whole else statistic(scale(self.ticks), p)
            cells[f"token_{p}"] = statistic(scale(by_token), p) if len(by_token) else None
            cells[f"rate_{p}"] = rate(rates, p)
        return cells


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


def traced_phase_table(phases: Sequence[PhaseTimes], scale: Scale) -> Table:
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
        notes.append("Some calls took an unknown number of tokens: they have no times per token.")
    return Table.of_cells(
        columns,
        [one.cells(scale, whole) for one in phases],
        title="Phases of the calls",
        notes=tuple(notes),
        depth=depth if any(depth) else None,
    )
