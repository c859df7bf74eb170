"""Events that are times, of backends with nothing else to tell."""

from __future__ import annotations

from dataclasses import replace

from etscope.delegates.logged import LoggedCall
from etscope.model.event_table import Clock, Meaning


def in_a_row(call: LoggedCall) -> list[Meaning]:
    """Times one after the other, none inside another."""
    # One event outside of the call shows that all are of another clock.
    clock = Clock.RUNTIME if call.is_inside.all() else Clock.DEVICE
    return [
        Meaning(name, identifier, clock=clock)
        for name, identifier in zip(call.names, call.identifiers, strict=True)
    ]


def nested(call: LoggedCall) -> list[Meaning]:
    """Times of which some may be a part of others."""
    found = zip(in_a_row(call), parents(call), strict=True)
    return [replace(meaning, parent=parent) for meaning, parent in found]


def parents(call: LoggedCall) -> list[int | None]:
    """Return for each event the innermost other one that holds it in all runs.

    Of two with the same ends the one that was logged last holds the other: events are logged when
    they end. An event without length at the end of another is beside it.
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
