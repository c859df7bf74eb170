"""The interface of all targets: one run of a program as a sequence of stops.

A stop is the state after an operator has run and before anything reads its results. All targets
take the same commands; an operation that a target does not support raises `UsageError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from etscope.analysis.graphs.linked_graph import LinkedGraph, linked_graph
from etscope.analysis.matching.export import Export
from etscope.analysis.matching.matching import Pair
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import Attribution, graph_name, handle_list
from etscope.analysis.program.source_location import common_module
from etscope.errors import MissingDataError, UsageError
from etscope.etdb.protocol.messages import Condition
from etscope.formats.etrecord.reader import EDGE, RecordView
from etscope.formats.program.bpte import BundledFile
from etscope.model.event_table import KERNEL_PREFIX, EventKey
from etscope.model.graph import Node, SourceLine, source_lines, stem

FAILED_HINT = "bt and list show the operator; reverse-step goes back to what ran before it"
NO_RECORD = "no ETRecord is loaded"
NO_RECORD_HINT = "load one: file MODEL.etrecord"


def open_record(capture: Trace | Export) -> RecordView:
    """The record. Raises `MissingDataError` without one."""
    if capture.record is None:
        raise MissingDataError(NO_RECORD, hint=NO_RECORD_HINT)
    return capture.record


def linked_once(capture: Trace | Export, name: str) -> LinkedGraph:
    """A graph of the record with instructions. Raises `MissingDataError` without a record."""
    open_record(capture)  # raises
    return capture.once(("linked", name), lambda: linked_graph(capture, name))


def edge_graph(capture: Trace | Export, method: str) -> LinkedGraph:
    """The edge graph of a method, as `linked_once`."""
    return linked_once(capture, graph_name(open_record(capture), EDGE, method))


@dataclass(frozen=True, slots=True)
class Stop:
    """An operator that has run.

    position: the index of the stop in its run, from 0. instruction: the index in the program; None
    if unknown. name: the name in the runtime or in the graph ("native_call_add.out",
    "aten_add_tensor"). op: the operator to display ("add", "aten.add.Tensor"). depth: 1 for an
    operator inside a delegate's call; the stop of the call itself comes after those inside.
    loop_pass: how often the operator ran before in the same run. ticks: duration in the dump's
    clock. nodes: the nodes of the edge graph; the stop's value is the value of the last one. path:
    the name of that value in its graph, such as "submodule_0/add" in a branch.
    """

    position: int
    instruction: int | None
    name: str
    op: str
    kind: str
    nodes: tuple[Node, ...] = ()
    lines: tuple[SourceLine, ...] = ()
    stack: tuple[SourceLine, ...] = ()
    module: str | None = None
    handles: tuple[int, ...] = ()
    backend: str | None = None
    delegate_id: int | str | None = None
    depth: int = 0
    loop_pass: int = 0
    ticks: int | None = None
    path: str | None = None

    @property
    def node(self) -> str | None:
        """Name of the node whose value the stop has."""
        return self.nodes[-1].name if self.nodes else None


def stop_of_event(
    key: EventKey,
    kind: str,
    attribution: Attribution,
    linked: LinkedGraph | None,
    paths: Mapping[int, str],
) -> Stop:
    """Describe the stop at an operator, at position 0.

    key: the event that names the operator. kind: "kernel", "delegate", "delegated" or "control".
    linked: the edge graph, which distinguishes the parts of a decomposed operator; None without a
    record. paths: the paths of its nodes, by the node's `id`.
    """
    if linked is not None and linked.run_nodes is not None:
        attribution = linked.run_nodes.shown_at(attribution, key.instruction)
    nodes = attribution.nodes
    name = key.name or attribution.operator or (str(key.delegate_id) if key.delegate_id else "")
    if name == "OPERATOR_CALL":  # the runtime's own operators log no name
        name = attribution.operator or name
    if kind == "delegate":
        op = attribution.backend_id or "delegate call"
    elif kind == "delegated":
        op = key.name or str(key.delegate_id)
    else:
        op = stem(attribution.operator or key.name.removeprefix(KERNEL_PREFIX)) or key.name
    stack = source_lines(nodes[-1].stack_trace) if nodes else ()
    return Stop(
        position=0,
        instruction=key.instruction,
        name=name or f"instruction {key.instruction}",
        op=op,
        kind=kind,
        nodes=nodes,
        lines=attribution.lines,
        stack=stack or tuple(attribution.stack),
        module=common_module(attribution.located),
        handles=tuple(handle_list(attribution.debug_handles)),
        backend=attribution.backend_id,
        delegate_id=key.delegate_id,
        depth=0 if key.delegate_id is None else 1,
        path=paths.get(id(nodes[-1]), nodes[-1].name) if nodes else None,
    )


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run that a target can walk. number: what `run N` takes. total: duration in ticks of the
    dump's clock; None if it was not measured. call: its number among the calls of a language model,
    with their phase, the position of the first token and the number of tokens; None if it is not
    known to be one. failed: where and why an operator ended the run; None if none
    did."""

    number: int
    method: str
    stops: int
    total: int | None = None
    call: int | None = None
    phase: str | None = None
    token_position: int | None = None
    tokens: int | None = None
    failed: str | None = None


class Failure(NamedTuple):
    """An operator that failed, and ended the run. stop: it has no value; None if the failed
    instruction is not an operator. text: where and why."""

    stop: Stop | None
    text: str

    @property
    def summary(self) -> str:
        """The first line of its text."""
        return self.text.split("\n", 1)[0]


class Watch(NamedTuple):
    """A condition on numbers that a target may test itself, at the stops for which `at` is true.
    bound: for BELOW and ABOVE."""

    condition: Condition
    bound: float
    at: Callable[[Stop], bool]


class Target(ABC):
    """A run that can be walked. Values are numpy arrays, `RemoteTensor`s, numbers, or lists of
    them. The methods here are those of targets that keep all values in this process.

    kind: "recorded", "live" or "runtime". is_past: the run was over before it is walked, so every
    value is available at any stop and none can be changed. keeps_values: values of earlier stops
    stay available. is_reference: PyTorch runs, not the device. interrupted: Ctrl-C ended the last
    `go` or `reach`; the run stands where that left it. failure: ended the run after the last stop.
    """

    kind: ClassVar[str]
    is_past: ClassVar[bool] = False
    keeps_values: ClassVar[bool] = True
    is_reference: ClassVar[bool] = False
    interrupted = False
    failure: Failure | None = None

    @property
    @abstractmethod
    def method(self) -> str:
        """The method that runs; "" if unknown."""

    # -- runs

    @property
    @abstractmethod
    def runs(self) -> Sequence[RunInfo]:
        """All runs, in the order of the target."""

    @property
    @abstractmethod
    def run(self) -> int:
        """Number of the selected run."""

    @abstractmethod
    def choose(self, run: int) -> None:
        """Select a run. Raises `UsageError` for an unknown number."""

    @property
    @abstractmethod
    def next_run(self) -> int | None:
        """Return the number of the run that starts from the state that this one leaves; None if
        there is none.
        """

    @abstractmethod
    def go_on(self) -> None:
        """Begin the next run, after the end of this one."""

    def add_call(self, inputs: Any = None) -> None:
        """Add a run after all others, on other inputs or the last run's. Raises `UsageError`
        for recorded runs."""
        raise UsageError(
            "no run can be added to recorded runs", hint="target runtime, or target live"
        )

    @abstractmethod
    def save(self) -> Any:
        """The state of the run at the current stop, for `restore`."""

    @abstractmethod
    def restore(self, saved: Any) -> None:
        """Make the state of the run what it was when it was saved. Raises as `reach`."""

    # -- stops

    @property
    @abstractmethod
    def stops(self) -> Sequence[Stop]:
        """Stops of the selected run in order of execution, including those still to come."""

    @property
    def position(self) -> int | None:
        """Current stop of a run that keeps no values; None before the first, and for all other
        targets."""
        return None

    @abstractmethod
    def restart(self) -> None:
        """Begin the selected run anew, without the values that were set."""

    @abstractmethod
    def reach(self, position: int) -> None:
        """Go to a stop; a recorded run does nothing.

        Raises `RuntimeFailure` with the failing operator when the program fails on the way."""

    @abstractmethod
    def go(
        self, start: int, wanted: Callable[[Stop], bool], watches: Sequence[Watch] = ()
    ) -> int | None:
        """Go from the stop `start` (-1: from before the first) to the next stop that is wanted or
        where a watch is true. Return its position; None when the run is over.

        `wanted` and the watches' `at` must return the same for all passes of an instruction. A
        target may stop too often, but never skips a wanted stop. Raises the same errors as `reach`.
        """

    def interrupt(self) -> None:
        """End a run that another thread waits for, as Ctrl-C does."""
        self.interrupted = True

    def close(self) -> None:  # noqa: B027 (only the runtime holds a runner)
        """Release the runner; idempotent. Only `restart` may follow."""

    # -- values

    @abstractmethod
    def device_values(self, position: int) -> list[Any]:
        """Outputs of a stop; empty if nothing was recorded."""

    def pairs_at(self, position: int) -> Mapping[int, Pair]:
        """Nodes of a stop's values, by index into `device_values`; a delegate's call may have
        several. Empty if unknown."""
        return {}

    def nodes_at(self, position: int) -> Sequence[str]:
        """Return the names of the nodes with values at a stop, as `value_of` takes them. Empty if
        only the stop's own node is known."""
        return ()

    def indices_at(self, position: int) -> Sequence[int]:
        """Indices in the method of a stop's `device_values`; empty if the values have none."""
        return ()

    @abstractmethod
    def given_inputs(self, given: Sequence[Any], bundle: BundledFile | None) -> Any:
        """Return the inputs of the run, for the reference; `given`: the user's, a set for each
        call. None if unknown."""

    @abstractmethod
    def earlier_inputs(self, given: Sequence[Any], bundle: BundledFile | None) -> Sequence[Any]:
        """Inputs of the runs that the state of this one comes from, in order. Raises
        `NumericGapError` if they are not known."""

    @abstractmethod
    def value_of(self, node: str, position: int) -> Any:
        """Value of an edge node at a stop, in its last pass. Raises `MissingDataError` with the
        reason if there is none."""

    def is_written_back(self, node: str, position: int) -> bool:
        """Return True for state of the graph with another value at a stop than at the start."""
        return False

    def value_at(self, index: int) -> Any:
        """Current value by its index in the method.

        Raises `UsageError` for targets without such indices and for an unknown index,
        `MissingDataError` for a value that is not computed yet or overwritten."""
        raise UsageError(
            "only a run on the runtime has values by index",
            hint="target runtime, then run or start",
        )

    @abstractmethod
    def patch(self, node: str | int, position: int, value: Any) -> None:
        """Replace the value of a node ("": the stop's own), or of an index, for everything that
        runs after the stop.

        Raises `UsageError` if the target cannot, and for a value of another shape."""

    # -- for the user

    @property
    def differences(self) -> Sequence[object]:
        """Operators that gave different results when they were repeated, since the run began."""
        return ()

    def take_news(self) -> list[str]:
        """Messages for the user, each returned once."""
        return []

    def about(self) -> list[str]:
        """Further facts for `info target`: location, inputs, differences."""
        return []


class CallsTarget(Target):
    """A target that runs a method on the inputs of several calls: run N runs call N."""

    def __init__(self, method: str, calls: Sequence[Any]) -> None:
        self._method, self._run = method, 0
        self._calls: list[Any] = list(calls)

    @property
    def method(self) -> str:
        return self._method

    @property
    def run(self) -> int:
        return self._run

    def choose(self, run: int) -> None:
        calls = len(self._calls)
        if not 0 <= run < calls:
            there = "there is one run, 0" if calls == 1 else f"runs are 0 to {calls - 1}"
            raise UsageError(
                f"run {run} does not exist",
                hint=f"{there}: one for each set of inputs; run --keep adds one",
            )
        self._run = run

    @property
    def next_run(self) -> int | None:
        return self.run + 1 if self.run + 1 < len(self._calls) else None
