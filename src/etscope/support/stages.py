"""Time and memory of the stages of a long work, while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter
from typing import Any

from etscope.support.resident import Resident

__all__ = ["Stage", "Stages", "opened", "stage", "stage_at_work"]

# Number of nodes of a graph, and bytes of its weights; None for an unknown one.
Sizes = tuple[int | None, int | None]


@dataclass(slots=True, eq=False)
class Stage:
    """All calls of one stage within the stage around it.

    seconds: with the stages inside, by name in `inside`. peak: resident bytes of the process at
    the highest point; raised: how many of these are above all stages before. nodes, weights: how
    many nodes and bytes of weights the calls added to the graph, less those removed; None if the
    stage has no graph.
    """

    name: str
    calls: int = 0
    seconds: float = 0.0
    peak: int = 0
    raised: int = 0
    nodes: int | None = None
    weights: int | None = None
    inside: dict[str, Stage] = field(default_factory=dict)

    def walk(self, outer: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Stage]]:
        """Yield the stage and all inside, each with its name after the names of those around."""
        path = (*outer, self.name)
        yield path, self
        for one in self.inside.values():
            yield from one.walk(path)

    def own(self, of: str) -> float:
        """Return a number without the stages inside."""
        inside = (getattr(one, of) or 0 for one in self.inside.values())
        return (getattr(self, of) or 0) - sum(inside)


@dataclass(slots=True, eq=False)
class _Call:
    stage: Stage
    begin: float
    peak: int
    highest: int  # of the stages before
    is_leaf: bool


class Stages:
    """The stages of a work, from when this is made until `end`.

    whole: the root. stopped: the place, as `at_work`, that an exception left; None without one.
    """

    def __init__(self, name: str) -> None:
        self.whole = Stage(name)
        self.stopped: tuple[tuple[str, ...], float] | None = None
        self._thread = get_ident()
        self.resident = Resident()
        self._calls: list[_Call] = []
        self._highest = 0
        self._enter(self.whole, is_leaf=False)

    @property
    def at_work(self) -> tuple[tuple[str, ...], float]:
        """The names of the stage at work, outermost first, and its seconds until now."""
        calls = list(self._calls)  # another thread may change it
        names = tuple(one.stage.name for one in calls)
        return names, perf_counter() - calls[-1].begin if calls else 0.0

    @staticmethod
    def described(place: tuple[tuple[str, ...], float]) -> str:
        """Return a place of `at_work` as text, without the root."""
        names, seconds = place
        return f"{' > '.join(names[1:]) or names[0]}, {seconds:,.1f} s"

    def end(self) -> None:
        """End the work."""
        self._leave()

    def run(
        self,
        name: str,
        function: Callable[[], Any],
        sizes: Callable[[Any], Sizes],
        *,
        is_leaf: bool = False,
    ) -> Any:
        """Call a function as a stage of the work. sizes: of the graph that the stage changes, from
        the function's result, or from None before it. is_leaf: what runs inside is part of it.
        """
        if get_ident() != self._thread or self._calls[-1].is_leaf:
            return function()
        before = sizes(None)
        with self.stage(name, is_leaf=is_leaf) as stage:
            result = function()
        for key, old, new in zip(("nodes", "weights"), before, sizes(result), strict=True):
            if old is not None and new is not None:
                setattr(stage, key, (getattr(stage, key) or 0) + new - old)
        return result

    @contextmanager
    def stage(self, name: str, *, is_leaf: bool = False) -> Iterator[Stage]:
        """Count what runs inside as a stage of the work."""
        stage = self._calls[-1].stage.inside.setdefault(name, Stage(name))
        self.stopped = None  # whatever was left before was caught
        self._enter(stage, is_leaf=is_leaf)
        try:
            yield stage
        except BaseException:
            self.stopped = self.stopped or self.at_work
            raise
        finally:
            self._leave()

    def _enter(self, stage: Stage, *, is_leaf: bool) -> None:
        self._note_peak()
        stage.calls += 1
        self._calls.append(_Call(stage, perf_counter(), 0, self._highest, is_leaf))

    def _leave(self) -> None:
        self._note_peak()
        call = self._calls.pop()
        stage = call.stage
        stage.seconds += perf_counter() - call.begin
        stage.peak = max(stage.peak, call.peak)
        stage.raised += self._highest - call.highest
        if self._calls:
            self._calls[-1].peak = max(self._calls[-1].peak, call.peak)

    def _note_peak(self) -> None:
        """Give the peak since the last note to the stage at work."""
        peak = self.resident.take()
        self._highest = max(self._highest, peak)
        if self._calls:
            self._calls[-1].peak = max(self._calls[-1].peak, peak)


_open: list[Stages] = []


@contextmanager
def opened(stages: Stages) -> Iterator[None]:
    """Let `stage` count for these stages."""
    _open.append(stages)
    try:
        yield
    finally:
        _open.remove(stages)
        stages.end()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count what runs inside as a stage of the work that is profiled, if any is."""
    if not _open:
        yield
        return
    with _open[-1].stage(name):
        yield


def stage_at_work() -> str:
    """Return the innermost stage at work, with its seconds, if a work is profiled; else ""."""
    if not _open:
        return ""
    names, seconds = _open[-1].at_work
    return f": {names[-1]}, {seconds:,.1f} s"
