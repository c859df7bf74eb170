"""A reference run for the debugger: it stops after any node, values can be replaced, and computed
values are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx.node import Node, map_arg
from torch.utils import _pytree as pytree

from etscope.bridge.reference.reference import (
    OPERATOR_ERRORS,
    arrays_of,
    failed_operator,
    run_reference,
    writes_in_place,
)
from etscope.bridge.tensors import tensor_from_numpy
from etscope.errors import MissingDataError, ReferenceFailure, UsageError
from etscope.formats.program.input_validation import broadcast_replacement

_MOST_BYTES = 4 << 30  # of values that are kept


class LiveRun:
    """One run of a program, node by node. names: the reference graph's names of its nodes. state:
    what the runs before left, buffers by name; by default the program's own.

    Computed values are kept, so going back reads them again. A patch drops the values after it:
    they are computed again from the patched value.
    """

    def __init__(
        self,
        program: ExportedProgram,
        inputs: Any,
        names: Mapping[str, str],
        state: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self._program, self._inputs, self._names = program, inputs, names
        self._first_state = {} if state is None else dict(state)
        # A later node may then write to a value that was returned.
        self._copies = writes_in_place(program.graph_module)
        self._values: list[tuple[str, Any]] = []
        self._patches: dict[int, Any] = {}
        self._bytes = 0
        self._ended = self._broken = False
        self._failure: ReferenceFailure | None = None
        self._run = self._started()
        self._next: Any = None  # replaces the last value

    @property
    def computed(self) -> int:
        """The number of nodes that have run."""
        return len(self._values)

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """State for the next run, when all nodes have run: buffers by name."""
        return self._state

    def advance(self) -> str | None:
        """Run the next node and return its name, None at the end.

        Raises `ReferenceFailure` when the operator fails, then each time, and `MissingDataError`
        when the values no longer fit in memory.
        """
        if self._failure is not None:
            raise self._failure
        if self._ended:
            return None
        try:
            name, value = self._resume()
        except StopIteration:
            self._ended = True
            return None
        self._bytes += sum(
            leaf.nbytes for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)
        )
        if self._bytes > _MOST_BYTES:
            raise MissingDataError(
                f"the values of this run take more than {_MOST_BYTES >> 30} GiB",
                hint="pass smaller inputs: target live INPUTS",
            )
        if self._copies:
            value = pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, value)
        name = self._names.get(name, name)
        self._values.append((name, value))
        return name

    def value(self, position: int) -> Any:
        """The value of the node that ran as number `position`: arrays, numbers, or a list."""
        return arrays_of(self._values[position][1])

    def input(self, name: str) -> Any:
        """The value of a placeholder: a user's input, or a weight or other state at the start.
        None for a name that is not a placeholder's."""
        signature = self._program.graph_signature
        given = dict(zip(signature.user_inputs, pytree.tree_leaves(self._inputs), strict=False))
        if name in given:
            return arrays_of(given[name])
        for spec in signature.input_specs:
            if getattr(spec.arg, "name", None) == name and spec.target is not None:
                for held in (
                    self._first_state,
                    self._program.state_dict,
                    self._program.constants,
                ):
                    if spec.target in held:
                        return arrays_of(held[spec.target])
        return None

    def again(self) -> LiveRun:
        """A separate run, at its start, with the values that were set in this one."""
        run = LiveRun(self._program, self._inputs, self._names, self._first_state)
        run._patches = dict(self._patches)
        return run

    @property
    def written_back(self) -> Mapping[str, str]:
        """The nodes that are written back to state at the end, by the state's placeholder."""
        signature = self._program.graph_signature
        names = {spec.target: getattr(spec.arg, "name", "") for spec in signature.input_specs}
        return {
            names[buffer]: self._names.get(node, node)
            for node, buffer in signature.buffers_to_mutate.items()
        }

    def call(self, name: str, value: Callable[[str], Any]) -> Any:
        """Call a node's operator. `value` returns an argument by the name of its node, or of the
        `getitem` that reads it from a node with several values.

        Raises `UsageError` for a node that runs a graph, or that is not in the program's own graph.
        """
        theirs = {ours: own for own, ours in self._names.items()}
        node = next(
            (n for n in self._program.graph.nodes if n.name == theirs.get(name, name)), None
        )
        if node is None or node.op != "call_function":
            raise UsageError(
                f"{name} is not an operator of the graph itself: it cannot be called",
                hint="gap has the local error of operators in branches and loops",
            )
        if any(used.op == "get_attr" for used in node.all_input_nodes):
            raise UsageError(f"{name} runs a graph: it cannot be called")

        def given(used: Node) -> Any:
            found = value(self._names.get(used.name, used.name))
            return pytree.tree_map_only(np.ndarray, tensor_from_numpy, found)

        try:
            with torch.no_grad():
                return arrays_of(
                    node.target(*map_arg(node.args, given), **map_arg(node.kwargs, given))
                )
        except OPERATOR_ERRORS as error:
            raise failed_operator(name, error) from error

    def patch(self, position: int, value: Any) -> None:
        """Replace a tensor by `value`, an array or a number, and drop the values of later nodes.
        For a node with several values: a list, where None keeps a value, or the only
        non-empty one.

        Raises `UsageError` if the node's value is not a tensor or `value` does not fit its shape.
        """
        name, old = self._values[position]
        new = _fitted(name, old, value)
        self._patches = {at: v for at, v in self._patches.items() if at < position}
        self._patches[position] = new
        if position + 1 == len(self._values) and not self._ended and self._failure is None:
            self._values[position] = (name, new)
            self._next = new
            return
        # Later nodes have read the old value, so the run starts again, with the patches so far.
        self._again(position + 1)

    def _again(self, count: int) -> None:
        """Start again, with the patches so far, and run `count` nodes."""
        self._values.clear()
        self._bytes, self._ended, self._broken, self._failure = 0, False, False, None
        self._run, self._next = self._started(), None
        while len(self._values) < count:
            self.advance()

    def _started(self) -> Generator[tuple[str, Any], Any, None]:
        self._state = dict(self._first_state)
        return run_reference(self._program, self._inputs, self._state)

    def _resume(self) -> tuple[str, Any]:
        if self._broken:
            self._again(len(self._values))
        sent, self._next = self._next, None
        try:
            name, value = self._run.send(sent)
        except KeyboardInterrupt:
            self._broken = True  # an interrupted run cannot go on
            raise
        except ReferenceFailure as error:
            name = self._names.get(error.node, error.node)
            self._failure = ReferenceFailure(name, error.reason)
            raise self._failure from error
        patch = self._patches.get(len(self._values))
        if patch is not None:
            value = self._next = patch
        return name, value


def _fitted(name: str, old: Any, value: Any) -> Any:
    """The value in the shape and type of the one that it replaces."""
    if isinstance(old, (list, tuple)):
        full = [at for at, one in enumerate(old) if isinstance(one, torch.Tensor) and one.numel()]
        if isinstance(value, (list, tuple)) and len(value) == len(old):
            given = {at: value[at] for at in full if value[at] is not None}
        elif len(full) == 1:
            given = {full[0]: value}
        else:
            raise UsageError(f"{name} has {len(old)} values: give a list of as many")
        return type(old)(
            _fitted(name, one, given[at]) if at in given else one for at, one in enumerate(old)
        )
    if not isinstance(old, torch.Tensor):
        raise UsageError(f"{name} is not a tensor: it cannot be set")
    fitting = broadcast_replacement(name, value, tuple(old.shape))
    return tensor_from_numpy(np.ascontiguousarray(fitting)).to(old.dtype)
