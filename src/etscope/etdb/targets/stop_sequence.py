"""The stops of a run on the runtime: those that have run, and those that are foreseen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from etscope.etdb.targets.target import Stop

Ints = npt.NDArray[np.int64]


class Grown:
    """Whole numbers that more come to, at the end."""

    def __init__(self) -> None:
        self._held = np.empty(64, dtype=np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def all(self) -> Ints:
        """A view."""
        return self._held[: self._count]

    def add(self, more: Ints) -> None:
        count = self._count + len(more)
        if count > len(self._held):
            held = np.empty(max(count, 2 * len(self._held)), dtype=np.int64)
            held[: self._count] = self.all
            self._held = held
        self._held[self._count : count] = more
        self._count = count

    def cut(self, count: int) -> None:
        """Keep the first ones."""
        self._count = min(self._count, count)


class Line(Sequence[Stop]):
    """The instructions that have run, and the stops among them and after them.

    What lies ahead is foreseen in the program's order, as if no jump were taken; when something
    else runs, that takes its place. Long loops cost arrays of numbers: a `Stop` is made when it is
    asked for.
    """

    def __init__(self, stops: Sequence[Stop], instructions: int) -> None:
        """stops: one for each instruction at which a run stops, in order. instructions: how many
        the method has."""
        self.of_instruction = {stop.instruction: stop for stop in stops}
        self.is_stop = np.zeros(instructions, dtype=np.bool_)
        self._ahead = np.array([stop.instruction for stop in stops], dtype=np.int64)
        self.is_stop[self._ahead] = True
        self._ran = Grown()
        self._steps = Grown()  # of each stop that has run: how many instructions had run then
        self._passes = Grown()
        self._counted = np.zeros(instructions, dtype=np.int64)
        self._ticks: dict[int, int] = {}
        self._ends = False

    # -- what ran

    @property
    def ran(self) -> Ints:
        """The instructions that ran, in order: a view."""
        return self._ran.all

    @property
    def known(self) -> int:
        """How many stops have run."""
        return len(self._steps)

    def add(self, ran: Ints) -> None:
        """Instructions that ran after all that are known."""
        which = np.flatnonzero(self.is_stop[ran])
        stops = ran[which]
        self._steps.add(which + len(self._ran) + 1)
        if (stops[1:] > stops[:-1]).all():  # straight on: none twice
            self._passes.add(self._counted[stops])
            self._counted[stops] += 1
        else:
            self._passes.add(self._counted[stops] + _ranks(stops))
            np.add.at(self._counted, stops, 1)
        self._ran.add(ran)

    def end(self) -> None:
        """Nothing comes after what ran."""
        self._ends = True

    def forget_after(self, step: int) -> None:
        """What ran after so many instructions is not known any more."""
        self._ends = self._ends and step >= len(self._ran)
        self._ran.cut(step)
        self._steps.cut(int(np.searchsorted(self._steps.all, step, "right")))
        self._passes.cut(len(self._steps))
        stops = self.ran[self._steps.all - 1]
        self._counted = np.bincount(stops, minlength=len(self.is_stop)).astype(np.int64)
        self._ticks = {at: ticks for at, ticks in self._ticks.items() if at < self.known}

    def timed(self, position: int, ns: int) -> None:
        """How long a stop's operator took; 0 is not known: it was gone back to."""
        if ns:
            self._ticks[position] = ns

    # -- stops

    def step_of(self, position: int) -> int:
        """How many instructions have run at a stop that has run."""
        return int(self._steps.all[position])

    def position_at(self, step: int) -> int | None:
        """The last stop among the first `step` instructions; None before the first."""
        count = int(np.searchsorted(self._steps.all, step, "right"))
        return count - 1 if count else None

    def passes_of(self, instruction: int, step: int) -> Ints:
        """After how many instructions each pass of an instruction was over, up to `step`."""
        return np.flatnonzero(self.ran[:step] == instruction) + 1

    def __len__(self) -> int:
        return self.known + len(self._ahead) - self._next

    @overload
    def __getitem__(self, index: int) -> Stop: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Stop]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        if position < self.known:
            instruction = int(self.ran[self._steps.all[position] - 1])
            loop_pass = int(self._passes.all[position])
        else:
            instruction = int(self._ahead[self._next + position - self.known])
            loop_pass = int(self._counted[instruction])
        return replace(
            self.of_instruction[instruction],
            position=position,
            loop_pass=loop_pass,
            ticks=self._ticks.get(position),
        )

    @property
    def _next(self) -> int:
        """The first of all stops of the program that is foreseen after what ran."""
        if self._ends:
            return len(self._ahead)
        if not len(self._ran):
            return 0
        return int(np.searchsorted(self._ahead, self.ran[-1], "right"))


def _ranks(numbers: Ints) -> Ints:
    """Of each number, how many equal ones stand before it."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    counts = np.diff(np.append(starts, len(ordered)))
    ranks = np.empty(len(numbers), dtype=np.int64)
    ranks[order] = np.arange(len(numbers)) - np.repeat(starts, counts)
    return ranks


__all__ = ["Grown", "Ints", "Line"]
