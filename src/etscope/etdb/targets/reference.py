"""The reference next to a recorded run: what PyTorch makes of the same inputs, computed as far as
it is asked for and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.matching import Pair
from etscope.analysis.profile.source_location import lines_of, module_path
from etscope.errors import MissingDataError, UsageError
from etscope.etdb.files import NO_RECORD, NO_RECORD_HINT, Files
from etscope.etdb.targets.target import Kept, RunInfo, Stop, Watch
from etscope.formats.program.bpte import BundledFile
from etscope.model.graph import Node, source_lines
from etscope.quiet import quiet

if TYPE_CHECKING:
    from etscope.bridge.reference.live import LiveRun

__all__ = ["ReferenceValues", "inputs_of", "live_run"]


# The live run: the reference graph, node by node in PyTorch, under the debugger's hands.


class ReferenceTarget(Kept):
    """The reference run. Its stops are the operators of the graph; those of branches and loops are
    known when they have run."""

    kind = "live"
    is_past = False
    is_reference = True

    def __init__(self, linked: LinkedGraph, method: str, begin: Callable[[], LiveRun]) -> None:
        """begin: begins a run. Raises its errors."""
        self.method = method
        self._linked = linked
        self._begin = begin
        self.restart()

    def restart(self) -> None:
        """Begin a run, without what was set."""
        self._run = self._begin()
        self._stops: list[Stop] = []
        self._at: dict[str, list[int]] = {}  # a node's name -> positions of its values in the run
        self._positions: list[int] = []  # of each stop, that of its value in the run
        self._complete = False
        self._line: list[Stop] | None = None

    @property
    def runs(self) -> Sequence[RunInfo]:
        """The one run."""
        return [RunInfo(0, self.method, len(self.stops))]

    @property
    def run(self) -> int:
        """Always 0."""
        return 0

    def choose(self, run: int) -> None:
        """There is one run."""
        if run != 0:
            raise UsageError(f"there is no run {run}", hint="a live target has one run, 0")

    @property
    def stops(self) -> Sequence[Stop]:
        """What has run, then what will: of branches that have not been taken yet, the call."""
        if self._line is None:
            self._line = [*self._stops, *self._ahead()]
        return self._line

    def reach(self, position: int) -> None:
        """Run up to a stop."""
        while len(self._stops) <= position and not self._complete:
            self._complete = not self._step()
            if self._complete or not self._as_foreseen():
                self._line = None
        if position >= len(self._stops):
            raise UsageError("the run ends before that")

    def go(
        self, start: int, wanted: Callable[[Stop], bool], watches: Sequence[Watch] = ()
    ) -> int | None:
        """Run the next operator, whatever is wanted."""
        if start + 1 >= len(self.stops):
            return None
        self.reach(start + 1)
        return start + 1

    def pairs_at(self, position: int) -> Mapping[int, Pair]:
        """A stop's values are its node's."""
        return {}

    def nodes_at(self, position: int) -> Sequence[str]:
        """A stop's node is its own."""
        return ()

    def given_inputs(self, given: Any, bundle: BundledFile | None) -> Any:
        """It is the reference itself, and was given the same."""
        return given

    def device_values(self, position: int) -> list[Any]:
        """What the node gave."""
        value = self._run.value(self._positions[position])
        return list(value) if isinstance(value, (list, tuple)) else [value]

    def value_of(self, node: str, position: int) -> Any:
        """The node's last value at or before the stop."""
        until = self._positions[position] if self._positions else -1
        found = [at for at in self._at.get(node, ()) if at <= until]
        if not found:
            raise MissingDataError(f"{node} has not run yet", hint=f"until {node}")
        return self._run.value(found[-1])

    def patch(self, node: str | int, position: int, value: Any) -> None:
        """Set the value that the node has at the stop; what ran after it runs again."""
        if isinstance(node, int):
            self.value_at(node)  # says that there is none
            return
        until = self._positions[position] if self._positions else -1
        found = [at for at in self._at.get(node, ()) if at <= until] if node else [until]
        if not found:
            raise MissingDataError(f"{node} has not run yet", hint=f"until {node}")
        self._run.patch(found[-1], value)
        self._forget_after(found[-1], position)

    def _forget_after(self, at: int, position: int) -> None:
        """Of what ran after a patched value, nothing is known any more; the run is brought back to
        where it stood."""
        keep = sum(1 for place in self._positions if place <= at)
        self._stops, self._positions = self._stops[:keep], self._positions[:keep]
        self._at = {
            name: [place for place in places if place <= at] for name, places in self._at.items()
        }
        self._complete, self._line = False, None
        self.reach(position)

    # -- running

    def _step(self) -> bool:
        """Run up to the next stop; False at the end."""
        while (name := self._run.advance()) is not None:
            at = self._run.computed - 1
            passes = self._at.setdefault(name, [])
            passes.append(at)
            if name in self._operators:
                self._stops.append(self._stop(name, len(self._stops), len(passes) - 1))
                self._positions.append(at)
                return True
        return False

    def _as_foreseen(self) -> bool:
        """Whether the last stop is the one that was to come, so that those after it are, too."""
        last = len(self._stops) - 1
        return self._line is not None and self._line[last : last + 1] == [self._stops[last]]

    def _ahead(self) -> Iterator[Stop]:
        """The operators of the graph itself that have not run."""
        if self._complete:
            return
        done = {stop.name for stop in self._stops}
        position = len(self._stops)
        for name in self._operators:
            if name not in done and "/" not in name:
                yield self._stop(name, position, 0)
                position += 1

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


NO_INPUTS = "there are no inputs to run the reference on"
NO_INPUTS_HINT = (
    "the record has none of this method: give them with --inputs FILE, or target live FILE"
)


def live_run(files: Files, linked: LinkedGraph, method: str, inputs: Any) -> LiveRun:
    """A run of the edge program in PyTorch. inputs: None for the record's.

    Raises `MissingDataError` without a record or inputs, `MissingDependencyError` without torch.
    """
    if files.record is None:
        raise MissingDataError(NO_RECORD, hint=NO_RECORD_HINT)
    given = inputs_of(files, method) if inputs is None else inputs
    if given is None:
        raise MissingDataError(NO_INPUTS, hint=NO_INPUTS_HINT)
    with quiet():
        from etscope.diagnosis.reference import named_program

        program, names = named_program(files.record, linked.graph)
        from etscope.bridge.reference.live import LiveRun

        return LiveRun(program, given, names)


def inputs_of(files: Files, method: str) -> Any:
    """The record's inputs of a method, or those of the bundled program's first case."""
    if files.record is not None and method == files.main_method:
        found = files.record.representative_inputs()
        if found is not None:
            return found
    for suite in files.bundle.suites if files.bundle is not None else ():
        if suite.method == method and suite.cases:
            return list(suite.cases[0].inputs)
    return None


class ReferenceValues:
    """Values of the reference by node and pass of its loop."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._at: dict[str, list[int]] = {}

    def value(self, node: str, loop_pass: int = 0) -> Any:
        """The value of a node. Raises `MissingDataError` where the reference has none."""
        while len(self._at.get(node, ())) <= loop_pass:
            name = self._run.advance()
            if name is None:
                break
            self._at.setdefault(name, []).append(self._run.computed - 1)
        places = self._at.get(node, ())
        if loop_pass < len(places):
            return self._run.value(places[loop_pass])
        if not places:
            given = self._run.input(node)
            if given is not None:
                return given
        raise MissingDataError(
            f"the reference has no value of {node}" + (f" in pass {loop_pass}" if places else ""),
            hint="it took another branch, or the name is not of the edge graph: info ops",
        )

    def call(self, node: str, value: Callable[[str], Any]) -> Any:
        """What the operator of a node makes of its inputs, each of which `value` gives."""
        return self._run.call(node, value)
