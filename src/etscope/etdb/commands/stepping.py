"""Where each of gdb's words for going on leads, on any target, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from etscope.etdb.targets.target import Stop, Target, Watch

# What ends a walk at a stop, in words; None goes on.
Reason = Callable[[Stop], str | None]

FORWARD, BACKWARD = 1, -1
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Interest:
    """What a walk must not pass over: the stops that are `wanted`, and where numbers are given that
    a watch is for. certain: whether a stop is wanted whatever its values are; decides: whether all
    are that are wanted. passed: told of the stops that a target passed over. probe: the reason to
    stop somewhere, of which nothing is counted."""

    wanted: Callable[[Stop], bool]
    watches: tuple[Watch, ...]
    certain: Callable[[Stop], bool]
    decides: bool
    passed: Callable[[Sequence[Stop]], None]
    probe: Reason


def walk(
    target: Target, start: int, direction: int, reason: Reason, interest: Interest
) -> tuple[int | None, str | None]:
    """Go from `start` (not itself looked at; -1 stands before the first stop) until there is a
    reason to stop, which is given with its position. (None, None): the run is over, or its start
    is reached.
    """
    if direction == FORWARD:
        return _forward(target, start, reason, interest)
    if target.keeps_values:
        places: Iterable[int] = range(start - 1, -1, -1)
    else:
        stood = min(start, len(target.stops) - 1)
        try:
            places = _last_place(target, start, interest)
        except KeyboardInterrupt:
            return _stay(target, stood)
    for position in places:
        target.reach(position)
        found = reason(target.stops[position])
        if target.interrupted:
            return target.position, INTERRUPTED
        if found is not None:
            return position, found
    return None, None


def _stay(target: Target, position: int) -> tuple[int | None, str]:
    """After Ctrl-C, stand where the run stood last, or wherever another Ctrl-C leaves it."""
    target.reach(position)
    return target.position, INTERRUPTED


def _forward(
    target: Target, start: int, reason: Reason, interest: Interest
) -> tuple[int | None, str | None]:
    position = start
    try:
        while (found := target.go(position, interest.wanted, interest.watches)) is not None:
            interest.passed(target.stops[position + 1 : found])
            position = found
            why = reason(target.stops[position])
            if why is not None or target.interrupted:
                return position, why if why is not None else INTERRUPTED
    except KeyboardInterrupt:
        if target.keeps_values or position < 0:
            raise
        # It ran on, or values were looked at.
        return _stay(target, position)
    interest.passed(target.stops[position + 1 :])
    return None, None


def _last_place(target: Target, start: int, interest: Interest) -> list[int]:
    """The last stop before `start` where there is a reason to stop, as a list of one or none. Of a
    run that keeps no values it is found by running again, once, from the last stop that is certain
    to have a reason, since each way back would be a run of its own. Raises `KeyboardInterrupt`."""
    certain = (s.position for s in reversed(target.stops[:start]) if interest.certain(s))
    position = next(certain, -1)
    last = [position] if position >= 0 else []
    if interest.decides:
        return last
    while (found := target.go(position, interest.wanted, interest.watches)) is not None:
        if target.interrupted:
            raise KeyboardInterrupt
        if found >= start:
            break
        if interest.probe(target.stops[found]) is not None:
            last = [found]
        position = found
    return last


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
