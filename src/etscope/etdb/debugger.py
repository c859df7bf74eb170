"""The state of a session: files, the target that is walked, where it stands, what was set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.profile.scale import Scale
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.breakpoints import Breakpoints
from etscope.etdb.expressions.expression import Expression
from etscope.etdb.files import Files
from etscope.etdb.targets.recorded import NO_DUMP, NO_DUMP_HINT, NO_TARGET_HINT, RecordedRuns
from etscope.etdb.targets.reference import ReferenceTarget, ReferenceValues, inputs_of, live_run
from etscope.etdb.targets.target import Stop, Target
from etscope.model.graph import Node
from etscope.units import TimeScale


@dataclass(frozen=True, slots=True)
class Gap:
    """How far a stop's values are from the reference's, and from what PyTorch makes of the device's
    own inputs; None where that cannot be told."""

    total: float | None
    local: float | None = None


@dataclass
class Debugger:
    """Everything that commands read and change.

    inputs: what a run is given, in any form that `etscope.run` takes; None for the record's.
    recorded: the runs of the dump, whatever is walked. position: of the stop in the target; None
    before the run was begun. ended: the run went past its last stop. level: how many modules above
    the operator is looked at; frame: which Python frame. graph: the name of the graph that is
    browsed; None: the edge graph of the method. logging: where lines and answers are written. gaps:
    what a run on the runtime was found to be from its reference, by metric and position, since it
    began or something was set.
    """

    files: Files
    inputs: Any = None
    source_unit: str = "ns"
    target: Target | None = None
    recorded: RecordedRuns | None = None
    shows_times: bool = True
    position: int | None = None
    ended: bool = False
    level: int = 0
    frame: int = 0
    graph: str | None = None
    breakpoints: Breakpoints = field(default_factory=Breakpoints)
    displays: dict[int, Expression] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    selected: list[str] = field(default_factory=list)
    selected_at: int = -1
    logging: str | None = None
    gaps: dict[tuple[str, int], Gap] = field(default_factory=dict)
    _named: tuple[LinkedGraph, Mapping[str, Node]] | None = None

    def __post_init__(self) -> None:
        self.load(self.files)

    # -- files and targets

    def load(self, files: Files) -> None:
        """Take other files: the recorded run of the dump, if there is one, is the target."""
        trace = files.trace  # what does not belong together is refused before anything changes
        before, self.files = self.files, files
        try:
            self.recorded = None if trace is None else self.recorded_runs()
        except EtscopeError:
            self.files = before
            raise
        self.begin(self.recorded)

    def begin(self, target: Target | None) -> None:
        """Walk a target from before its first stop. What another one held is let go."""
        if target is not self.target or target is None or target.is_past:
            self.__dict__.pop("reference", None)
        before, self.target = self.target, target
        if before is not None and before is not target:
            before.close()
        self.position, self.ended, self.level, self.frame = None, False, 0, 0
        self.gaps.clear()

    def close(self) -> None:
        """Let go of what runs elsewhere."""
        if self.target is not None:
            self.target.close()

    def stand(self) -> None:
        """Stand where the run does, if it came to stand somewhere by itself: it failed on its way,
        or was interrupted."""
        target = self.on_runtime
        if target is not None and not target.keeps_values and target.position != self.position:
            self.position, self.ended = target.position, False

    def recorded_runs(self) -> RecordedRuns:
        """The runs of the dump. Raises `MissingDataError` without one."""
        trace = self.files.trace
        if trace is None:
            raise MissingDataError(NO_DUMP, hint=NO_DUMP_HINT)
        has_graph = self.files.record is not None and self.files.record.edge_methods
        return RecordedRuns(trace, self.files.edge if has_graph else None)

    def go_live(self, inputs: Any = None) -> ReferenceTarget:
        """Make the reference run the target."""
        method = self.method
        linked = self.files.edge(method)
        wanted = self.inputs if inputs is None else inputs
        given, files = self.given(method, wanted), self.files
        target = ReferenceTarget(linked, method, lambda: live_run(files, linked, method, given))
        self.inputs = wanted
        self.begin(target)
        return target

    @property
    def method(self) -> str:
        """The method that is walked, or that is meant when nothing runs."""
        if self.target is not None and self.target.method:
            return self.target.method
        return self.files.main_method

    @property
    def on_runtime(self) -> Target | None:
        """The target, if it is the program itself that runs."""
        target = self.target
        return None if target is None or target.is_past or target.is_reference else target

    @property
    def scale(self) -> Scale:
        """From the clock's ticks to what people read."""
        cycles = self.source_unit == "cycles"
        return Scale(TimeScale(self.source_unit), TimeScale("cycles" if cycles else "ms"))

    def some_target(self) -> Target:
        """The target. Raises `MissingDataError` without one."""
        if self.target is None:
            raise MissingDataError(NO_DUMP, hint=NO_TARGET_HINT)
        return self.target

    def linked(self) -> LinkedGraph:
        """The graph that is browsed."""
        return self.files.edge(self.method) if self.graph is None else self.files.linked(self.graph)

    # -- where the run stands

    @property
    def stop(self) -> Stop | None:
        """The current stop; None before the first and after the last."""
        if self.target is None or self.position is None or self.ended:
            return None
        return self.target.stops[self.position]

    def here(self) -> Stop:
        """The current stop. Raises `UsageError` when there is none, `MissingDataError` without a
        target."""
        self.some_target()
        stop = self.stop
        if stop is None:
            over = "the run is over" if self.ended else "the run has not been begun"
            raise UsageError(over, hint="begin it: run, or start to stop at the first operator")
        return stop

    # -- values

    def given(self, method: str, inputs: Any = None) -> Any:
        """The inputs that a person gave, as a method takes them; None if there are none. inputs:
        others than the session's.

        Raises `MismatchError` for those of a file that the method does not take."""
        from etscope.formats.torch_files.tensor_files import TensorFile

        given = self.inputs if inputs is None else inputs
        if not isinstance(given, TensorFile):
            return given
        from etscope.run.inputs import file_inputs

        return file_inputs(given, self.files.any_program, self.files.record, method)

    @cached_property
    def reference(self) -> ReferenceValues:
        """The reference on the run's inputs. Raises an `EtscopeError` where there cannot be one."""
        linked = self.files.edge(self.method)
        inputs, target = self.given(self.method), self.target
        if target is not None:
            inputs = target.given_inputs(inputs, self.files.bundle)
        return ReferenceValues(live_run(self.files, linked, self.method, inputs))

    @property
    def can_compare(self) -> bool:
        """Whether there can be a reference: a record with inputs, and PyTorch."""
        from importlib.util import find_spec

        if self.files.record is None or find_spec("torch") is None:
            return False
        if self.on_runtime is not None:
            return True
        return self.inputs is not None or inputs_of(self.files, self.method) is not None

    def node_named(self, name: str) -> Node:
        """The node that `path_named` finds."""
        return self.nodes()[self.path_named(name)]

    def path_named(self, name: str) -> str:
        """The path of a node of the method's edge graph, or of one of its values: the name itself,
        or the only path that ends in it. Raises `UsageError` with names that are like it."""
        nodes = self.nodes()
        if name in nodes:
            return name
        inside = [path for path in nodes if path.endswith(f"/{name}")]
        if len(inside) == 1:
            return inside[0]
        if inside:
            raise UsageError(
                f"several values are called {name!r}",
                hint=" or ".join(f'value("{path}")' for path in inside[:4]),
            )
        close = get_close_matches(name, nodes, 3)
        hint = f"did you mean {' or '.join(close)}?" if close else "info ops lists the names"
        raise UsageError(f"no value is called {name!r}", hint=hint)

    def nodes(self) -> Mapping[str, Node]:
        """The nodes of the method's edge graph by their own and their values' names; those of
        branches and of lowered modules by their path."""
        linked = self.files.edge(self.method)
        if self._named is None or self._named[0] is not linked:
            graph = linked.graph
            own = {node.name: node for node in graph.nodes}
            self._named = linked, {**graph.by_name, **own, **graph.calls}
        return self._named[1]
