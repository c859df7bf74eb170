"""The reference in PyTorch: as a target (`target live`), and for comparison with another run."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast
from weakref import WeakSet

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.export import Export
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import recorded_inputs
from etscope.analysis.program.source_location import lines_of, module_path, short_lines
from etscope.errors import MissingDataError, ReferenceFailure, RuntimeFailure, UsageError
from etscope.etdb.targets.target import (
    FAILED_HINT,
    CallsTarget,
    Failure,
    RunInfo,
    Stop,
    Watch,
)
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.program.bpte import BundledFile
from etscope.model.graph import Node, source_lines
from etscope.support.optional import require
from etscope.support.quiet import quiet

_PACKAGES = ("torch", "executorch.exir")
_SILENT_SECONDS = 1.0  # a shorter wait needs no notice
_NOTICE = b"loading PyTorch and the reference; Ctrl-C ends the wait\n"
_PAUSE = 0.1  # seconds between two looks at whether a wait is cancelled
T = TypeVar("T")

if TYPE_CHECKING:
    from etscope.bridge.reference.live import LiveRun


class Background(Generic[T]):
    """Work in a separate thread, which is never cut off: a broken import would leave parts of
    PyTorch that cannot be imported again. Ctrl-C ends the wait for it, and so does `cancel_waits`.
    """

    _all: ClassVar[WeakSet[Background[Any]]] = WeakSet()

    def __init__(self, work: Callable[[], T]) -> None:
        self._over, self._cancelled = threading.Event(), threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

        def run() -> None:
            try:
                self._result = work()
            except BaseException as error:  # raised where it is waited for
                self._error = error
            self._over.set()

        self._all.add(self)
        threading.Thread(target=run, name="etdb-reference", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """True when the result is there, or the error."""
        return self._over.is_set()

    @classmethod
    def is_any_running(cls) -> bool:
        """True if any work is not over yet."""
        return not all(one.is_over for one in cls._all)

    @classmethod
    def cancel_waits(cls) -> None:
        """End all waits of other threads."""
        for one in list(cls._all):
            one._cancelled.set()

    def result(self) -> T:
        """Wait for the result. Says on stderr when that takes longer than a second.

        Raises the error of the work, and `KeyboardInterrupt` when the wait is cancelled; a later
        call waits again."""
        self._cancelled.clear()
        said = time.monotonic() + _SILENT_SECONDS
        terminal = os.dup(2)  # which `quiet` redirects
        try:
            with quiet():
                while not self._over.wait(_PAUSE):
                    if self._cancelled.is_set():
                        raise KeyboardInterrupt
                    if time.monotonic() > said:
                        os.write(terminal, _NOTICE)
                        said = math.inf
        finally:
            os.close(terminal)
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


def _import_torch() -> None:
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # notices of imports
    try:
        for package in _PACKAGES:
            require(package, wanted_by="a reference run")
    finally:
        logging.disable(level)


@cache
def torch_loading() -> Background[None]:
    """Import PyTorch and ExecuTorch in the background; the import starts now if it has not started
    yet.
    """
    return Background(_import_torch)


def load_torch() -> None:
    """Wait until PyTorch and ExecuTorch are imported. Raises `MissingDependencyError`."""
    torch_loading().result()


class ReferenceProgram:
    """The edge program of a method in PyTorch, loaded once for all runs, in any thread.

    Raises `MissingDependencyError` without torch."""

    def __init__(self, record: RecordView, linked: LinkedGraph) -> None:
        _import_torch()
        from etscope.diagnosis.reference import named_program

        self._program, self._names = named_program(record, linked.graph)

    def begin(self, inputs: Any, state: Mapping[str, Any] | None = None) -> LiveRun:
        """Begin a run. state: what the run before left; None for the first state."""
        from etscope.bridge.reference.live import LiveRun

        return LiveRun(self._program, inputs, self._names, state)

    def state_after(self, earlier: Callable[[], Sequence[Any]]) -> Mapping[str, Any]:
        """The state that runs on the inputs of `earlier` leave; {} for a program without state,
        which does not call `earlier`.
        """
        from etscope.bridge.reference.reference import keeps_state, state_after

        if not keeps_state(self._program):
            return {}
        with quiet():
            return state_after(self._program, earlier())


@dataclass(frozen=True, slots=True)
class Calls:
    """Inputs of several calls of a method, which keep its state: one set for each."""

    sets: Sequence[Any]


def sets_of(inputs: Any) -> tuple[Any, ...]:
    """The inputs of each call; () for None."""
    if isinstance(inputs, Calls):
        return tuple(inputs.sets)
    return () if inputs is None else (inputs,)


def inputs_of(capture: Trace | Export, bundle: BundledFile | None, method: str) -> tuple[Any, ...]:
    """Return the inputs of each call of a method: the inputs of the recorded runs; if there are
    none, the inputs of one call, from the record or from the bundled program's first case. Empty if
    there are none.
    """
    calls = capture.known_calls if isinstance(capture, Trace) else ()
    saved = [call.inputs for call in calls if call.method == method]
    known = [list(one.values) for one in saved if one is not None and one.values is not None]
    if known and len(known) == len(saved):
        return tuple(known)
    found = None if capture.record is None else recorded_inputs(capture.record, method)
    if found is not None:
        return (found,)
    for suite in () if bundle is None else bundle.suites:
        if suite.method == method and suite.cases:
            return (list(suite.cases[0].inputs),)
    return ()


class ReferenceValues:
    """Values of the reference by node and loop pass, computed when they are first needed."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._computed: dict[str, list[int]] = {}  # node -> position in the run, by loop pass

    def value(self, node: str, loop_pass: int = 0) -> Any:
        """Value of a node. Raises `MissingDataError` if the reference has none."""
        while len(self._computed.get(node, ())) <= loop_pass:
            name = self._run.advance()
            if name is None:
                break
            self._computed.setdefault(name, []).append(self._run.computed - 1)
        passes = self._computed.get(node, ())
        if loop_pass < len(passes):
            return self._run.value(passes[loop_pass])
        if not passes:
            given = self._run.input(node)
            if given is not None:
                return given
        raise MissingDataError(
            f"the reference has no value of {node}" + (f" in pass {loop_pass}" if passes else ""),
            hint="the reference took another branch, or the edge graph has no such node: list its "
            "nodes with info ops",
        )

    def value_written_back(self, node: str) -> Any:
        """Value that the run leaves in a state of the graph, by the name of its placeholder."""
        return self.value(self._run.written_back.get(node, node))

    def is_state(self, node: str) -> bool:
        """True for a placeholder of state that the run writes back."""
        return node in self._run.written_back

    def call(self, node: str, value: Callable[[str], Any]) -> Any:
        """Run a node's operator on inputs that `value` returns by name."""
        return self._run.call(node, value)


class ReferenceTarget(CallsTarget):
    """The reference, one run for each call. Its stops are the operators of the graph; those in
    branches and loops become known when they have run."""

    kind = "live"
    is_reference = True

    def __init__(
        self, linked: LinkedGraph, method: str, program: ReferenceProgram, calls: Sequence[Any]
    ) -> None:
        """calls: inputs of each."""
        super().__init__(method, calls)
        self._linked, self._program = linked, program
        self.restart()

    def restart(self) -> None:
        earlier = self._calls[: self.run]
        self._start(self._program.state_after(lambda: earlier))

    def save(self) -> tuple[int, LiveRun, int]:
        """Return the call, the known part of its run for a repetition, and its number of stops."""
        return self.run, self._live.again(), len(self._stops)

    def restore(self, saved: Any) -> None:
        """Repeat the run up to where it was saved."""
        self._run, run, stops = saved
        self._begin(run.again())
        if stops:
            self.reach(stops - 1)

    def add_call(self, inputs: Any = None) -> None:
        self._calls.append(self._calls[-1] if inputs is None else inputs)

    def go_on(self) -> None:
        while self._step():
            pass
        self._run += 1
        self._start(self._live.state)

    def _start(self, state: Mapping[str, Any]) -> None:
        self._begin(self._program.begin(self._calls[self.run], state))

    def _begin(self, run: LiveRun) -> None:
        self._live = run
        self._stops: list[Stop] = []
        self._passes: dict[str, list[int]] = {}  # node -> positions of its values in the run
        self._positions: list[int] = []  # of each stop's value in the run
        self._complete, self.failure = False, None
        self._all_stops: list[Stop] | None = None

    @property
    def runs(self) -> Sequence[RunInfo]:
        failed, count = None if self.failure is None else self.failure.summary, len(self.stops)
        return [
            RunInfo(number, self.method, count, failed=failed if number == self.run else None)
            for number in range(len(self._calls))
        ]

    @property
    def stops(self) -> Sequence[Stop]:
        """Stops that have run, then the operators of the graph itself that have not. A branch that
        was not taken yet is represented by its call."""
        if self._all_stops is None:
            stops = list(self._stops)
            if not self._complete:
                done = {stop.name for stop in stops}
                for name in self._operators:
                    if name not in done and "/" not in name:
                        stops.append(self._stop(name, len(stops), 0))
            self._all_stops = stops
        return self._all_stops

    def reach(self, position: int) -> None:
        while len(self._stops) <= position and not self._complete:
            self._complete = not self._step()
            # As long as the expected operators run, the list of all stops stays valid.
            last = len(self._stops) - 1
            if (
                self._complete
                or self._all_stops is None
                or self._all_stops[last : last + 1] != [self._stops[last]]
            ):
                self._all_stops = None
        if position >= len(self._stops):
            raise UsageError("the run ends before that")

    def go(
        self, start: int, wanted: Callable[[Stop], bool], watches: Sequence[Watch] = ()
    ) -> int | None:
        """Run the next operator, whether it is wanted or not."""
        if start + 1 >= len(self.stops):
            return None
        self.reach(start + 1)
        return start + 1

    def given_inputs(self, given: Sequence[Any], bundle: BundledFile | None) -> Any:
        return self._calls[self.run]

    def earlier_inputs(self, given: Sequence[Any], bundle: BundledFile | None) -> Sequence[Any]:
        return self._calls[: self.run]

    def device_values(self, position: int) -> list[Any]:
        value = self._live.value(self._positions[position])
        return list(value) if isinstance(value, (list, tuple)) else [value]

    def value_of(self, node: str, position: int) -> Any:
        return self._live.value(self._last_pass(node, position))

    def patch(self, node: str | int, position: int, value: Any) -> None:
        """Set the value that the node has at the stop, and run again what depends on it."""
        if isinstance(node, int):
            self.value_at(node)  # raises
            return
        if node in self._linked.graph.inputs:
            raise UsageError(
                "a live run cannot be given another input", hint="target live FILE begins one"
            )
        changed = self._last_pass(node, position) if node else self._current(position)
        self._live.patch(changed, value)
        # Everything after the changed value is unknown again.
        keep = sum(at <= changed for at in self._positions)
        self._stops, self._positions = self._stops[:keep], self._positions[:keep]
        self._passes = {
            name: [at for at in passes if at <= changed] for name, passes in self._passes.items()
        }
        self._complete, self._all_stops, self.failure = False, None, None
        self.reach(position)

    def _current(self, position: int) -> int:
        """Position in the run of a stop's value, or of the last before it; -1 before the first."""
        return self._positions[min(position, len(self._positions) - 1)] if self._positions else -1

    def _last_pass(self, node: str, position: int) -> int:
        until = self._current(position)
        found = [at for at in self._passes.get(node, ()) if at <= until]
        if not found:
            raise MissingDataError(f"{node} has not run yet", hint=f"until {node}")
        return found[-1]

    def _step(self) -> bool:
        """Run up to the next stop; False at the end."""
        while (name := self._advance()) is not None:
            at = self._live.computed - 1
            passes = self._passes.setdefault(name, [])
            passes.append(at)
            if name in self._operators:
                self._stops.append(self._stop(name, len(self._stops), len(passes) - 1))
                self._positions.append(at)
                return True
        return False

    def _advance(self) -> str | None:
        try:
            return self._live.advance()
        except ReferenceFailure as error:
            stop = None
            if error.node in self._operators:
                passes = len(self._passes.get(error.node, ()))
                stop = self._stop(error.node, len(self._stops), passes)
            at = f" at {short_lines(stop.lines[:1])}" if stop is not None and stop.lines else ""
            self.failure = Failure(stop, f"{error.node} failed in PyTorch{at}: {error.reason}")
            raise RuntimeFailure(self.failure.text, hint=FAILED_HINT) from error

    @cached_property
    def _operators(self) -> Mapping[str, Node]:
        """The operators by the names that a run gives them: "add", "true_graph_0/add"."""
        return self._linked.graph.operators

    def _stop(self, name: str, position: int, loop_pass: int) -> Stop:
        node = self._operators[name]
        instructions = self._linked.instructions.get(id(node), ())
        return Stop(
            position=position,
            instruction=instructions[0] if instructions else None,
            name=name,
            op=node.op,
            kind="node",
            nodes=(node,),
            lines=lines_of([node]),
            stack=source_lines(node.stack_trace),
            module=module_path(node),
            handles=() if node.debug_handle is None else (node.debug_handle,),
            backend=self._linked.backends.get(id(node)),
            depth=name.count("/"),
            loop_pass=loop_pass,
            path=name,
        )
