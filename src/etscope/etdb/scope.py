"""The scope of expressions: values of the run and of the reference, and the gaps between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from etscope.analysis.matching.matching import Pair
from etscope.analysis.metrics import Metric, find_metric, measure
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.debugger import Debugger
from etscope.etdb.expression import (
    CALL,
    CURRENT,
    HANDLE,
    INSTRUCTION,
    Expression,
    Outputs,
    evaluate,
)
from etscope.etdb.output import value_lines
from etscope.etdb.python_code import python_names
from etscope.etdb.targets.recorded import NO_DUMP, NO_DUMP_HINT
from etscope.model.graph import VIEWS, stem
from etscope.units import count as counted

ALL = "all"  # `$all`: also the outputs that conditions leave out


class DebuggerScope:
    """Names and functions at the current stop."""

    def __init__(self, debugger: Debugger, frame: int | None = None) -> None:
        """frame: of the stack; variables of its Python come before nodes of the same name. None for
        nodes first, and the variables of the selected frame."""
        self._debugger, self._frame = debugger, frame
        self.from_reference: list[str] = []  # see `value_for_call`

    def value(self, name: str) -> Any:
        """Value of a name in the run that is walked."""
        for prefix in (HANDLE, INSTRUCTION, CURRENT):
            if name.startswith(prefix):
                return self._special(prefix, name.removeprefix(prefix))
        if name == CALL:
            return self._debugger.some_target().run
        path = self._path_of(name)
        return self._marked(path, single(self._of_node(path)))

    def _path_of(self, name: str) -> str:
        """The path of a node, or of the value of a variable of the model's Python."""
        debugger = self._debugger
        if self._frame is not None:
            own = python_names(debugger, self._frame).get(name)
            return debugger.path_named(name) if own is None else own
        try:
            return debugger.path_named(name)
        except UsageError:
            own = python_names(debugger, debugger.frame).get(name)
            if own is None:
                raise
            return own

    def function(self, name: str) -> Callable[..., Any] | None:
        """Return one of the functions `gap`, `ref`, `device`, `value` and `weight`."""
        functions: dict[str, Callable[..., Any]] = {
            "gap": self.gap,
            "ref": self.reference,
            "device": self.device,
            "value": self._value,
            "weight": self._weight,
        }
        return functions.get(name)

    # -- functions

    def _value(self, name: Any) -> Any:
        """value("NAME"), or value(12): the method's value of that index, on the runtime."""
        if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
            return single(self._debugger.some_target().value_at(int(name)))
        return self.value(str(name))

    def device(self, name: Any = None) -> Any:
        """device(NAME): the device's value of a node or, without a name, of the current operator.
        In a live run it comes from the dump; with several calls, from the run at the same place.
        """
        debugger = self._debugger
        if debugger.target is not None and not debugger.target.is_reference:
            return self._current() if name is None else self.value(str(name))
        if debugger.recorded is None:
            raise MissingDataError(NO_DUMP, hint=NO_DUMP_HINT)
        path, loop_pass = self._node_of(name)
        calls = [] if debugger.target is None else debugger.target.runs
        if len(calls) > 1:  # each with its own recorded run
            recorded, call = debugger.recorded, calls[debugger.some_target().run].number
            place = call - recorded.calls_before
            if not 0 <= place < len(recorded.runs):
                raise MissingDataError(
                    f"the dump has {counted(len(recorded.runs), 'run')}, and none of call {call}"
                )
            recorded.choose(recorded.runs[place].number)
        return single(debugger.recorded.value_in_pass(path, loop_pass))

    def reference(self, name: Any = None) -> Any:
        """ref(NAME): the reference's value of a node or, without a name, of the current
        operator."""
        values = self._debugger.reference
        if name is None and (outputs := self.outputs_here()):
            found: list[Any] = []
            for pair in outputs:
                if pair is None:
                    found.append(None)
                    continue
                value = values.value(pair.node, self._debugger.here().loop_pass)
                found.append(value if pair.element is None else value[pair.element])
            return found
        return single(self._reference_of(*self._node_of(name)))

    def _reference_of(self, node: str, loop_pass: int) -> Any:
        debugger, values = self._debugger, self._debugger.reference
        target, position = debugger.target, debugger.position
        if target is not None and position is not None and target.is_written_back(node, position):
            return values.value_written_back(node)
        return values.value(node, loop_pass)

    def outputs_here(self) -> list[Pair | None]:
        """Nodes of the outputs at a delegate's call with several; None for an output without a
        node. Empty at all other stops."""
        stop, target = self._debugger.here(), self._debugger.target
        if stop.kind != "delegate" or target is None or target.is_reference:
            return []
        count = len(target.device_values(stop.position))
        pairs = target.pairs_at(stop.position)
        return [pairs.get(index) for index in range(count)] if count > 1 else []

    def gap(self, metric: Any = "sqnr", name: Any = None) -> Any:
        """gap(METRIC, NAME): distance of the run's value from the reference's. NaN in only one of
        them is the worst distance, so that conditions on the gap hold there."""
        debugger = self._debugger
        found = find_metric(str(metric))
        if name is not None:
            nodes = [self._node_of(name)]
        else:  # a delegate's call may give the values of several nodes
            stop, target = debugger.here(), debugger.target
            names = target.nodes_at(stop.position) if target is not None else ()
            nodes = [(node, stop.loop_pass) for node in names] or [self._node_of(None)]
        numbers = []
        for node, loop_pass in nodes:
            pair = self._reference_of(node, loop_pass), self._of_node(node)
            numbers.append(gap_between(found, *(values_read(debugger, node, one) for one in pair)))
        return found.worst(numbers)

    def _weight(self, name: Any) -> Any:
        """weight("fc.weight"): a parameter or buffer by its name in the model."""
        linked = self._debugger.edge(self._debugger.method)
        placeholders = {fqn: node for node, fqn in linked.graph.parameters.items()}
        if str(name) not in placeholders:
            raise UsageError(
                f"the model has no weight {str(name)!r}",
                hint="weights are: " + ", ".join(list(placeholders)[:20]),
            )
        return self._debugger.reference.value(placeholders[str(name)])

    @property
    def inputs_of_reference(self) -> tuple[str, ...]:
        """A sentence on inputs of a `call` that are the reference's; empty if there are none."""
        if not self.from_reference:
            return ()
        names = ", ".join(dict.fromkeys(self.from_reference))
        return (f"of the reference, since the run has no value of it: {names}",)

    def value_for_call(self, name: str) -> Any:
        """Value of an input for `call`: the run's, also of a view of one. If the run has none, the
        reference's, and its name is added to `from_reference`. Weights always come from the
        reference: other weights of the program are a separate error. State that the run keeps
        is the run's, on the runtime."""
        reference, target = self._debugger.reference, self._debugger.on_runtime
        parameters = self._debugger.edge(self._debugger.method).graph.parameters
        if name in parameters and (target is None or not reference.is_state(name)):
            return reference.value(name)
        try:
            return self._of_node(name)
        except MissingDataError:
            node = self._debugger.nodes().get(name)
            if node is not None and stem(node.op) in VIEWS and "/" not in name:
                # Memory planning removed the view's instruction.
                return single(self._debugger.reference.call(name, self.value_for_call))
            whole, index = self._element_of(name) or (name, None)
            found = self._debugger.reference.value(whole)
            self.from_reference.append(name)
            return found if index is None else found[index]

    def _element_of(self, name: str) -> tuple[str, int] | None:
        """For a name of one of a node's several values: the node and the index."""
        node = self._debugger.nodes().get(name)
        if node is None or node.kind != "call_function" or name.rpartition("/")[2] == node.name:
            return None
        names = [value.name for value in node.outputs]
        return (node.name, names.index(name)) if name in names else None

    # -- names

    def _special(self, prefix: str, rest: str) -> Any:
        debugger = self._debugger
        if prefix == HANDLE:
            return single(self._of_node(self.node_of_handle(int(rest))))
        if prefix == INSTRUCTION:
            return single(self._of_instruction(int(rest)))
        if rest == "":
            return self._current()
        if rest == ALL:
            return list(debugger.some_target().device_values(debugger.here().position))
        if rest.isdecimal():
            values = debugger.some_target().device_values(debugger.here().position)
            if int(rest) >= len(values):
                raise UsageError(
                    f"the operator gave {counted(len(values), 'value')}: $0 is the first"
                )
            return values[int(rest)]
        if rest not in debugger.variables:
            raise UsageError(f"${rest} was not set", hint=f"set ${rest} = EXPR")
        return debugger.variables[rest]

    def node_of_handle(self, handle: int) -> str:
        """The last node with a debug handle. Raises `UsageError` if there is none."""
        found = [
            name
            for name, node in self._debugger.nodes().items()
            if node.debug_handle == handle and name.rpartition("/")[2] == node.name
        ]
        if not found:
            raise UsageError(f"no node has the debug handle {handle}", hint="info ops lists them")
        return found[-1]

    def _current(self) -> Any:
        debugger = self._debugger
        stop, target = debugger.here(), debugger.some_target()
        if target.failure is not None and target.failure.stop == stop:
            raise MissingDataError(
                f"{stop.node or stop.name} failed: it has no value",
                hint="print NAME shows a value that the operator read",
            )
        values = target.device_values(stop.position)
        if values:
            return self._marked(stop.path, single(values))
        if stop.path is None:
            raise MissingDataError(f"nothing was recorded of {stop.name}")
        return self._of_node(stop.path)

    def _marked(self, path: str | None, value: Any) -> Any:
        """Mark the outputs of an operator with several that a condition is about: the floats that
        something reads; else all that something reads; without a graph, the first."""
        if not isinstance(value, list) or not any(np.ndim(one) for one in value if one is not None):
            return value
        read = value
        if self._debugger.record is None:
            read = [value[0], *[None] * (len(value) - 1)]
        elif path is not None:
            read = values_read(self._debugger, path, value)
        known = [index for index, one in enumerate(read) if one is not None]
        kinds = {index: np.dtype(getattr(value[index], "dtype", object)).kind for index in known}
        floats = [index for index in known if kinds[index] in "fV"]
        return Outputs(value, floats or known or range(len(value)))

    def _of_instruction(self, number: int) -> list[Any]:
        debugger = self._debugger
        target = debugger.some_target()
        stops = [s for s in target.stops if s.instruction == number and s.depth == 0]
        if not stops:
            raise UsageError(f"no stop of this run belongs to instruction {number}")
        at = debugger.position if debugger.position is not None else len(target.stops)
        over = [stop for stop in stops if debugger.ended or stop.position <= at]
        if not over:
            raise MissingDataError(f"instruction {number} has not run yet")
        values = target.device_values(over[-1].position)
        if not values:
            raise MissingDataError(f"nothing was recorded for instruction {number}")
        return values

    def _of_node(self, name: str) -> Any:
        debugger = self._debugger
        element = self._element_of(name)
        if element is not None:
            found = self._of_node(element[0])[element[1]]
            if found is None:
                raise MissingDataError(
                    f"{name} has no value here, but other values of {element[0]} have one",
                    hint="info tensors lists the existing values",
                )
            return found
        node = debugger.nodes().get(name)
        if node is not None and node.kind == "placeholder" and debugger.on_runtime is None:
            return debugger.reference.value(name)
        target = debugger.some_target()
        last = len(target.stops) - 1
        return target.value_of(name, debugger.position if debugger.stop is not None else last)  # type: ignore[arg-type]

    def _node_of(self, name: Any) -> tuple[str, int]:
        """Find the node that an argument names (None: of the current stop), and its loop pass."""
        debugger = self._debugger
        if name is None:
            stop = debugger.here()
            if stop.path is None:
                raise MissingDataError(f"no node of the graph is known for {stop.name}")
            return stop.path, stop.loop_pass
        text = str(name)
        if text.startswith(HANDLE):
            text = self.node_of_handle(int(text.removeprefix(HANDLE)))
        elif text.startswith((CURRENT, INSTRUCTION)):
            raise UsageError("take the name of a node, or %HANDLE")
        else:
            text = self._path_of(text)
        passes = [
            s.loop_pass
            for s in debugger.some_target().stops
            if s.path == text and (debugger.stop is None or s.position <= debugger.stop.position)
        ]
        return text, passes[-1] if passes else 0


def display_lines(debugger: Debugger, number: int, expression: Expression) -> list[str]:
    """Lines of one `display`; the reason if it has no value."""
    try:
        value = evaluate(expression, DebuggerScope(debugger))
        lines = value_lines(value, width=debugger.columns())
    except EtscopeError as error:
        lines = [f"({error.message})"]
    head = f"{number}: {expression} = "
    return [head + lines[0], *(f"    {line}" for line in lines[1:])]


# -- gaps


def gap_between(metric: Metric, reference: Any, value: Any) -> float | None:
    """Return the distance of two values; for lists the worst of their elements. NaN at equal
    positions does not count, other NaN is the worst. None without numbers to compare."""
    reference, value = single(reference), single(value)
    if isinstance(value, (list, tuple)) or isinstance(reference, (list, tuple)):
        if not (isinstance(value, (list, tuple)) and isinstance(reference, (list, tuple))):
            return None  # several values against one
        numbers = [gap_between(metric, r, v) for r, v in zip(reference, value, strict=False)]
        return metric.worst(numbers)
    if value is None or reference is None or (np.size(value) == 0 and np.size(reference) == 0):
        return None
    number = measure(metric, reference, value)
    if number is None or not math.isnan(number):
        return number
    worst = -math.inf if metric.better == "higher" else math.inf
    pair = [np.asarray(one) for one in (reference, value)]
    if any(one.dtype.kind not in "fV" for one in pair):
        return worst
    wide = [one.astype(np.float64) for one in pair]
    nan = [np.isnan(one) for one in wide]
    if not nan[0].any() or not np.array_equal(nan[0], nan[1]):
        return worst
    number = measure(metric, *(np.where(nan[0], 0.0, one) for one in wide))
    return worst if number is None or math.isnan(number) else number


def values_read(debugger: Debugger, name: str, value: Any) -> Any:
    """Return the value of a node. If it is a tuple, elements that nothing reads become None: they
    may be zero up to rounding, like the mean of a layer norm, and comparing them would say nothing.
    """
    node = debugger.nodes().get(name)
    if not isinstance(value, (list, tuple)) or node is None or len(value) != len(node.outputs):
        return value
    graph = debugger.edge(debugger.method).graph.graph_of(node)
    read = {*graph.outputs}.union(*(graph.by_name[user].inputs for user in graph.users[node.name]))
    return [one if of.name in read else None for one, of in zip(value, node.outputs, strict=True)]


def single(value: Any) -> Any:
    """The only non-empty one of several values, or the list of them: some operators have outputs
    that are always empty."""
    if not isinstance(value, (list, tuple)):
        return value
    full = [
        one
        for one in value
        if one is not None and (isinstance(one, (list, tuple)) or np.size(one) > 0)
    ] or list(value)
    return full[0] if len(full) == 1 else list(value)
