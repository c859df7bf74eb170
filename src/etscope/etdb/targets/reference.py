"""The reference in PyTorch: as a target of its own (`target live`), and beside another run."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.matching import Pair
from etscope.analysis.profile.correlate import recorded_inputs
from etscope.analysis.profile.source_location import lines_of, module_path
from etscope.errors import MissingDataError, UsageError
from etscope.etdb.files import NO_RECORD, NO_RECORD_HINT, Files
from etscope.etdb.protocol.runner import InterruptHandler
from etscope.etdb.targets.target import LocalTarget, RunInfo, Stop, Watch
from etscope.formats.program.bpte import BundledFile
from etscope.formats.run_json import saved_inputs
from etscope.model.graph import Node, source_lines
from etscope.optional import require
from etscope.quiet import quiet

_PACKAGES = ("torch", "executorch.exir")
_SILENT_SECONDS = 1.0

if TYPE_CHECKING:
    from etscope.bridge.reference.live import LiveRun


def live_run(files: Files, linked: LinkedGraph, method: str, inputs: Any) -> LiveRun:
    """Begin a run of the edge program in PyTorch. inputs: None for the record's.

    Raises `MissingDataError` without a record or inputs, `MissingDependencyError` without torch.
    """
    if files.record is None:
        raise MissingDataError(NO_RECORD, hint=NO_RECORD_HINT)
    given = inputs_of(files, method) if inputs is None else inputs
    if given is None:
        raise MissingDataError(
            "there are no inputs to run the reference on",
            hint="the record has none of this method: give them with --inputs FILE, "
            "or target live FILE",
        )
    load_torch()
    with quiet():
        from etscope.diagnosis.reference import named_program

        program, names = named_program(files.record, linked.graph)
        from etscope.bridge.reference.live import LiveRun

        return LiveRun(program, given, names)


def load_torch() -> None:
    """Import PyTorch and ExecuTorch. A Ctrl-C meanwhile takes effect at the end: an import that was
    cut off would leave parts of PyTorch that cannot be imported again.

    Says on stderr when it takes longer than a second. Raises `MissingDependencyError`."""
    if all(package in sys.modules for package in _PACKAGES):
        return
    terminal = os.dup(2)  # which `quiet` redirects
    text = b"loading PyTorch and ExecuTorch; Ctrl-C takes effect afterwards\n"
    notice = threading.Timer(_SILENT_SECONDS, os.write, (terminal, text))
    notice.start()
    try:
        with InterruptHandler(lambda: None).defer(), quiet():
            for package in _PACKAGES:
                require(package, wanted_by="a reference run")
    finally:
        notice.cancel()
        notice.join()
        os.close(terminal)


def inputs_of(files: Files, method: str) -> Any:
    """Inputs of a method: those of the recorded run, the record's, or those of the bundled
    program's first case."""
    saved = None if files.trace is None else saved_inputs(files.trace.dump.path, method)
    if saved is not None and saved.values is not None:
        return list(saved.values)
    found = None if files.record is None else recorded_inputs(files.record, method)
    if found is not None:
        return found
    for suite in files.bundle.suites if files.bundle is not None else ():
        if suite.method == method and suite.cases:
            return list(suite.cases[0].inputs)
    return None


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
            hint="it took another branch, or the name is not in the edge graph: info ops",
        )

    def value_written_back(self, node: str) -> Any:
        """Value that the run leaves in a state of the graph, by the name of its placeholder."""
        return self.value(self._run.written_back.get(node, node))

    def call(self, node: str, value: Callable[[str], Any]) -> Any:
        """Run a node's operator on inputs that `value` returns by name."""
        return self._run.call(node, value)


class ReferenceTarget(LocalTarget):
    """The reference run. Its stops are the operators of the graph; those in branches and loops
    become known when they have run."""

    kind = "live"
    is_past = False
    is_reference = True

    def __init__(self, linked: LinkedGraph, method: str, begin: Callable[[], LiveRun]) -> None:
        """begin: begins a run; its errors pass through."""
        self.method = method
        self._linked = linked
        self._begin = begin
        self.restart()

    def restart(self) -> None:
        """Begin a run, without the values that were set."""
        self._run = self._begin()
        self._stops: list[Stop] = []
        self._passes: dict[str, list[int]] = {}  # node -> positions of its values in the run
        self._positions: list[int] = []  # of each stop's value in the run
        self._complete = False
        self._all_stops: list[Stop] | None = None

    @property
    def runs(self) -> Sequence[RunInfo]:
        """The only run."""
        return [RunInfo(0, self.method, len(self.stops))]

    @property
    def run(self) -> int:
        """Always 0."""
        return 0

    def choose(self, run: int) -> None:
        """Raise `UsageError` unless `run` is 0."""
        if run != 0:
            raise UsageError(f"there is no run {run}", hint="a live target has one run, 0")

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
        """Run up to a stop."""
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

    def pairs_at(self, position: int) -> Mapping[int, Pair]:
        """Always empty: a stop's values belong to its node."""
        return {}

    def nodes_at(self, position: int) -> Sequence[str]:
        """Always empty: a stop has one node."""
        return ()

    def given_inputs(self, given: Any, bundle: BundledFile | None) -> Any:
        """The user's inputs: the target is the reference itself."""
        return given

    def device_values(self, position: int) -> list[Any]:
        """Outputs of the stop's node."""
        value = self._run.value(self._positions[position])
        return list(value) if isinstance(value, (list, tuple)) else [value]

    def value_of(self, node: str, position: int) -> Any:
        """The node's last value at or before the stop."""
        return self._run.value(self._last_pass(node, position))

    def patch(self, node: str | int, position: int, value: Any) -> None:
        """Set the value that the node has at the stop, and run again what depends on it."""
        if isinstance(node, int):
            self.value_at(node)  # raises
            return
        changed = self._last_pass(node, position) if node else self._current(position)
        self._run.patch(changed, value)
        # Everything after the changed value is unknown again.
        keep = sum(at <= changed for at in self._positions)
        self._stops, self._positions = self._stops[:keep], self._positions[:keep]
        self._passes = {
            name: [at for at in passes if at <= changed] for name, passes in self._passes.items()
        }
        self._complete, self._all_stops = False, None
        self.reach(position)

    def _current(self, position: int) -> int:
        """Position in the run of a stop's value; -1 before the first."""
        return self._positions[position] if self._positions else -1

    def _last_pass(self, node: str, position: int) -> int:
        until = self._current(position)
        found = [at for at in self._passes.get(node, ()) if at <= until]
        if not found:
            raise MissingDataError(f"{node} has not run yet", hint=f"until {node}")
        return found[-1]

    def _step(self) -> bool:
        """Run up to the next stop; False at the end."""
        while (name := self._run.advance()) is not None:
            at = self._run.computed - 1
            passes = self._passes.setdefault(name, [])
            passes.append(at)
            if name in self._operators:
                self._stops.append(self._stop(name, len(self._stops), len(passes) - 1))
                self._positions.append(at)
                return True
        return False

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
