"""The run on the runtime itself, as the debugger walks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.matching.matching import Matching, Pair
from etscope.errors import MissingDataError, RuntimeFailure, UsageError
from etscope.etdb.files import Files
from etscope.etdb.protocol.launch import Launcher
from etscope.etdb.protocol.messages import (
    Condition,
    Core,
    Difference,
    NumberTest,
    RunnerDied,
    RunnerInfo,
    Statistics,
    Stopped,
    StopReason,
    ValueInfo,
)
from etscope.etdb.targets.runtime_execution import Execution, Setup, StopSequence
from etscope.etdb.targets.runtime_method import prepare_method
from etscope.etdb.targets.runtime_values import RuntimeValues, ValueAtStep
from etscope.etdb.targets.target import RunInfo, Stop, Watch
from etscope.formats.program.bpte import BundledFile
from etscope.formats.program.pte_schema import ScalarValue, ValueKind

_MOST_MASKS = 64
_NEVER_ODD = frozenset({ValueKind.INT, ValueKind.BOOL, ValueKind.STRING})


@dataclass(frozen=True, slots=True)
class WatchHit:
    """The watch that ended `RuntimeTarget.go`: its index among those that were given. It is for
    `count` elements of the output `output`, which counts the stop's values."""

    watch: int
    output: int | None
    count: int


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """An operator that gave something else when it ran again. name: of the stop, or of the
    instruction where there is none. output: which of its values; None where another instruction
    ran. step: how many instructions had run then, it among them."""

    step: int
    instruction: int
    name: str
    output: int | None

    def __str__(self) -> str:
        where = f"{self.name} (instruction {self.instruction})"
        if self.output is None:
            return f"when the run was repeated, another operator ran at {where}"
        return f"when the run was repeated, {where} gave other numbers"


class RuntimeTarget:
    """A method on the ExecuTorch runtime. Its stops are the kernels and delegates of the program;
    those that lie ahead are foreseen in the program's order, and corrected when branches and loops
    have run.

    Connects, loads the method and begins a run when it is made. When the runner goes away, the next
    request connects again and repeats the run.

    Raises `MissingDataError` without a program, `MismatchError` for a record or server of
    another program and for inputs that do not fit, `RuntimeFailure` for an operator or backend that
    the runner lacks, and what connecting raises.
    """

    kind = "runtime"
    is_past = False
    is_reference = False
    keeps_values = False
    run = 0

    def __init__(
        self,
        files: Files,
        launcher: Launcher,
        *,
        method: str | None = None,
        inputs: Any = None,
        seed: int | None = None,
        threads: int = 0,
        traced: bool = False,
    ) -> None:
        """inputs: as `etscope.run` takes them: a file, a list, or names with values; None for those
        of the record or the bundled program, and without such generated ones. seed: of generated
        inputs, which are taken then whatever there is. threads: 0 as the runtime likes. traced:
        keep an ETDump from the start, so that a crash leaves a core by itself."""
        self._prepared = prepare_method(files, method, inputs, seed)
        self.method = self._prepared.method.name
        self.interrupted = False
        self.met: WatchHit | None = None
        self._news: list[str] = []
        self._masks: dict[Callable[[Stop], bool], npt.NDArray[np.bool_]] = {}
        self._told = 0
        self._first_told: int | None = None
        self._line = StopSequence(self._prepared.stops, len(self._prepared.records))
        setup = Setup(
            program=self._prepared.program.source.buffer,
            method=self.method,
            outputs=self._prepared.outputs,
            inputs=self._prepared.inputs,
            threads=threads,
            traced=traced,
        )
        self._execution = Execution(launcher, setup, self._line, self._news.append)
        self._values = RuntimeValues(self._execution, self._prepared)
        self._execution.begin()

    # -- the run

    @property
    def place(self) -> str:
        """Where it runs, for people: "here", "board:2345", "ssh:pi"."""
        return self._execution.place

    @property
    def facts(self) -> RunnerInfo:
        """What the runner says it is."""
        return self._execution.facts

    @property
    def inputs(self) -> Sequence[Any]:
        """What the run began with, flat."""
        return self._prepared.inputs

    @property
    def seed(self) -> int | None:
        """Of generated inputs; None of those that somebody gave."""
        return self._prepared.seed

    def given_inputs(self, given: Any, bundle: BundledFile | None) -> Any:
        """What the run began with, flat."""
        return list(self._prepared.inputs)

    @property
    def runs(self) -> Sequence[RunInfo]:
        """The one run."""
        total = self._execution.total_ns if self.ended else None
        return [RunInfo(0, self.method, len(self._line), total)]

    def choose(self, run: int) -> None:
        """There is one run."""
        if run != 0:
            raise UsageError(f"there is no run {run}", hint="a run on the runtime is run 0")

    @property
    def stops(self) -> Sequence[Stop]:
        """What has run, then what is foreseen. Follows the run."""
        return self._line

    @property
    def position(self) -> int | None:
        """The stop that the run stands at; None before the first."""
        return self._line.position_at(self._execution.step)

    @property
    def ended(self) -> bool:
        """Whether all instructions have run."""
        return self._execution.ended

    @property
    def last_ns(self) -> int:
        """How long the last instruction took."""
        return self._execution.last_ns

    @property
    def total_ns(self) -> int:
        """How long all instructions took since the beginning."""
        return self._execution.total_ns

    @property
    def differences(self) -> Sequence[ReplayDifference]:
        """What gave something else when it ran again, since the run began, each once."""
        found = (one for differing in self._execution.replays for one in differing)
        return list(dict.fromkeys(map(self._replayed, found)))

    def take_news(self) -> list[str]:
        """Sentences that a person must be told, each once: the first operator that gave something
        else, that the runner was lost and found, a crash that did not come again."""
        replays = self._execution.replays
        for differing in replays[self._told :]:
            first = self._replayed(differing[0])
            # What differs after what is known to differ may follow from it.
            if self._first_told is None or first.step < self._first_told:
                self._first_told = first.step
                more = f"; {len(differing) - 1} values after it, too" if len(differing) > 1 else ""
                self._news.append(f"{first}{more}")
        self._told = len(replays)
        news, self._news[:] = list(self._news), []
        return news

    # -- going

    def restart(self) -> None:
        """Begin anew, without what was set; connects again if the runner is gone."""
        self.interrupted, self.met = False, None
        self._told, self._first_told = 0, None
        self._execution.begin()

    def reach(self, position: int) -> None:
        """Run up to a stop, or back to it.

        Raises `UsageError` when the run ends before it, and as `go` does."""
        self.interrupted, self.met = False, None
        nowhere = np.zeros_like(self._line.is_stop)
        while position >= self._line.known:
            self._stand_at_end()
            if self._execution.ended:
                raise UsageError("the run ends before that")
            missing = position + 1 - self._line.known
            # As many instructions cannot go too far; the last stop may have others before it.
            stopped = (
                self._run(self._line.is_stop) if missing == 1 else self._run(nowhere, most=missing)
            )
            if stopped.why == StopReason.INTERRUPTED:
                self._come_to_a_stop()
                return
        self._go_to(self._line.step_of(position))

    def go(
        self, start: int, wanted: Callable[[Stop], bool], watches: Sequence[Watch] = ()
    ) -> int | None:
        """Run on from a stop (-1: from the beginning) without looking at it, to the first that is
        `wanted` or at which a watch holds; its position, None when the run ends. `met` says which
        watch it was. After Ctrl-C it is the stop that the run came to.

        wanted, and the watches' `at`: are asked once for each operator of the program.

        Raises `RuntimeFailure` when an operator fails, `RunnerDied` when the program kills its
        process, `DeviceLost` when the runner goes away."""
        self.interrupted, self.met = False, None
        if start < 0:
            self._go_to(0)
        else:
            self.reach(start)
            if self.interrupted:
                return self.position
        tests = [NumberTest(w.condition, self._mask(w.at), w.bound) for w in watches]
        stops = self._mask(wanted).copy()
        for test in tests:
            # The runner tests tensors; a number that an operator gives is looked at in etdb.
            stops |= test.at & self._untested(test.condition)
        stopped = self._run(stops, tests)
        if stopped.why == StopReason.INTERRUPTED:
            self._come_to_a_stop()
        elif stopped.why == StopReason.TEST and stopped.test is not None:
            indices = self._prepared.nodes.outputs_of(stopped.instruction or 0)
            output = indices.index(stopped.value) if stopped.value in indices else None
            self.met = WatchHit(stopped.test, output, stopped.count)
        return None if self._execution.ended and stopped.why == StopReason.END else self.position

    # -- values

    def device_values(self, position: int) -> list[Any]:
        """What the stop gave, as far as it is still there: arrays, numbers, and `RemoteTensor`s of
        more than 64 KiB; None for what has been overwritten. Raises `MissingDataError` where all
        has been, and for what has not run."""
        return self._values.fetch_left(self._values.of_stop(position))

    def value_of(self, node: str, position: int) -> Any:
        """The value of a node at a stop: of its last pass before it. Also of the graph's inputs,
        state and weights. Raises `MissingDataError` for what is gone; of several values, those that
        are gone are None as long as there are others."""
        return self._joined(self._values.of_node(node, self._until(position)))

    def value_in_pass(self, node: str, loop_pass: int) -> Any:
        """The value that a node had in a pass of its loop, if it is still there."""
        step = self._values.in_pass(node, loop_pass)
        return self._joined(self._values.of_node(node, step))

    def value_at(self, index: int) -> Any:
        """The value of that index in the method, as it is now."""
        return self._joined([self._values.of_index(index)])

    def matched(self) -> Matching:
        """Which values are values of which nodes. Raises `MissingDataError` without a record."""
        return self._prepared.nodes.matching

    def pairs_at(self, position: int) -> Mapping[int, Pair]:
        """Of which nodes the values of a stop are, by their place among `device_values`."""
        number = self._line[position].instruction or 0
        try:
            pairs = self.matched().by_instruction.get(number, ())
        except MissingDataError:
            return {}
        return {pair.output: pair for pair in pairs}

    def nodes_at(self, position: int) -> Sequence[str]:
        """The nodes that a stop gives values of."""
        return list(dict.fromkeys(pair.node for pair in self.pairs_at(position).values()))

    def indices_at(self, position: int) -> Sequence[int]:
        """The indices in the method of a stop's values."""
        return self._prepared.nodes.outputs_of(self._line[position].instruction or 0)

    def indices_of(self, where: int | str) -> tuple[int, ...]:
        """The indices in the method of a stop's values (by its position), or of a node's."""
        return tuple(one.index for one in self._held(where))

    def spec(self, where: int | str) -> list[ValueInfo]:
        """What kind of values a stop gave (by its position), or a node has, without their data."""
        return self._values.describe(self._held(where))

    def statistics_of(self, where: int | str) -> list[Statistics | None]:
        """The numbers of a stop's values, or of a node's, counted where it runs; None for what is
        no tensor."""
        return self._values.statistics(self._held(where))

    def patch(self, node: str | int, position: int, value: Any) -> None:
        """Put another value in the place of a node's, of that of an index, or of the stop's (node
        ""): the run goes back to where it was computed, and from there to the stop again. Tensors
        take what numpy broadcasts, cast to their type.

        Raises `UsageError` for what does not fit, and for weights; then nothing was set."""
        if isinstance(node, int):
            held = [self._values.of_index(node)]
        elif node:
            held = self._values.of_node(node, self._until(position))
        else:
            held = self._values.of_stop(position)
        stood = self._execution.step
        self._go_to(max(one.since for one in held))
        try:
            self._values.set(held, value)
        except (UsageError, MissingDataError):
            self._go_to(stood)
            raise
        self.reach(position)

    # -- the rest

    def about(self) -> list[str]:
        """Where it runs, since when, and on which inputs."""
        facts = self.facts
        lines = [f"runner: ExecuTorch {facts.executorch}, {facts.architecture}, {self.place}"]
        if facts.program is not None:
            lines.append(f"its program: {facts.program.name}, {facts.program.size:,} bytes")
        for number, value in enumerate(self.inputs):
            shape = f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else str(value)
            lines.append(f"input {number}: {shape}")
        if self.seed is not None:
            lines.append(f"inputs are generated: seed {self.seed}")
        return [*lines, *map(str, self.differences)]

    def interrupt(self) -> None:
        """End a run that another thread waits for, as Ctrl-C does."""
        self._execution.interrupt()

    def core(self) -> Core:
        """The ETDump and debug buffer of the run up to here; after a crash, up to it."""
        return self._execution.core()

    def close(self) -> None:
        """Hang up."""
        self._execution.close()

    # -- how

    def _run(
        self,
        stops: npt.NDArray[np.bool_],
        tests: Sequence[NumberTest] = (),
        most: int = 0,
    ) -> Stopped:
        stopped = self._checked(lambda: self._execution.go(stops, tests, most))
        self._time(stopped)
        return stopped

    def _go_to(self, step: int) -> None:
        if step != self._execution.step:
            stopped = self._checked(lambda: self._execution.go_to(step))
            self._time(stopped)
            if stopped.why == StopReason.INTERRUPTED:
                self._come_to_a_stop()

    def _time(self, stopped: Stopped) -> None:
        position = self.position
        if position is not None and self._line.step_of(position) == self._execution.step:
            self._line.timed(position, stopped.last_ns)

    def _stand_at_end(self) -> None:
        """At the last instruction that is known to have run."""
        self._go_to(len(self._line.ran))

    def _come_to_a_stop(self) -> None:
        """After Ctrl-C the run stands between any two instructions: on to the next operator."""
        self.interrupted = True
        position = self.position
        if position is None or self._line.step_of(position) != self._execution.step:
            self._run(self._line.is_stop)

    def _checked(self, run: Callable[[], Stopped | None]) -> Stopped:
        try:
            stopped = run()
        except RunnerDied as error:
            where = "" if error.instruction is None else f" at {self._name(error.instruction)}"
            raise RunnerDied(
                f"the program killed its process{where}: {error.reason}",
                reason=error.reason,
                step=error.step,
                instruction=error.instruction,
                core=error.core,
                hint="the run is repeated up to the stop before it when you go on; "
                "generate-core-file keeps what led there",
            ) from error
        if stopped is None:
            raise RuntimeFailure("the run did not go on")
        if stopped.why == StopReason.FAILED:
            raise RuntimeFailure(
                f"{self._name(stopped.instruction)} failed: {stopped.error}",
                hint="reverse-step goes back to what ran before it",
            )
        return stopped

    def _replayed(self, one: Difference) -> ReplayDifference:
        stop = self._line.of_instruction.get(one.instruction)
        label = self._prepared.records[one.instruction].label
        output = None
        if one.value is not None:
            indices = self._prepared.nodes.outputs_of(one.instruction)
            output = indices.index(one.value) if one.value in indices else 0
        name = label if stop is None else stop.path or stop.name
        return ReplayDifference(one.step, one.instruction, name, output)

    def _name(self, instruction: int | None) -> str:
        if instruction is None:
            return "an instruction"
        stop = self._line.of_instruction.get(instruction)
        label = self._prepared.records[instruction].label
        name = label if stop is None else stop.path or stop.name
        return f"{name} (instruction {instruction})"

    def _mask(self, wanted: Callable[[Stop], bool]) -> npt.NDArray[np.bool_]:
        # A walk asks by the same functions again and again.
        if wanted not in self._masks:
            if len(self._masks) >= _MOST_MASKS:
                self._masks.clear()
            mask = np.zeros_like(self._line.is_stop)
            mask[[stop.instruction or 0 for stop in self._prepared.stops if wanted(stop)]] = True
            self._masks[wanted] = mask
        return self._masks[wanted]

    def _untested(self, condition: Condition) -> npt.NDArray[np.bool_]:
        """The operators that give numbers which a test could be for, but is not of."""
        never = _NEVER_ODD if condition in (Condition.NAN, Condition.INF) else frozenset()
        values, mask = self._prepared.method.values, np.zeros_like(self._line.is_stop)
        for stop in self._prepared.stops:
            number = stop.instruction or 0
            given = (values[index] for index in self._prepared.nodes.outputs_of(number))
            mask[number] = any(
                isinstance(value, ScalarValue) and value.kind not in never for value in given
            )
        return mask

    def _until(self, position: int) -> int:
        """The step that a stop is at, if it has run; else where the run stands."""
        step = self._execution.step
        known = 0 <= position < self._line.known
        return min(self._line.step_of(position), step) if known else step

    def _held(self, where: int | str) -> list[ValueAtStep]:
        if isinstance(where, int):
            return self._values.of_stop(where)
        return self._values.of_node(where, self._execution.step)

    def _joined(self, held: list[ValueAtStep]) -> Any:
        values = self._values.fetch_left(held)
        if held[0].element is None:
            return values[0]
        found = {one.element: value for one, value in zip(held, values, strict=True)}
        return [found.get(at) for at in range(1 + max(one.element or 0 for one in held))]


__all__ = ["ReplayDifference", "RuntimeTarget", "WatchHit"]
