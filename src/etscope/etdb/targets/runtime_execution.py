"""A run on a runner that may go away: its progress, and how it is restored."""

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
    Stopped,
    StopReason,
)
from etscope.etdb.protocol.runner import Runner
from etscope.etdb.targets.runtime_method import RuntimeMethod
from etscope.etdb.targets.target import Stop

Ints = npt.NDArray[np.int64]
_AGAIN = "the next command connects again, and repeats the run up to here"


class _GrowingArray:
    """An int64 array that is appended to."""

    def __init__(self) -> None:
        self._buffer = np.empty(64, dtype=np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def all(self) -> Ints:
        return self._buffer[: self._count]

    def append(self, numbers: Ints) -> None:
        count = self._count + len(numbers)
        if count > len(self._buffer):
            buffer = np.empty(max(count, 2 * len(self._buffer)), dtype=np.int64)
            buffer[: self._count] = self.all
            self._buffer = buffer
        self._buffer[self._count : count] = numbers
        self._count = count

    def truncate(self, count: int) -> None:
        """Keep the first `count` numbers."""
        self._count = min(self._count, count)


class StopSequence(Sequence[Stop]):
    """The instructions that have run, and the stops among and after them.

    Stops still to come are predicted in the program's order, as if no jump were taken; when other
    instructions run, these replace the prediction. Long loops are kept as arrays of numbers; a
    `Stop` is created when it is accessed.
    """

    def __init__(self, stops: Sequence[Stop], instructions: int) -> None:
        """stops: one for each instruction with a stop, in order. instructions: number of
        instructions of the method."""
        self.of_instruction = {stop.instruction: stop for stop in stops}
        self.is_stop = np.zeros(instructions, dtype=np.bool_)
        self._program = np.array([stop.instruction for stop in stops], dtype=np.int64)
        self.is_stop[self._program] = True
        self._ran = _GrowingArray()
        self._steps = _GrowingArray()  # for each stop that has run: instructions executed by then
        self._passes = _GrowingArray()
        self._counted = np.zeros(instructions, dtype=np.int64)
        self._ticks: dict[int, int] = {}
        self._ended = False

    # -- what ran

    @property
    def ran(self) -> Ints:
        """The instructions that ran, in order: a view."""
        return self._ran.all

    @property
    def known(self) -> int:
        """Number of stops that have run."""
        return len(self._steps)

    def add(self, ran: Ints) -> None:
        """Append instructions that ran."""
        which = np.flatnonzero(self.is_stop[ran])
        stops = ran[which]
        self._steps.append(which + len(self._ran) + 1)
        if (stops[1:] > stops[:-1]).all():  # no instruction twice
            self._passes.append(self._counted[stops])
            self._counted[stops] += 1
        else:
            # For each stop, count the equal instructions before it among the new ones.
            order = np.argsort(stops, kind="stable")
            ordered = stops[order]
            starts = np.flatnonzero(np.diff(ordered, prepend=-1))
            counts = np.diff(np.append(starts, len(ordered)))
            repeats = np.empty(len(stops), dtype=np.int64)
            repeats[order] = np.arange(len(stops)) - np.repeat(starts, counts)
            self._passes.append(self._counted[stops] + repeats)
            np.add.at(self._counted, stops, 1)
        self._ran.append(ran)

    def end(self) -> None:
        """Mark the run as over: no stops follow."""
        self._ended = True

    def forget_after(self, step: int) -> None:
        """Drop everything that ran after the first `step` instructions."""
        self._ended = self._ended and step >= len(self._ran)
        self._ran.truncate(step)
        self._steps.truncate(int(np.searchsorted(self._steps.all, step, "right")))
        self._passes.truncate(len(self._steps))
        stops = self.ran[self._steps.all - 1]
        self._counted = np.bincount(stops, minlength=len(self.is_stop)).astype(np.int64)
        self._ticks = {at: ticks for at, ticks in self._ticks.items() if at < self.known}

    def timed(self, position: int, ns: int) -> None:
        """Set the duration of a stop's operator. 0 means unknown: the run went back to it."""
        if ns:
            self._ticks[position] = ns

    # -- stops

    def step_of(self, position: int) -> int:
        """The number of instructions that were executed when a stop had run."""
        return int(self._steps.all[position])

    def position_at(self, step: int) -> int | None:
        """Position of the last stop among the first `step` instructions; None before the first."""
        count = int(np.searchsorted(self._steps.all, step, "right"))
        return count - 1 if count else None

    def passes_of(self, instruction: int, step: int) -> Ints:
        """Steps, up to `step`, at which each pass of an instruction was over."""
        return np.flatnonzero(self.ran[:step] == instruction) + 1

    def __len__(self) -> int:
        return self.known + len(self._program) - self._next

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
            instruction = int(self._program[self._next + position - self.known])
            loop_pass = int(self._counted[instruction])
        return replace(
            self.of_instruction[instruction],
            position=position,
            loop_pass=loop_pass,
            ticks=self._ticks.get(position),
        )

    @property
    def _next(self) -> int:
        """Index, among all stops of the program, of the first that is predicted to follow."""
        if self._ended:
            return len(self._program)
        if not len(self._ran):
            return 0
        return int(np.searchsorted(self._program, self.ran[-1], "right"))


@dataclass(frozen=True, slots=True)
class _Patch:
    step: int
    value: int
    new: Any


@dataclass(frozen=True, slots=True)
class _Call:
    """A finished run; the next one goes on from its state."""

    inputs: Sequence[Any]
    patches: Sequence[_Patch]
    steps: int


@dataclass(frozen=True, slots=True)
class SavedExecution:
    """A state of a run, stored as the way to reach it: the calls before it, and the values that
    were set.
    """

    before: Sequence[_Call]
    call: _Call  # up to the state
    ended: bool


class Execution:
    """One run, from its start to the current step, and the earlier runs that left its initial
    state.

    If the connection to the runner was lost, the next request connects again and repeats these runs
    up to the current step, including the values that were set.
    """

    def __init__(
        self,
        launcher: Launcher,
        prepared: RuntimeMethod,
        stops: StopSequence,
        notify: Callable[[str], None],
        *,
        threads: int,
        traced: bool,
    ) -> None:
        """stops: updated with the instructions that run. notify: takes messages for the user.
        threads: 0 for the runtime's default. traced: keep a dump from the start."""
        self._launcher, self._prepared, self.stops = launcher, prepared, stops
        self._notify, self._threads, self._traced = notify, threads, traced
        self._runner: Runner | None = None
        self._was_lost = False
        self._patches: list[_Patch] = []
        self._inputs = prepared.calls[0]
        self._before: list[_Call] = []
        self.step = 0
        self.generation = 0  # changes with everything that may change a value
        self.total_ns = 0
        self.replays: list[tuple[Difference, ...]] = []  # for each replay that differed
        self.death: RunnerDied | None = None
        self._end: int | None = None

    @property
    def ended(self) -> bool:
        return self._end == self.step

    # -- running

    def begin(self) -> None:
        """Begin anew, without the values that were set, and from the first state."""
        self._before.clear()
        self.replays.clear()
        self._begin(self._prepared.calls[0])

    def go_on(self, inputs: Sequence[Any]) -> None:
        """Begin a run from the state that this one left, which must be over."""
        self._before.append(self._call)
        self._begin(inputs)

    def _begin(self, inputs: Sequence[Any]) -> None:
        same, self._inputs = inputs is self._inputs, inputs
        self._patches.clear()
        self.stops.forget_after(0)
        self.step, self.death, self._end = 0, None, None
        if self._runner is not None:
            try:
                with self._noticing_loss():
                    if not same:
                        self._runner.set_inputs(inputs)
                    keep = bool(self._before)
                    self._update_state(self._runner.begin(self._traced, keep=keep))
            except DeviceLost:
                pass  # it went away between two requests; connect again
        self.runner()

    def save(self) -> SavedExecution:
        """The current state, for `restore`."""
        return SavedExecution(tuple(self._before), self._call, self.ended)

    @property
    def _call(self) -> _Call:
        """The current run up to the current step."""
        return _Call(self._inputs, tuple(self._patches), self.step)

    def restore(self, saved: SavedExecution) -> None:
        """Go to a saved state. If it is in this run, go there; otherwise repeat the calls before
        and the run up to it.
        """
        call = saved.call
        same = self._inputs is call.inputs and list(saved.before) == self._before
        if not (same and list(call.patches) == self._patches and call.steps <= len(self.stops.ran)):
            self._before, self._inputs, self._patches = list(saved.before), call.inputs, []
            self.stops.forget_after(0)
            self.step, self.death, self._end = 0, None, None
            self.generation += 1
            try:
                with self._noticing_loss():
                    if self._runner is not None:
                        self._begin_on(self._runner, self._traced)
            except BaseException:
                self.close()
                raise
            for patch in call.patches:
                self._come_to(patch.step)
                self.write(patch.value, patch.new)
        self._come_to(call.steps)
        if saved.ended and not self.ended:
            self.go(np.zeros_like(self.stops.is_stop))

    def go(
        self, stops: npt.NDArray[np.bool_], tests: Sequence[NumberTest] = (), most: int = 0
    ) -> Stopped:
        """Run on. stops, tests, most: as `Runner.go` takes them."""
        return self._moved(lambda runner: runner.go(stops, tests, most))

    def go_to(self, step: int) -> Stopped:
        """Run forward or back to a step."""
        return self._moved(lambda runner: runner.go_to(step))

    def _come_to(self, step: int) -> None:
        self.runner()  # connects, if the runner is gone
        self.death = None
        if step != self.step:
            self.go_to(step)

    def _moved(self, request: Callable[[Runner], Stopped]) -> Stopped:
        runner = self.runner()
        self.death = None
        with runner.deferring_interrupt(), self._noticing_loss():
            stopped = request(runner)
            self._update(stopped)
        return stopped

    def write(self, value: int, new: Any) -> None:
        """Set a value at the current step. Later steps become unknown."""
        runner = self.runner()
        try:
            with self._noticing_loss():
                runner.write(value, new)
        except KeyboardInterrupt:
            # The value may or may not have been written: repeat the run without it.
            self.close()
            raise
        self._patches = [
            patch
            for patch in self._patches
            if patch.step < self.step or (patch.step == self.step and patch.value != value)
        ]
        self._patches.append(_Patch(self.step, value, new))
        self.stops.forget_after(self.step)
        self._end = None
        self.generation += 1

    # -- the runner

    def runner(self) -> Runner:
        """The runner at the current step. Connects and repeats the run if there is none."""
        if self._runner is None:
            self._runner = self._connect(self._traced)
            try:
                with self._noticing_loss():
                    self._replay(self._runner)
            except BaseException:
                self.close()
                raise
            if self._was_lost:
                repeated = ""
                if self.step:
                    last = int(self.stops.ran[self.step - 1])
                    repeated = f"; the run was repeated up to instruction {last}"
                self._notify(f"connected again ({self._launcher.place}){repeated}")
            self._was_lost = False
        return self._runner

    @contextmanager
    def asking(self) -> Iterator[Runner]:
        """Use the runner to read values."""
        runner = self.runner()
        with self._noticing_loss():
            yield runner

    def core(self) -> Core:
        """Dump of the run up to the current step, or up to the instruction that killed it."""
        if self.death is None:
            with self.asking() as runner:
                core = runner.core()
            self._add_differences(core.differences)
            return core
        if self.death.core is None:
            self.death.core = self._core_of_death(self.death)
        return self.death.core

    def interrupt(self) -> None:
        runner = self._runner
        if runner is not None:
            runner.interrupt()

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _connect(self, traced: bool) -> Runner:
        """Open a connection and begin the run on it."""
        runner = Runner(self._launcher.connect(), self._launcher.token)
        try:
            method = self._prepared
            program, name = method.program.source.buffer, method.method.name
            runner.load(program, name, method.outputs, self._threads)
            self.generation += 1
            self._begin_on(runner, traced)
        except BaseException:
            runner.close()
            raise
        return runner

    def _begin_on(self, runner: Runner, traced: bool) -> None:
        """Repeat the calls before this one, and begin it."""
        for number, call in enumerate(self._before):
            runner.set_inputs(call.inputs)
            self._add_differences(runner.begin(keep=number > 0).differences)
            self._repeat(runner, call.patches, call.steps)
        runner.set_inputs(self._inputs)
        self._add_differences(runner.begin(traced, keep=bool(self._before)).differences)

    def _replay(self, runner: Runner) -> None:
        """Repeat the run from its beginning to the current step, with the values that were set."""
        self._repeat(runner, self._patches, self.step)

    def _repeat(self, runner: Runner, patches: Sequence[_Patch], step: int) -> None:
        at = 0
        for patch in patches:
            if patch.step > at:
                self._add_differences(runner.go_to(patch.step).differences)
            at = patch.step
            runner.write(patch.value, patch.new)
        if step > at:
            stopped = runner.go_to(step)
            self._add_differences(stopped.differences)
            if stopped.step != step:
                why = "was interrupted" if stopped.why == StopReason.INTERRUPTED else "ended"
                raise RuntimeFailure(
                    f"the repeated run {why} after {stopped.step} instructions, not {step}"
                    + (f": {stopped.error}" if stopped.error else ""),
                    hint="run begins it anew",
                )

    def _core_of_death(self, death: RunnerDied) -> Core:
        runner = self._connect(traced=True)
        try:
            self._replay(runner)
            stopped = runner.go_to(death.step + 1)
            core = runner.core()
        except RunnerDied as again:
            if again.core is None:
                raise RuntimeFailure(
                    f"the run died again ({again.reason}), and left no core",
                    hint="the process ended before it could write a core",
                ) from again
            return again.core
        finally:
            runner.close()
        self._notify(
            f"the run was repeated for its core, and did not die again: the core ends after "
            f"{stopped.step} instructions"
        )
        return core

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        """Record errors that end the connection."""
        try:
            yield
        except (RunnerDied, DeviceLost) as error:
            if isinstance(error, RunnerDied):
                self.death = error
            else:
                error.hint = "; ".join(filter(None, (error.hint, _AGAIN)))
            self.generation += 1
            self.close()
            self._was_lost = True
            raise

    def _update(self, stopped: Stopped) -> None:
        """Take over the instructions that ran, and the new state."""
        before = self.step
        done = min(max(stopped.step - before, 0), len(stopped.ran))
        ran = stopped.ran[:done]
        known = self.stops.ran[before:]
        common = min(len(known), len(ran))
        if common and not np.array_equal(known[:common], ran[:common]):
            self.stops.forget_after(before)
            known, common, self._end = known[:0], 0, None
        self.stops.add(ran[common:])
        self._update_state(stopped)
        if stopped.why == StopReason.END:
            self._end = self.step
            self.stops.forget_after(self.step)
            self.stops.end()

    def _update_state(self, stopped: Stopped) -> None:
        self.step = stopped.step
        self.total_ns = stopped.total_ns
        self.generation += 1
        self._add_differences(stopped.differences)

    def _add_differences(self, found: Sequence[Difference]) -> None:
        # Differences after the first may follow from it, so they are kept together.
        if found:
            self.replays.append(tuple(found))
