"""Columns of tables that say how times grow with the position of a language model's tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.profile import MethodProfile, Ticks
from etscope.analysis.profile.scale import Scale
from etscope.analysis.statistics.growth import CONFIDENCE, LEAST_SHARE, growth, is_enough
from etscope.model.table import Column, Kind
from etscope.units import TimeScale

GROWTH = ("growth", "growth_low", "growth_high")


def growth_columns(
    profile: MethodProfile, times: Sequence[Ticks | None], scale: Scale
) -> dict[Column, list[float | None]]:
    """Return the columns for rows of these times: `growth` in ns a token, where it is sure, and
    `growth_low` to `growth_high`, its interval. No columns where positions are not known, or too
    few.

    times: int64 [runs] in ticks for each row; None for what is not a time of the method.
    """
    position = _positions(profile)
    if position is None:
        return {}
    # With all of the method's rows, so that a row's growth does not depend on the other rows shown.
    every = {id(row.ticks): row.ticks for row in profile.rows if not row.own_clock}
    shown = {id(one): one for one in times if one is not None}
    looked_at = {**every, **shown}
    found = growth(position, np.stack(list(looked_at.values())))
    number = dict(zip(looked_at, range(len(looked_at)), strict=True))
    is_clock = scale.source is TimeScale.CYCLES
    in_unit = scale if is_clock else Scale(scale.source, TimeScale.NS)
    slope, low, high = (in_unit(one).tolist() for one in (found.slope, found.low, found.high))
    sure = [
        value if grows else None for value, grows in zip(slope, found.grows.tolist(), strict=True)
    ]
    unit = "cycles/token" if is_clock else "ns/token"
    columns = {}
    for name, priority, values in (
        ("growth", 1, sure),
        ("growth_low", 8, low),
        ("growth_high", 8, high),
    ):
        cells = [None if one is None else values[number[id(one)]] for one in times]
        columns[Column(name, Kind.FLOAT, unit, priority=priority)] = cells
    return columns


def growth_note(profile: MethodProfile) -> Iterator[str]:
    """Yield the meaning of `growth`, where a table has it; or that nothing grows."""
    position = _positions(profile)
    if position is None:
        return
    rows = [row.ticks for row in profile.rows if not row.own_clock]
    if not growth(position, np.stack([*rows, profile.total])).grows.any():
        yield (
            f"No time is sure to grow with the position of the token, from {position.min():,} to "
            f"{position.max():,}."
        )
    else:
        yield (
            f"growth: time for each token of context before it, from position {position.min():,} "
            f"to {position.max():,}; only where {CONFIDENCE:.0%} sure and at least "
            f"{LEAST_SHARE:.0%} of the time."
        )


def _positions(profile: MethodProfile) -> npt.NDArray[np.int64] | None:
    """Return the position of each run; None if growth cannot be computed."""
    calls = profile.calls
    return calls.position if calls is not None and is_enough(calls.position) else None
