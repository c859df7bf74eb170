"""A run on the ExecuTorch runtime as a target of the debugger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.matching.matching import Pair
from etscope.analysis.program.source_location import short_lines
from etscope.errors import MissingDataError, RuntimeFailure, UsageError
from etscope.etdb.protocol.launch import Launcher
from etscope.etdb.protocol.messages import (
    Condition,
    Core,
    Difference,
    NumberTest,
    RunnerDied,
    RunnerInfo,
    Stopped,
    StopReason,
)
from etscope.etdb.targets.runtime_execution import (
    Execution,
    SavedExecution,
    StopSequence,
)
from etscope.etdb.targets.runtime_method import RuntimeMethod
from etscope.etdb.targets.runtime_values import RuntimeValues, ValueAtStep
from etscope.etdb.targets.target import (
    FAILED_HINT,
    CallsTarget,
    Failure,
    RunInfo,
    Stop,
    Watch,
)
from etscope.formats.program.bpte import BundledFile
from etscope.formats.program.pte_schema import ScalarValue, ValueKind

_MOST_MASKS = 64  # each command asks with functions of its own: do not keep all
_ALWAYS_FINITE = frozenset({ValueKind.INT, ValueKind.BOOL, ValueKind.STRING})


class RuntimeTarget(CallsTarget):
    """A method on the ExecuTorch runtime. Its stops are the kernels and delegates of the program.
    Stops still to come are predicted in the program's order, and corrected when branches and loops
    have run.

    The constructor connects, loads the method and begins a run. When the runner is lost, the next
    request connects again and repeats the run.

    Raises `MismatchError` for a server of another program, `RuntimeFailure` for an operator or
    backend that the runner lacks, and the errors of connecting.
    """

    kind = "runtime"
    keeps_values = False

    def __init__(
        self,
        prepared: RuntimeMethod,
        launcher: Launcher,
        *,
        threads: int = 0,
        traced: bool = False,
    ) -> None:
        """threads: 0 for the runtime's default. traced: keep an ETDump from the start, so that a
        crash leaves a core without a replay."""
        super().__init__(prepared.method.name, prepared.calls)
        self._prepared, self.place, self.seed = prepared, launcher.place, prepared.seed
        self._news: list[str] = []
        self._masks: dict[Callable[[Stop], bool], npt.NDArray[np.bool_]] = {}
        self._reported = 0  # number of replays that `take_news` has reported
        self._first_difference: int | None = None
        self._stops = StopSequence(self._prepared.stops, len(self._prepared.records))
        self._execution = Execution(
            launcher, prepared, self._stops, self._news.append, threads=threads, traced=traced
        )
        self._values = RuntimeValues(self._execution, self._prepared)
        self._execution.begin()

    # -- the run

    @property
    def runner_info(self) -> RunnerInfo:
        """Version and architecture of the runner."""
        return self._execution.runner().info

    @property
    def inputs(self) -> Sequence[Any]:
        """Inputs of the run, flat."""
        return list(self._calls[self.run])

    def given_inputs(self, given: Sequence[Any], bundle: BundledFile | None) -> Any:
        return self.inputs

    def earlier_inputs(self, given: Sequence[Any], bundle: BundledFile | None) -> Sequence[Any]:
        return [list(one) for one in self._calls[: self.run]]

    @property
    def runs(self) -> Sequence[RunInfo]:
        total = self._execution.total_ns if self.ended else None
        count = len(self._stops)
        failed = None if self.failure is None else self.failure.summary
        run = RunInfo(self.run, self.method, count, total, failed=failed)
        return [
            run if number == self.run else RunInfo(number, self.method, count)
            for number in range(len(self._calls))
        ]

    def go_on(self) -> None:
        self._run, self.failure = self._run + 1, None
        self._execution.go_on(self._calls[self.run])

    def add_call(self, inputs: Any = None) -> None:
        """As `Target.add_call`. Raises `MismatchError` for inputs that do not fit."""
        more = self._calls[-1] if inputs is None else self._prepared.fitted(inputs)
        self._calls.append(more)

    @property
    def stops(self) -> Sequence[Stop]:
        """Stops that have run, then the predicted ones. Follows the run."""
        return self._stops

    @property
    def position(self) -> int | None:
        return self._stops.position_at(self._execution.step)

    @property
    def ended(self) -> bool:
        return self._execution.ended

    @property
    def differences(self) -> Sequence[str]:
        found = (one for differing in self._execution.replays for one in differing)
        return list(dict.fromkeys(map(self._difference_text, found)))

    def take_news(self) -> list[str]:
        """Messages for the user, each returned once: the first operator that gave a different
        result, a connection that was restored, a crash that did not recur."""
        replays = self._execution.replays
        for differing in replays[self._reported :]:
            first = differing[0]
            # Differences after a known one may follow from it.
            if self._first_difference is None or first.step < self._first_difference:
                self._first_difference = first.step
                more = f"; {len(differing) - 1} values after it, too" if len(differing) > 1 else ""
                self._news.append(f"{self._difference_text(first)}{more}")
        self._reported = len(replays)
        news, self._news[:] = list(self._news), []
        return news

    def about(self) -> list[str]:
        """Runner, program and inputs of the run, and its differences."""
        info = self.runner_info
        lines = [f"runner: ExecuTorch {info.executorch}, {info.architecture}, {self.place}"]
        if info.program is not None:
            lines.append(f"its program: {info.program.name}, {info.program.size:,} bytes")
        for number, value in enumerate(self.inputs):
            shape = f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else str(value)
            lines.append(f"input {number}: {shape}")
        if self.seed is not None:
            lines.append(f"inputs are generated: seed {self.seed}")
        return [*lines, *self.differences]

    def interrupt(self) -> None:
        self._execution.interrupt()

    def core(self) -> Core:
        """ETDump and debug buffer of the run up to the current step; after a crash, up to it."""
        return self._execution.core()

    def close(self) -> None:
        self._execution.close()

    # -- moving

    def save(self) -> tuple[int, SavedExecution]:
        return self.run, self._execution.save()

    def restore(self, saved: Any) -> None:
        self.interrupted, self.failure = False, None
        self._run, execution = saved
        self._execution.restore(execution)

    def restart(self) -> None:
        """Begin anew, without the values that were set; connects again if the runner is gone. The
        calls before the selected one run first. Raises `KeyboardInterrupt` if they are interrupted,
        with the call that was reached."""
        self.interrupted, self.failure = False, None
        self._reported, self._first_difference = 0, None
        self._execution.begin()
        wanted, self._run = self.run, 0
        while self.run < wanted:
            if self.go(-1, lambda stop: False) is not None:
                raise KeyboardInterrupt
            self.go_on()

    def reach(self, position: int) -> None:
        """Run forward or back to a stop.

        Raises `UsageError` when the run ends before it, and the errors of `go`."""
        self.interrupted = False
        if self.failure is not None and position >= self._stops.known:
            raise RuntimeFailure(self.failure.text, hint=FAILED_HINT)
        nowhere = np.zeros_like(self._stops.is_stop)
        while position >= self._stops.known:
            self._go_to(len(self._stops.ran))  # the last instruction that is known to have run
            if self._execution.ended:
                raise UsageError("the run ends before that")
            missing = position + 1 - self._stops.known
            # So many instructions never go too far; the last stop may have others before it.
            if missing == 1:
                stopped = self._execute(self._stops.is_stop)
            else:
                stopped = self._execute(nowhere, most=missing)
            if stopped.why == StopReason.INTERRUPTED:
                self._go_to_next_stop()
                return
        self._go_to(self._stops.step_of(position))

    def go(
        self, start: int, wanted: Callable[[Stop], bool], watches: Sequence[Watch] = ()
    ) -> int | None:
        """Run from a stop (-1: from the beginning) to the next that is `wanted` or where a watch
        holds. Returns its position, None when the run ends. After Ctrl-C it is the stop at which
        the run was interrupted.

        `wanted` and the watches' `at` are evaluated once for each operator of the program.

        Raises `RuntimeFailure` when an operator fails, `RunnerDied` when the program kills its
        process, `DeviceLost` when the runner goes away."""
        self.interrupted = False
        if start < 0:
            self._go_to(0)
        else:
            self.reach(start)
            if self.interrupted:
                return self.position
        tests = [NumberTest(w.condition, self._mask(w.at), w.bound) for w in watches]
        stops = self._mask(wanted).copy()
        for test in tests:
            # The runner tests tensors only: stop where an operator gives a number.
            stops |= test.at & self._scalar_outputs(test.condition)
        stopped = self._execute(stops, tests)
        if stopped.why == StopReason.INTERRUPTED:
            self._go_to_next_stop()
        return None if self._execution.ended and stopped.why == StopReason.END else self.position

    def _execute(
        self, stops: npt.NDArray[np.bool_], tests: Sequence[NumberTest] = (), most: int = 0
    ) -> Stopped:
        return self._checked(lambda: self._execution.go(stops, tests, most))

    def _go_to(self, step: int) -> None:
        # The instruction that failed may have left anything behind.
        if step != self._execution.step or self.failure is not None:
            stopped = self._checked(lambda: self._execution.go_to(step))
            if stopped.why == StopReason.INTERRUPTED:
                self._go_to_next_stop()

    def _go_to_next_stop(self) -> None:
        """After Ctrl-C the run stands between any two instructions: go on to the next operator."""
        self.interrupted = True
        position = self.position
        if position is None or self._stops.step_of(position) != self._execution.step:
            self._execute(self._stops.is_stop)

    def _checked(self, request: Callable[[], Stopped]) -> Stopped:
        """Run a request. Its errors name the operator; the time of the stop is kept."""
        try:
            stopped = request()
        except RunnerDied as error:
            where = "" if error.instruction is None else f" at {self._label(error.instruction)}"
            error.message = f"the program killed its process{where}: {error.reason}"
            error.hint = (
                "the run is repeated up to the stop before it when you go on; "
                "generate-core-file keeps what led there"
            )
            raise
        if stopped.why == StopReason.FAILED:
            self.failure = self._failure(stopped.instruction, stopped.error)
            raise RuntimeFailure(self.failure.text, hint=FAILED_HINT)
        self.failure = None
        position = self.position
        if position is not None and self._stops.step_of(position) == self._execution.step:
            self._stops.timed(position, stopped.last_ns)
        return stopped

    def _failure(self, instruction: int | None, error: str) -> Failure:
        failed = self._stops.of_instruction.get(instruction)
        at = f" at {short_lines(failed.lines[:1])}" if failed is not None and failed.lines else ""
        if failed is not None and instruction is not None:
            passes = self._stops.passes_of(instruction, self._execution.step)
            failed = replace(failed, position=self._stops.known, loop_pass=len(passes))
        return Failure(failed, f"{self._label(instruction)} failed{at}: {error}")

    def _difference_text(self, one: Difference) -> str:
        where = self._label(one.instruction)
        if one.value is None:
            return f"when the run was repeated, another operator ran at {where}"
        return f"when the run was repeated, {where} gave other numbers"

    def _label(self, instruction: int | None) -> str:
        if instruction is None:
            return "an instruction"
        return f"{self._name(instruction)} (instruction {instruction})"

    def _name(self, instruction: int) -> str:
        stop = self._stops.of_instruction.get(instruction)
        label = self._prepared.records[instruction].label
        return label if stop is None else stop.path or stop.name

    def _mask(self, wanted: Callable[[Stop], bool]) -> npt.NDArray[np.bool_]:
        """bool [instructions]: evaluate a condition on stops, cached by function."""
        if wanted not in self._masks:
            if len(self._masks) >= _MOST_MASKS:
                self._masks.clear()
            mask = np.zeros_like(self._stops.is_stop)
            mask[[stop.instruction or 0 for stop in self._prepared.stops if wanted(stop)]] = True
            self._masks[wanted] = mask
        return self._masks[wanted]

    def _scalar_outputs(self, condition: Condition) -> npt.NDArray[np.bool_]:
        """bool [instructions]: operators that give a scalar which may meet a condition."""
        never = _ALWAYS_FINITE if condition in (Condition.NAN, Condition.INF) else frozenset()
        values, mask = self._prepared.method.values, np.zeros_like(self._stops.is_stop)
        for stop in self._prepared.stops:
            number = stop.instruction or 0
            outputs = (values[index] for index in self._prepared.nodes.outputs_of(number))
            mask[number] = any(
                isinstance(value, ScalarValue) and value.kind not in never for value in outputs
            )
        return mask

    # -- values

    def device_values(self, position: int) -> list[Any]:
        """Return the outputs of a stop: arrays, numbers, and `RemoteTensor`s for tensors larger
        than 64 KiB; None for overwritten ones. Raises `MissingDataError` if all are overwritten, or
        if the stop has not run.
        """
        return self._values.fetch(self._values.of_stop(position))

    def value_of(self, node: str, position: int) -> Any:
        """Return the value of a node at a stop, in its last pass; also of the graph's inputs, state
        and weights. In a tuple, overwritten values are None. Raises `MissingDataError` if all are
        overwritten.
        """
        return self._joined(self._values.of_node(node, self._step_at(position)))

    def first_state(self) -> Mapping[str, Any]:
        """State of the graph at the beginning of the run: arrays by the name of the buffer. Without
        state that a delegate keeps to itself."""
        before, failure = self._execution.step, self.failure
        self._go_to(0)
        try:
            found = self._prepared.nodes.state.items()
            return {
                name: np.array(self._joined([ValueAtStep(index, 0, name)])) for name, index in found
            }
        finally:
            self._go_to(before)
            self.failure = failure

    def is_written_back(self, node: str, position: int) -> bool:
        return self._values.is_written_back(node, self._step_at(position))

    def writers_of(self, node: str) -> Sequence[int]:
        """Return the instructions that write the value of a node, an input or a buffer."""
        nodes = self._prepared.nodes
        index = nodes.placeholders.get(node)
        return () if index is None else nodes.writers_of(index)

    def value_at(self, index: int) -> Any:
        return self._joined([self._values.of_index(index)])

    def pairs_at(self, position: int) -> Mapping[int, Pair]:
        number = self._stops[position].instruction or 0
        try:
            pairs = self._prepared.nodes.matching.by_instruction.get(number, ())
        except MissingDataError:
            return {}
        return {pair.output: pair for pair in pairs}

    def nodes_at(self, position: int) -> Sequence[str]:
        return list(dict.fromkeys(pair.node for pair in self.pairs_at(position).values()))

    def indices_at(self, position: int) -> Sequence[int]:
        return self._prepared.nodes.outputs_of(self._stops[position].instruction or 0)

    def patch(self, node: str | int, position: int, value: Any) -> None:
        """Replace the value of a node, of an index, or of the stop (node ""): go back to the step
        where it was computed, set it, and return to the stop. Tensors take whatever numpy
        broadcasts, cast to their type.

        Raises `UsageError` for a value that does not fit and for weights; then nothing was set."""
        if isinstance(node, int):
            values = [self._values.of_index(node)]
        elif node:
            values = self._values.of_node(node, self._step_at(position))
        else:
            values = self._values.of_stop(position)
        before = self._execution.step
        self._go_to(max(one.since for one in values))
        try:
            self._values.set(values, value)
        except (UsageError, MissingDataError):
            self._go_to(before)
            raise
        self.reach(position)

    def _step_at(self, position: int) -> int:
        """The step of a stop that has run; else the current step."""
        step = self._execution.step
        known = 0 <= position < self._stops.known
        return min(self._stops.step_of(position), step) if known else step

    def _joined(self, values: list[ValueAtStep]) -> Any:
        """Fetch values: a single one, or a list by element."""
        fetched = self._values.fetch(values)
        if values[0].element is None:
            return fetched[0]
        found = {one.element: value for one, value in zip(values, fetched, strict=True)}
        return [found.get(at) for at in range(1 + max(one.element or 0 for one in values))]
