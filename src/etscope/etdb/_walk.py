"""Where each of gdb's words for going on leads, on any target, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from etscope.etdb._target import Stop, Target

# What ends a walk at a stop, in words; None goes on.
Reason = Callable[[Stop], str | None]

FORWARD, BACKWARD = 1, -1


def walk(
    target: Target, start: int, direction: int, reason: Reason
) -> tuple[int | None, str | None]:
    """Go from `start` (not itself looked at; -1 stands before the first stop) until there is a
    reason to stop, which is given with its position. (None, None): the run is over, or its start
    is reached.
    """
    for position in _places(target, start, direction):
        found = reason(target.stops[position])
        if found is not None:
            return position, found
    return None, None


def _places(target: Target, start: int, direction: int) -> Iterator[int]:
    position = start + direction
    while 0 <= position < len(target.stops):
        target.reach(position)
        yield position
        position += direction


def same_level(here: Stop | None) -> Reason:
    """For `next`: any stop but those further inside, in a module or a delegate's call."""
    level = _levels(here.module) if here is not None else ()
    depth = here.depth if here is not None else 0

    def reason(stop: Stop) -> str | None:
        inside = stop.depth > depth or (
            len(_levels(stop.module)) > len(level) and _levels(stop.module)[: len(level)] == level
        )
        # From the start every module is further inside: `next` goes over the outermost ones.
        if here is None:
            inside = stop.depth > 0
        return None if inside else ""

    return reason


def outside_of(module: str | None, depth: int) -> Reason:
    """For `finish`: the first stop that is no longer in a module, or in a delegate's call."""
    level = _levels(module)

    def reason(stop: Stop) -> str | None:
        if depth and stop.depth >= depth:
            return None
        # Of what no module is known nothing tells that it is outside.
        if not depth and (stop.module is None or _levels(stop.module)[: len(level)] == level):
            return None
        return ""

    return reason


def _levels(module: str | None) -> tuple[str, ...]:
    return tuple(module.split(".")) if module else ()
