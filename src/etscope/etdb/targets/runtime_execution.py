"""A run on a runner that may go away: where it stands, and how it gets there again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import DeviceLost, RuntimeFailure
from etscope.etdb.protocol.facts import (
    Core,
    Difference,
    NumberTest,
    RunnerDied,
    RunnerFacts,
    Stopped,
    Why,
)
from etscope.etdb.protocol.launch import Launcher
from etscope.etdb.protocol.runner import Runner
from etscope.etdb.targets.stop_sequence import Line
from etscope.formats.bytes.source import BytesLike


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

    def __init__(self, launcher: Launcher, setup: Setup, line: Line, tell: Callable[[str], None]):
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
    def facts(self) -> RunnerFacts:
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
                why = "was interrupted" if stopped.why == Why.INTERRUPTED else "ended"
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
        if stopped.why == Why.END:
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


__all__ = ["Execution", "Setup"]
