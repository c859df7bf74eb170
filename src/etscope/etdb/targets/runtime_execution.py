"""A run on a runner that may go away: where it stands, and how it gets there again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from etscope.errors import DeviceLost, RuntimeFailure
from etscope.etdb.protocol.launch import Launcher
from etscope.etdb.protocol.messages import (
    Core,
    Difference,
    NumberTest,
    RunnerDied,
    RunnerInfo,
    Stopped,
    StopReason,
)
from etscope.etdb.protocol.runner import Runner
from etscope.etdb.targets.target import Stop
from etscope.formats.bytes.source import BytesLike

__all__ = ["Execution", "GrowingArray", "Ints", "Setup", "StopSequence"]


# The stops of a run on the runtime: those that have run, and those that are foreseen.


Ints = npt.NDArray[np.int64]


class GrowingArray:
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


class StopSequence(Sequence[Stop]):
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
        self._ran = GrowingArray()
        self._steps = (
            GrowingArray()
        )  # of each stop that has run: how many instructions had run then
        self._passes = GrowingArray()
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


@dataclass(frozen=True, slots=True)
class Setup:
    """What is run: the program's bytes, its method, of each instruction the tensors that it writes,
    by index of value, and the flat inputs. traced: a dump is kept from the start."""

    program: BytesLike
    method: str
    outputs: Sequence[Sequence[int]]
    inputs: Sequence[Any]
    threads: int = 0
    traced: bool = False


@dataclass(frozen=True, slots=True)
class _Patch:
    step: int
    value: int
    new: Any


class Execution:
    """One run, from its beginning to where it stands. When the runner went away, the next request
    connects again and repeats the run up to there, with what was set."""

    def __init__(
        self, launcher: Launcher, setup: Setup, line: StopSequence, tell: Callable[[str], None]
    ):
        """line: is told what ran. tell: takes sentences for a person."""
        self._launcher, self._setup, self.line, self._tell = launcher, setup, line, tell
        self._runner: Runner | None = None
        self._was_lost = False
        self._patches: list[_Patch] = []
        self.step = 0
        self.generation = 0  # changes with everything that may change a value
        self.total_ns = self.last_ns = 0
        self.replays: list[tuple[Difference, ...]] = []  # of each that differed, where it did
        self.death: RunnerDied | None = None
        self._end: int | None = None

    @property
    def place(self) -> str:
        return self._launcher.place

    @property
    def facts(self) -> RunnerInfo:
        """What the runner is."""
        return self.runner().facts

    @property
    def ended(self) -> bool:
        """Whether all has run."""
        return self._end == self.step

    # -- running

    def begin(self) -> None:
        """Begin anew, without what was set."""
        self._patches.clear()
        self.replays.clear()
        self.line.forget_after(0)
        self.step, self.death, self._end = 0, None, None
        if self._runner is not None:
            try:
                with self._losing():
                    self._stand(self._runner.begin(self._setup.traced))
            except DeviceLost:
                pass  # nobody had asked for it since
        self.runner()

    def go(
        self, stops: npt.NDArray[np.bool_], tests: Sequence[NumberTest] = (), most: int = 0
    ) -> Stopped:
        """Run on."""
        runner = self.runner()
        self.death = None
        with runner.noting(), self._losing():
            stopped = runner.go(stops, tests, most)
            self._ran(stopped)
        return stopped

    def go_to(self, step: int) -> Stopped | None:
        """Forth or back; None when the run stands there."""
        runner = self.runner()
        self.death = None
        if step == self.step:
            return None
        with runner.noting(), self._losing():
            stopped = runner.go_to(step)
            self._ran(stopped)
        return stopped

    def write(self, value: int, new: Any) -> None:
        """Set a value where the run stands; what came after is not known any more."""
        runner = self.runner()
        try:
            with self._losing():
                runner.write(value, new)
        except KeyboardInterrupt:
            self.close()  # who knows whether it was written: the run is repeated without it
            raise
        self._patches = [
            patch
            for patch in self._patches
            if patch.step < self.step or (patch.step == self.step and patch.value != value)
        ]
        self._patches.append(_Patch(self.step, value, new))
        self.line.forget_after(self.step)
        self._end = None
        self.generation += 1

    # -- the runner

    def runner(self) -> Runner:
        """A runner that stands where the run does."""
        if self._runner is None:
            self._runner = self._connected(self._setup.traced)
            try:
                with self._losing():
                    self._repeat(self._runner)
            except BaseException:
                self.close()
                raise
            if self._was_lost:
                self._tell(f"connected again ({self.place}){self._repeated()}")
            self._was_lost = False
        return self._runner

    @contextmanager
    def asking(self) -> Iterator[Runner]:
        """The runner, to look at values."""
        runner = self.runner()
        with self._losing():
            yield runner

    def core(self) -> Core:
        """The dump of the run up to where it stands, or up to where it died."""
        if self.death is None:
            with self.asking() as runner:
                core = runner.core()
            self._differ(core.differences)
            return core
        if self.death.core is None:
            self.death.core = self._core_of_death(self.death)
        return self.death.core

    def interrupt(self) -> None:
        """End a run that another thread waits for."""
        runner = self._runner
        if runner is not None:
            runner.interrupt()

    def close(self) -> None:
        """Hang up."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    # -- how

    def _connected(self, traced: bool) -> Runner:
        """A new connection on which the run has begun."""
        runner = Runner(self._launcher.connect(), self._launcher.token)
        try:
            setup = self._setup
            runner.load(setup.program, setup.method, setup.outputs, setup.threads)
            runner.set_inputs(setup.inputs)
            self._stand(runner.begin(traced), keep=True)
        except BaseException:
            runner.close()
            raise
        return runner

    def _repeat(self, runner: Runner) -> None:
        """From the beginning to where the run stands, with what was set."""
        at = 0
        for patch in self._patches:
            if patch.step > at:
                self._differ(runner.go_to(patch.step).differences)
            at = patch.step
            runner.write(patch.value, patch.new)
        if self.step > at:
            stopped = runner.go_to(self.step)
            self._differ(stopped.differences)
            if stopped.step != self.step:
                why = "was interrupted" if stopped.why == StopReason.INTERRUPTED else "ended"
                raise RuntimeFailure(
                    f"the repeated run {why} after {stopped.step} instructions, not {self.step}"
                    + (f": {stopped.error}" if stopped.error else ""),
                    hint="run begins it anew",
                )

    def _repeated(self) -> str:
        if not self.step:
            return ""
        return f"; the run was repeated up to instruction {int(self.line.ran[self.step - 1])}"

    def _core_of_death(self, death: RunnerDied) -> Core:
        runner = self._connected(traced=True)
        try:
            self._repeat(runner)
            stopped = runner.go_to(death.step + 1)
            core = runner.core()
        except RunnerDied as again:
            if again.core is None:
                raise RuntimeFailure(
                    f"the run died again ({again.reason}), and left no core",
                    hint="the process ended before it could write one",
                ) from again
            return again.core
        finally:
            runner.close()
        self._tell(
            f"the run was repeated for its core, and did not die again: the core ends after "
            f"{stopped.step} instructions"
        )
        return core

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """What ends the connection is remembered."""
        try:
            yield
        except (RunnerDied, DeviceLost) as error:
            if isinstance(error, RunnerDied):
                self.death = error
            self.generation += 1
            self.close()
            self._was_lost = True
            raise

    def _ran(self, stopped: Stopped) -> None:
        """Take note of where a run stands, and of what ran on the way."""
        before = self.step
        done = min(max(stopped.step - before, 0), len(stopped.ran))
        ran = stopped.ran[:done]
        known = self.line.ran[before:]
        common = min(len(known), len(ran))
        if common and not np.array_equal(known[:common], ran[:common]):
            self.line.forget_after(before)
            known, common, self._end = known[:0], 0, None
        self.line.add(ran[common:])
        self._stand(stopped)
        if stopped.why == StopReason.END:
            self._end = self.step
            self.line.forget_after(self.step)
            self.line.end()

    def _stand(self, stopped: Stopped, keep: bool = False) -> None:
        if not keep:
            self.step = stopped.step
            self.last_ns, self.total_ns = stopped.last_ns, stopped.total_ns
        self.generation += 1
        self._differ(stopped.differences)

    def _differ(self, found: Sequence[Difference]) -> None:
        """Take note of what a repeated run gave; what comes after the first may follow from it."""
        if found:
            self.replays.append(tuple(found))
