"""A language model's calls for the page: the time of each, stacked, and the whole generation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.pace import Pace, pace_section, phase_times, traced_phase_table
from etscope.analysis.generation.traced import GROUPINGS, group_series, joined_calls, traced_calls
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.generation import GenerationPass
from etscope.units import TimeScale
from etscope.views.page.elements import Json, section_document, table_document
from etscope.views.page.method import ShownMethod

# Points on the chart; of more calls, neighbours are joined. A call takes about 300 bytes of the
# document, so all take 1.5 MB.
MOST_CALLS = 5_000
_MOST_GROUPS = 8  # areas of the stacked chart; the rest is one more. Fewer are easier to read.

Ints = npt.NDArray[np.int64]


def generation_document(
    trace: Trace | None, methods: Sequence[ShownMethod], scale: Scale
) -> Json | None:
    """The page's `GenerationDoc` of a run; None unless the run is of a language model."""
    calls = None if trace is None else traced_calls(trace)
    if trace is None or calls is None:
        return None
    profiles = [shown.profile for shown in methods]
    every = [profile.every for profile in profiles]  # each call is drawn
    kinds = (calls.generation, calls.phase, calls.method)
    order, first = joined_calls(kinds, MOST_CALLS)
    size = np.diff(np.append(first, len(order)))

    def mean(ticks: Ints) -> list[float]:
        found: list[float] = scale(np.add.reduceat(ticks[order], first) / size).tolist()
        return found

    def of_first(column: Ints) -> list[int]:
        found: list[int] = column[order][first].tolist()
        return found

    saved = trace.saved_run
    known = None if saved is None else saved.generation
    untraced = None if known is None else known.untraced
    joined = int(size.max()) if len(size) else 1
    return {
        "note": None
        if joined == 1
        else f"Each point is the mean of up to {joined:,} neighbouring calls of a phase: "
        f"{len(order):,} calls are too many for one point each.",
        "phases": list(calls.phases),
        "methods": [name or "method" for name in calls.methods],
        "table": table_document(traced_phase_table(phase_times(profiles), scale)),
        "pace": None if untraced is None else section_document(pace_section(Pace.of(untraced))),
        "calls": {
            "number": of_first(calls.number),
            "run": of_first(calls.run),
            "generation": of_first(calls.generation),
            "phase": of_first(calls.phase),
            "method": of_first(calls.method),
            "step": of_first(calls.step),
            "position": of_first(calls.position),
            "tokens": np.add.reduceat(calls.tokens[order], first).tolist(),
            "joined": size.tolist(),
            "token": of_first(calls.chosen),
            "start": scale(calls.start[order][first] - calls.start.min()).tolist(),
            "time": mean(calls.ticks),
        },
        "groups": {
            by: {
                "names": list(found.names),
                "times": [mean(ticks) for ticks in found.ticks],
            }
            for by in GROUPINGS
            for found in [group_series(calls, every, by, _MOST_GROUPS)]
        },
        "untraced": None if untraced is None else _untraced(untraced, scale),
    }


def _untraced(untraced: GenerationPass, scale: Scale) -> Json | None:
    """Return the calls of the pass without tracing, on the host's clock; None if the page's unit is
    not a time."""
    if scale.target is TimeScale.CYCLES:
        return None
    calls = untraced.calls
    in_unit = Scale(TimeScale.NS, scale.target)
    order, first = joined_calls((calls.run, calls.phase, calls.method), MOST_CALLS)
    size = np.diff(np.append(first, len(order)))
    last = first + size - 1
    end = (calls.start_ns + calls.execute_ns)[order][last]

    def mean(column: Ints) -> list[float]:
        values: list[float] = in_unit(np.add.reduceat(column[order], first) / size).tolist()
        return values

    return {
        "phases": list(calls.phases),
        "methods": list(calls.methods),
        "generation": calls.run[order][first].tolist(),
        "phase": calls.phase[order][first].tolist(),
        "method": calls.method[order][first].tolist(),
        "position": calls.position[order][first].tolist(),
        "tokens": np.add.reduceat(calls.tokens[order], first).tolist(),
        "joined": size.tolist(),
        "start": in_unit(calls.start_ns[order][first]).tolist(),
        "end": in_unit(end).tolist(),
        "execute": mean(calls.execute_ns),
        "sampling": mean(calls.sampling_ns),
    }
