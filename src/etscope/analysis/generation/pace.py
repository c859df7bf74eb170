"""The pace of a generation: time to first token, rates of the phases, time between tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.statistics.growth import CONFIDENCE, Growth, growth, is_enough
from etscope.formats.generation import (
    CONTEXT,
    DECODE,
    INTERRUPTED,
    Generation,
    GenerationCalls,
    GenerationPass,
)
from etscope.model.report import Section, facts
from etscope.model.statistics import statistic
from etscope.model.table import Column, Kind, Table
from etscope.units import format_share

__all__ = ["Pace", "phase_table"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MS = 1e6  # ns


@dataclass(frozen=True, slots=True, eq=False)
class PhasePace:
    """One phase of the generations of a pass.

    calls, tokens: of one generation, the mean of several. wall_ns: [generations] the time of the
    phase, from the start of each of its calls to the start of the next call of any phase. rates:
    tokens a second, [generations] of prefill, [tokens] of decode; empty for a phase without tokens.
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
class Pace:
    """The pace of the generations of a pass, from its calls.

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
        """[generations]: from the first call's start to the choice of the first token; only of
        those that came so far."""
        decodes = self.calls.in_phase(DECODE)
        last = np.flatnonzero(~decodes & (self.calls.sampling_ns > 0))
        return self._ends[last]

    @cached_property
    def _ends(self) -> Ints:
        return self.calls.start_ns + self.calls.execute_ns + self.calls.sampling_ns

    @cached_property
    def _decoded(self) -> tuple[Ints, Ints, Ints]:
        """Positions of the tokens that decode calls took, the ns since the token before was chosen,
        and the index of the last call of each."""
        calls, ends = self.calls, self._ends
        place = calls.position + calls.tokens - 1
        decodes = calls.in_phase(DECODE)
        if not decodes.any():
            empty = np.zeros(0, np.int64)
            return empty, empty, empty
        # A token may take several calls; it ends with the last of them.
        next_is_other = np.ones(len(calls), bool)
        next_is_other[:-1] = (np.diff(place) != 0) | (np.diff(calls.run) != 0)
        next_is_other[:-1] |= decodes[1:] != decodes[:-1]
        last = np.flatnonzero(decodes & next_is_other)
        first = np.flatnonzero(decodes & np.concatenate(([True], next_is_other[:-1])))
        before = ends[np.maximum(first - 1, 0)]
        return place[last], ends[last] - before, last

    @property
    def positions(self) -> Ints:
        """[tokens] of all generations: the position of each decoded token."""
        return self._decoded[0]

    @property
    def inter_token_ns(self) -> Ints:
        """[tokens]: the time from the choice of one token to the choice of the next, in the order
        of `positions`."""
        return self._decoded[1]

    @cached_property
    def growth(self) -> Growth | None:
        """The growth of the time between tokens over the position; None for too few tokens."""
        if not is_enough(self.positions):
            return None
        return growth(self.positions, self.inter_token_ns[None])

    @cached_property
    def wall_ns(self) -> Ints:
        """[calls]: from the start of each call to the start of the next one of its generation."""
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
        """The phases in order of time."""
        return tuple(self._phase(name) for name in self.calls.phases if self._has(name))

    def _has(self, phase: str) -> bool:
        return bool(self.calls.in_phase(phase).any())

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
    """Return a percentile of the times of tokens as a rate: that which this share of the tokens
    reaches. rates: tokens a second; None without any."""
    return 1 / statistic(1 / rates, name) if len(rates) else None


def phase_table(pace: Pace) -> Table:
    """Return one row for each phase, of one generation: calls, tokens, time and rates."""
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
            "the same, cold and with load",
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
    """Say whether the time of a token grows with its position."""
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
