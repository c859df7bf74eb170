"""The events of a delegate call: the input of a decoder, and how they nest in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from etscope.model.event_table import Clock, Meaning

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """All events that a delegate logged in one instruction, in the order of the log.

    names: event names, or their numbers as text. identifiers: from the log. start, ticks: int64
    [events, runs], in ticks of the dump's clock. call_start, call_ticks: of the call itself, int64
    [runs]; None if the log does not have it. metadata: bytes that the delegate attached to each
    event in the first run; () for none.
    """

    names: Sequence[str]
    identifiers: Sequence[int | str]
    start: Ints
    ticks: Ints
    call_start: Ints | None = None
    call_ticks: Ints | None = None
    metadata: Sequence[bytes] = ()

    def metadata_of(self, number: int) -> bytes:
        """Return the bytes attached to an event; b"" for none."""
        return self.metadata[number] if self.metadata else b""

    @property
    def is_inside(self) -> npt.NDArray[np.bool_]:
        """Mask of the events inside the call in all runs: bool [events]."""
        if self.call_start is None or self.call_ticks is None:
            return np.ones(len(self.names), np.bool_)
        begins = self.call_start <= self.start
        ends = self.start + self.ticks <= self.call_start + self.call_ticks
        return np.asarray((begins & ends).all(axis=1), np.bool_)


def in_a_row(call: LoggedCall) -> list[Meaning]:
    """Return the events as times one after the other, without nesting."""
    # One event outside the call shows that all use another clock.
    clock = Clock.RUNTIME if call.is_inside.all() else Clock.DEVICE
    return [
        Meaning(name, identifier, clock=clock)
        for name, identifier in zip(call.names, call.identifiers, strict=True)
    ]


def nested(call: LoggedCall) -> list[Meaning]:
    """Return the events as times, each with the event around it as parent."""
    found = zip(in_a_row(call), parents(call), strict=True)
    return [replace(meaning, parent=parent) for meaning, parent in found]


def parents(call: LoggedCall) -> list[int | None]:
    """Return for each event the innermost event that holds it in all runs.

    If two have the same ends, the one logged later holds the other: a delegate logs an event when
    it ends. An event without length at the end of another one is not inside it.
    """
    if not call.start.size:
        return [None] * len(call.names)
    start, end = call.start, call.start + call.ticks
    first = zip(start[:, 0].tolist(), (-end[:, 0]).tolist(), range(len(start)), strict=True)
    order = [number for *_, number in sorted(first, key=lambda one: (one[0], one[1], -one[2]))]
    found: list[int | None] = [None] * len(start)
    around: list[int] = []
    for number in order:
        while around and not _holds(call, around[-1], number):
            around.pop()
        found[number] = around[-1] if around else None
        around.append(number)
    return found


def _holds(call: LoggedCall, outer: int, inner: int) -> bool:
    begins, ends = call.start[[outer, inner]], (call.start + call.ticks)[[outer, inner]]
    if not ((begins[0] <= begins[1]) & (ends[1] <= ends[0])).all():
        return False
    has_length = bool((call.ticks[inner] > 0).any())
    return has_length or bool(((begins[0] < begins[1]) & (ends[1] < ends[0])).any())
