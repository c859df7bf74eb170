"""What the debugger walks: a target is one run of a program, as a line of stops.

A stop stands where an operator has just run: its results are there, and nothing has read them yet.
All targets are walked by the same commands; what one of them cannot do it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.matching import Pair
from etscope.analysis.profile.correlate import Attribution, handle_list
from etscope.analysis.profile.source_location import common_module
from etscope.errors import UsageError
from etscope.etdb.protocol.messages import Condition, Core, Statistics
from etscope.formats.program.bpte import BundledFile
from etscope.model.event_table import KERNEL_PREFIX, EventKey
from etscope.model.graph import Node, SourceLine, source_lines, stem

__all__ = ["stop_of"]


@dataclass(frozen=True, slots=True)
class Stop:
    """An operator that has run.

    position: counts the stops of a run from 0. instruction: of the program; None where it has
    none. name: what the runtime or the graph calls it ("native_call_add.out", "aten_add_tensor").
    op: the operator for people ("add", "aten.add.Tensor"). depth: 1 for an operator inside a
    delegate's call, whose own stop comes after those inside. loop_pass: how often it ran before in
    the same run. ticks: its time in units of the dump's clock. nodes: of the edge graph, last the
    one whose value it gives. path: what that value is found by, as "submodule_0/add" in a branch.
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
        """The node whose value the stop gives: the only one that it is of."""
        return self.nodes[-1].name if self.nodes else None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run that the target can walk. `number` is what people call it; `total` its time in ticks
    of the dump's clock, None where nothing timed it."""

    number: int
    method: str
    stops: int
    total: int | None = None


class Watch(NamedTuple):
    """A condition on numbers that a target may look at where it runs: of everything that the stops
    for which `at` holds give. bound: of BELOW and ABOVE."""

    condition: Condition
    bound: float
    at: Callable[[Stop], bool]


class Target(Protocol):
    """A run that can be walked. Values are numpy arrays or `FarTensor`s, numbers, or lists of them.

    kind: "recorded", "live" or "runtime". method: of the run that is walked, "" where nothing
    tells. is_past: the run was over before it is walked: every value is there at any stop, and none
    can be changed. keeps_values: what ran stays at hand, wherever the run stands. is_reference: it
    is PyTorch that runs, not the device. interrupted: the last
    `go` or `reach` was ended by Ctrl-C, and stands where that left it.
    """

    @property
    def kind(self) -> str: ...

    @property
    def is_past(self) -> bool: ...

    @property
    def keeps_values(self) -> bool: ...

    @property
    def is_reference(self) -> bool: ...

    @property
    def interrupted(self) -> bool: ...

    @property
    def position(self) -> int | None:
        """The stop that a run which keeps no values stands at; None before the first, and of
        targets that stand nowhere."""
        ...

    @property
    def differences(self) -> Sequence[object]:
        """What gave something else when it ran again, since the run began."""
        ...

    def take_news(self) -> list[str]:
        """Sentences that a person must be told, each once: differences among them."""
        ...

    def about(self) -> list[str]:
        """What else a person may want to know: where it runs, on what inputs, for how long."""
        ...

    def core(self) -> Core:
        """The dump of the run up to here. Raises `UsageError` for runs that are not of the
        runtime."""
        ...

    @property
    def method(self) -> str: ...

    @property
    def runs(self) -> Sequence[RunInfo]:
        """All runs, in the order of the target."""
        ...

    @property
    def run(self) -> int:
        """The number of the run that is walked."""
        ...

    @property
    def stops(self) -> Sequence[Stop]:
        """The stops of the run in order of execution, known before they are reached."""
        ...

    def choose(self, run: int) -> None:
        """Walk another run. Raises `UsageError` for one that is not there."""
        ...

    def close(self) -> None:
        """Let go of what runs elsewhere; idempotent. Nothing is asked for afterwards, but for
        `restart`."""
        ...

    def interrupt(self) -> None:
        """From another thread: end a run that is waited for, as Ctrl-C does."""
        ...

    def restart(self) -> None:
        """Begin the run that is walked anew, without what was set. Nothing has run then."""
        ...

    def reach(self, position: int) -> None:
        """Go to a stop: a live target runs up to it, a recorded one does nothing.

        Raises `RuntimeFailure` when the program fails on the way, with the stop it failed at."""
        ...

    def go(
        self, start: int, wanted: Callable[[Stop], bool], watches: Sequence[Watch] = ()
    ) -> int | None:
        """Go on from the stop `start` (-1: from before the first) to the next stop that is wanted,
        or that gives numbers one of the watches is for; its position, None when the run is over.

        `wanted` and the watches' `at` tell the same of all passes of an instruction. A target may
        come to stand at a stop that was not asked for, but passes over none that was. Raises as
        `reach` does."""
        ...

    def device_values(self, position: int) -> list[Any]:
        """What the stop gave: its outputs, one by one; empty where nothing was recorded."""
        ...

    def pairs_at(self, position: int) -> Mapping[int, Pair]:
        """Of which nodes the values of a stop are, by their place among `device_values`; of a
        delegate's call there may be several. Empty where nothing tells."""
        ...

    def nodes_at(self, position: int) -> Sequence[str]:
        """The nodes that a stop gives values of, by the names that `value_of` takes. Empty where
        the stop's own node is all there is to know."""
        ...

    def given_inputs(self, given: Any, bundle: BundledFile | None) -> Any:
        """What the run was given, for the reference: `given` is what a person said. None where
        nothing tells."""
        ...

    def value_of(self, node: str, position: int) -> Any:
        """The value of a node of the edge graph as it is at a stop.

        Raises `MissingDataError` where the target has none, and says why."""
        ...

    def value_at(self, index: int) -> Any:
        """The value of that index in the method, as it is where the run stands.

        Raises `UsageError` for targets whose values have no index, and for one that is not there;
        `MissingDataError` for a value that is not computed yet, or gone."""
        ...

    def indices_at(self, position: int) -> Sequence[int]:
        """The indices in the method of a stop's `device_values`; empty where values have none."""
        ...

    def patch(self, node: str | int, position: int, value: Any) -> None:
        """Put another value in the place of a node's ("": of what the stop gave), or of the value
        of an index, for all that runs after the stop.

        Raises `UsageError` for targets that cannot, and values of another shape."""
        ...


class Kept:
    """The part of targets that keep all values, in this process."""

    keeps_values = True
    interrupted = False
    position: int | None = None
    differences: Sequence[object] = ()

    def take_news(self) -> list[str]:
        """There are none."""
        return []

    def about(self) -> list[str]:
        """There is no more."""
        return []

    def value_at(self, index: int) -> Any:
        """Values have no index."""
        raise UsageError(
            "only a run on the runtime has values by index",
            hint="target runtime, then run or start",
        )

    def indices_at(self, position: int) -> Sequence[int]:
        """There are none."""
        return ()

    def core(self) -> Core:
        """There is none."""
        raise UsageError(
            "only a run on the runtime leaves a core", hint="target runtime, then run or start"
        )

    def interrupt(self) -> None:
        """What runs here ends by itself."""

    def close(self) -> None:
        """Nothing is held."""


@runtime_checkable
class FarTensor(Protocol):
    """A tensor whose numbers are elsewhere. numpy's functions fetch all of them."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def ndim(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def __getitem__(self, index: Any) -> Any:
        """As numpy's. Of whole numbers and slices, only what they pick is fetched."""
        ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All of it."""
        ...

    def statistics(self) -> Statistics:
        """What its numbers are like, computed where they are."""
        ...


def is_far(value: Any) -> TypeGuard[FarTensor]:
    """Whether a value's numbers are elsewhere."""
    return not isinstance(value, np.ndarray) and isinstance(value, FarTensor)


# What there is to say of an operator at which a run stops, from what is known behind its event.


def stop_of(
    key: EventKey,
    kind: str,
    found: Attribution,
    linked: LinkedGraph | None,
    paths: Mapping[int, str],
) -> Stop:
    """The stop at an operator, of no run yet.

    key: the event that names it. kind: "kernel", "delegate", "delegated" or "control". linked: the
    edge graph, which tells the parts of an operator that was decomposed from each other; None
    without a record. paths: of its nodes, by their `id`.
    """
    stop = _stop(key, kind, replace(found, nodes=_nodes(key, found, linked)))
    return replace(stop, path=_path(stop, paths))


def _nodes(key: EventKey, found: Attribution, linked: LinkedGraph | None) -> tuple[Node, ...]:
    if linked is None or key.delegate_id is not None or key.instruction is None:
        return found.nodes
    return linked.ran(key.instruction) or found.nodes


def _stop(key: EventKey, kind: str, found: Attribution) -> Stop:
    nodes = found.nodes
    stack = source_lines(nodes[-1].stack_trace) if nodes else ()
    name = key.name or found.operator or (str(key.delegate_id) if key.delegate_id else "")
    if name == "OPERATOR_CALL":  # of the runtime's own operators, which log no name
        name = found.operator or name
    return Stop(
        position=0,
        instruction=key.instruction,
        name=name or f"instruction {key.instruction}",
        op=_op(key, kind, found),
        kind=kind,
        nodes=nodes,
        lines=found.lines,
        stack=stack or tuple(found.stack),
        module=common_module(nodes),
        handles=tuple(handle_list(found.debug_handles)),
        backend=found.backend_id,
        delegate_id=key.delegate_id,
        depth=0 if key.delegate_id is None else 1,
    )


def _path(stop: Stop, paths: Mapping[int, str]) -> str | None:
    """What the stop's value is found by among those of its graph."""
    return paths.get(id(stop.nodes[-1]), stop.node) if stop.nodes else None


def _op(key: EventKey, kind: str, found: Attribution) -> str:
    if kind == "delegate":
        return found.backend_id or "delegate call"
    if kind == "delegated":
        return key.name or str(key.delegate_id)
    return stem(found.operator or key.name.removeprefix(KERNEL_PREFIX)) or key.name
