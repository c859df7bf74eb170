"""The time of each call of a language model by operator, module or line: what is drawn of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.traced import TracedCalls
from etscope.analysis.profile.profile import InstructionRows, MethodProfile, Row
from etscope.analysis.profile.rollup import module_name, rollup
from etscope.analysis.program.source_location import block_family

Ints = npt.NDArray[np.int64]

GROUPINGS = ("op", "module", "source")
REST, UNACCOUNTED = "(the rest)", "(unaccounted)"


@dataclass(frozen=True, slots=True, eq=False)
class GroupSeries:
    """The ticks of groups in each call: int64 [names, calls], which add up to the call's.

    by: "op", "module" (repeated blocks as one: "layers.*.attention") or "source". The last group is
    `REST`, if there are more than were asked for.
    """

    by: str
    names: tuple[str, ...]
    ticks: Ints


def group_series(
    calls: TracedCalls, profiles: Sequence[MethodProfile], by: str, most: int
) -> GroupSeries:
    """Add up the leaves of profiles by group, for each call: the `most` groups with the largest
    share of a phase, and the rest."""
    index = np.full(int(calls.run.max()) + 1, -1, np.int64)  # of the call, by run
    index[calls.run] = np.arange(len(calls))
    table: dict[str, Ints] = {}
    for profile in profiles:
        known = profile.runs <= calls.run.max()
        place = index[profile.runs[known]]
        known[known] = place >= 0
        place = place[place >= 0]
        if not len(place):
            continue
        groups = rollup(profile, _block if by == "module" else by).groups
        of_groups = [(group.name, group.ticks) for group in groups]
        for name, ticks in (*of_groups, (UNACCOUNTED, profile.unaccounted)):
            table.setdefault(name, np.zeros(len(calls), np.int64))[place] += ticks[known]
    ticks = np.stack(list(table.values()))
    of_phase = np.stack(
        [ticks[:, calls.phase == phase].sum(axis=1) for phase in range(len(calls.phases))]
    )
    shares = of_phase / np.maximum(of_phase.sum(axis=1, keepdims=True), 1)
    order = np.argsort(-shares.max(axis=0, initial=0.0), kind="stable")
    names, shown = list(table), order[:most]
    found = GroupSeries(by, tuple(names[one] for one in shown.tolist()), ticks[shown])
    if len(order) <= most:
        return found
    rest = ticks[order[most:]].sum(axis=0)
    return GroupSeries(by, (*found.names, REST), np.concatenate([found.ticks, rest[None]]))


def _block(call: InstructionRows, leaf: Row) -> str:
    path = leaf.attribution.module
    return module_name(path and block_family(path))


def joined_calls(kinds: Sequence[Ints], most: int) -> tuple[Ints, Ints]:
    """Join neighbouring calls so that at most about `most` remain.

    kinds: [calls], columns that must be the same in calls that are joined. Returns an order of the
    calls, and the first of each group in it.
    """
    count = len(kinds[0])
    together = -(-count // most)
    if together <= 1:
        return np.arange(count), np.arange(count)
    order = np.lexsort([np.arange(count), *kinds[::-1]])
    sorted_kinds: npt.NDArray[Any] = np.stack(kinds)[:, order]
    begins = np.concatenate(([True], (np.diff(sorted_kinds, axis=1) != 0).any(axis=0)))
    first = np.flatnonzero(begins)
    within = np.arange(count) - np.repeat(first, np.diff(np.append(first, count)))
    return order, np.flatnonzero(within % together == 0)
