"""What names in expressions mean: values of the run that is walked, and of the reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from etscope.analysis.matching.matching import Pair
from etscope.analysis.metrics import Metric, find_metric, measure
from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.etdb.debugger import Debugger, Gap
from etscope.etdb.expressions.expression import CURRENT, HANDLE, INSTRUCTION, Expression, evaluate
from etscope.etdb.output import counted, value_lines
from etscope.etdb.targets.recorded import NO_DUMP, NO_DUMP_HINT
from etscope.etdb.targets.target import Stop, Target
from etscope.model.graph import VIEWS, stem


class DebuggerScope:
    """The scope of expressions at the current stop."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        self.not_the_run: list[str] = []

    def value(self, name: str) -> Any:
        """A name's value: of the device in a recorded run, of the run itself in a live one."""
        for prefix in (HANDLE, INSTRUCTION, CURRENT):
            if name.startswith(prefix):
                return self._special(prefix, name.removeprefix(prefix))
        return only(self._of_node(self._debugger.path_named(name)))

    def function(self, name: str) -> Callable[..., Any] | None:
        """`gap`, `ref`, `device`, `value` and `weight`."""
        functions: dict[str, Callable[..., Any]] = {
            "gap": self.gap,
            "ref": self.reference,
            "device": self.device,
            "value": self._named,
            "weight": self._weight,
        }
        return functions.get(name)

    # -- functions

    def _named(self, name: Any) -> Any:
        """value("NAME"), or value(12): the method's value of that index, on the runtime."""
        if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
            return only(self._debugger.some_target().value_at(int(name)))
        return self.value(str(name))

    def device(self, name: Any = None) -> Any:
        """device(NAME): what the device has, of the current operator without a name: in a live run
        the recorded one."""
        debugger = self._debugger
        if debugger.target is not None and not debugger.target.is_reference:
            return self._current() if name is None else self.value(str(name))
        if debugger.recorded is None:
            raise MissingDataError(NO_DUMP, hint=NO_DUMP_HINT)
        path, loop_pass = self._node_of(name)
        return only(debugger.recorded.value_in_pass(path, loop_pass))

    def reference(self, name: Any = None) -> Any:
        """ref(NAME): what the reference has, of the current operator without a name."""
        if name is None and (outputs := self.outputs_here()):
            return [None if one is None else self._reference_of(one) for one in outputs]
        node, loop_pass = self._node_of(name)
        return only(self._debugger.reference.value(node, loop_pass))

    def outputs_here(self) -> list[Pair | None]:
        """What each output of a delegate's call is, if it has several: None of one that has no
        partner in the graph. Of all other stops nothing."""
        stop, target = self._debugger.here(), self._debugger.target
        if stop.kind != "delegate" or target is None or target.is_reference:
            return []
        count = len(target.device_values(stop.position))
        pairs = target.pairs_at(stop.position)
        return [pairs.get(index) for index in range(count)] if count > 1 else []

    def _reference_of(self, pair: Pair) -> Any:
        value = self._debugger.reference.value(pair.node, self._debugger.here().loop_pass)
        return value if pair.element is None else value[pair.element]

    def gap(self, metric: Any = "sqnr", name: Any = None) -> Any:
        """gap(METRIC, NAME): how far the run's value is from the reference's. NaN that only one of
        them has is the worst there is, so that a condition on the gap holds there."""
        found = find_metric(str(metric))
        nodes = [self._node_of(name)] if name is not None else self._nodes_here()
        numbers = [
            decided(found, self._debugger.reference.value(node, loop_pass), self._of_node(node))
            for node, loop_pass in nodes
        ]
        return max((n for n in numbers if n is not None), key=found.badness, default=None)

    def _nodes_here(self) -> list[tuple[str, int]]:
        """The nodes whose values the current stop gave: those of a delegate's call may be many."""
        stop, target = self._debugger.here(), self._debugger.target
        names = target.nodes_at(stop.position) if target is not None else ()
        return [(name, stop.loop_pass) for name in names] or [self._node_of(None)]

    def _weight(self, name: Any) -> Any:
        """weight("fc.weight"): a parameter or buffer by its name in the model."""
        linked = self._debugger.files.edge(self._debugger.method)
        placeholders = {fqn: place for place, fqn in linked.graph.parameters.items()}
        if str(name) not in placeholders:
            raise UsageError(
                f"the model has no weight {str(name)!r}",
                hint="weights are: " + ", ".join(list(placeholders)[:20]),
            )
        return self._debugger.reference.value(placeholders[str(name)])

    def value_for_call(self, name: str) -> Any:
        """The run's value of a node, also of a view of one; or the reference's of what the run has
        none of, which `not_the_run` names then. Weights are always the reference's: those of a
        program that has others are its operator's own error."""
        if name in self._debugger.files.edge(self._debugger.method).graph.parameters:
            return self._debugger.reference.value(name)
        try:
            return self._of_node(name)
        except MissingDataError:
            if self._is_view(name):  # that memory planning left no instruction for
                return only(self._debugger.reference.call(name, self.value_for_call))
            node, index = self._element_of(name) or (name, None)
            found = self._debugger.reference.value(node)
            self.not_the_run.append(name)
            return found if index is None else found[index]

    def _is_view(self, name: str) -> bool:
        """Whether a node of the graph itself has the elements of its input in another shape."""
        node = self._debugger.nodes().get(name)
        return node is not None and stem(node.op) in VIEWS and "/" not in name

    def _element_of(self, name: str) -> tuple[str, int] | None:
        """Of a node that takes an element of another's values: that node, and which element."""
        node = self._debugger.nodes().get(name)
        if node is None or node.kind != "call_function" or name.rpartition("/")[2] == node.name:
            return None
        names = [value.name for value in node.outputs]
        return (node.name, names.index(name)) if name in names else None

    # -- names

    def _special(self, prefix: str, rest: str) -> Any:
        debugger = self._debugger
        if prefix == HANDLE:
            return only(self._of_node(self.node_of_handle(int(rest))))
        if prefix == INSTRUCTION:
            return only(self._of_instruction(int(rest)))
        if rest == "":
            return self._current()
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
        """The node with a debug handle, the last of them. Raises `UsageError` without one."""
        debugger = self._debugger
        found = [
            name
            for name, node in debugger.nodes().items()
            if node.debug_handle == handle and name.rpartition("/")[2] == node.name
        ]
        if not found:
            raise UsageError(f"no node has the debug handle {handle}", hint="info ops lists them")
        return found[-1]

    def _current(self) -> Any:
        debugger = self._debugger
        stop = debugger.here()
        values = debugger.some_target().device_values(stop.position)
        if values:
            return only(values)
        if stop.path is None:
            raise MissingDataError(f"nothing was recorded of {stop.name}")
        return self._of_node(stop.path)

    def _of_instruction(self, number: int) -> list[Any]:
        debugger = self._debugger
        target = debugger.some_target()
        stops = [s for s in target.stops if s.instruction == number and s.depth == 0]
        if not stops:
            raise UsageError(f"no stop of this run is of instruction {number}")
        at = debugger.position if debugger.position is not None else len(target.stops)
        over = [stop for stop in stops if debugger.ended or stop.position <= at]
        if not over:
            raise MissingDataError(f"instruction {number} has not run yet")
        values = target.device_values(over[-1].position)
        if not values:
            raise MissingDataError(f"nothing was recorded of instruction {number}")
        return values

    def _of_node(self, name: str) -> Any:
        debugger = self._debugger
        element = self._element_of(name)
        if element is not None:
            found = self._of_node(element[0])[element[1]]
            if found is None:
                raise MissingDataError(
                    f"{name} is not there: {element[0]} has other values, but not this one",
                    hint="info tensors lists what is there",
                )
            return found
        node = debugger.nodes().get(name)
        target = debugger.on_runtime
        if node is not None and node.kind == "placeholder" and target is None:
            return debugger.reference.value(name)
        target = target or debugger.some_target()
        last = len(target.stops) - 1
        return target.value_of(name, debugger.position if debugger.stop is not None else last)  # type: ignore[arg-type]

    def _node_of(self, name: Any) -> tuple[str, int]:
        """The node that is meant, and in which pass of its loop it is."""
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
            text = debugger.path_named(text)
        stop_of = [
            s
            for s in debugger.some_target().stops
            if s.path == text and (debugger.stop is None or s.position <= debugger.stop.position)
        ]
        return text, stop_of[-1].loop_pass if stop_of else 0


def gap_between(metric: Metric, reference: Any, value: Any) -> float | None:
    """How far two values are apart: of lists the worst of their elements; None where there are no
    numbers to compare."""
    reference, value = only(reference), only(value)
    if isinstance(value, (list, tuple)) or isinstance(reference, (list, tuple)):
        if not (isinstance(value, (list, tuple)) and isinstance(reference, (list, tuple))):
            return None  # several numbers, and one
        numbers = [gap_between(metric, r, v) for r, v in zip(reference, value, strict=False)]
        return max((n for n in numbers if n is not None), key=metric.badness, default=None)
    if value is None or reference is None or (np.size(value) == 0 and np.size(reference) == 0):
        return None
    return measure(metric, reference, value)


def decided(metric: Metric, reference: Any, value: Any) -> float | None:
    """As `gap_between`, but never NaN: that both have at the same places is no difference."""
    number = gap_between(metric, reference, value)
    if number is None or not math.isnan(number):
        return number
    worst = -math.inf if metric.better == "higher" else math.inf
    pair = [np.asarray(only(one)) for one in (reference, value)]
    if pair[0].shape != pair[1].shape or any(one.dtype.kind not in "fV" for one in pair):
        return worst
    wide = [one.astype(np.float64) for one in pair]
    odd = [np.isnan(one) for one in wide]
    if not odd[0].any() or not np.array_equal(odd[0], odd[1]):
        return worst
    number = gap_between(metric, *(np.where(odd[0], 0.0, one) for one in wide))
    return worst if number is None or math.isnan(number) else number


def only(value: Any) -> Any:
    """Of several values the only one that is not empty, if there is such: operators have outputs
    that are always empty."""
    if not isinstance(value, (list, tuple)):
        return value
    full = [one for one in value if _is_full(one)] or list(value)
    return full[0] if len(full) == 1 else list(value)


def _is_full(value: Any) -> bool:
    return value is not None and (isinstance(value, (list, tuple)) or np.size(value) > 0)


def displayed(debugger: Debugger, number: int, expression: Expression) -> list[str]:
    """The lines of one `display`; where it has no value, why."""
    try:
        lines = value_lines(evaluate(expression, DebuggerScope(debugger)))
    except EtscopeError as error:
        lines = [f"({error.message})"]
    head = f"{number}: {expression} = "
    return [head + lines[0], *(f"    {line}" for line in lines[1:])]


def gaps_so_far(debugger: Debugger, target: Target, metric: str) -> dict[int, Gap]:
    """The gaps of all stops up to where the run stands, by position.

    What a stop gave is there when it has just run, and its inputs are: so the run is repeated from
    its beginning, with what was set, and looked at stop by stop; it ends where it stood. What was
    found stays known until the run begins anew or something is set.

    Raises `MissingDataError` when nothing has run, or there is no reference.
    """
    last = debugger.position
    if last is None:
        raise MissingDataError("nothing has run yet", hint="run, or start")
    reference = debugger.reference  # without one, nothing is repeated
    found = find_metric(metric)
    wanted = [p for p in range(last + 1) if (found.name, p) not in debugger.gaps]
    if wanted:
        before = debugger.position, debugger.ended
        try:
            for stop in _again(target, wanted):
                debugger.position, debugger.ended = stop.position, False
                debugger.gaps[found.name, stop.position] = _gap(debugger, found, stop)
        finally:
            debugger.position, debugger.ended = before
            target.reach(last)
    del reference
    return {p: debugger.gaps[found.name, p] for p in range(last + 1)}


def _again(target: Target, positions: list[int]) -> Iterator[Stop]:
    """The stops of a run that is repeated, each when it has just run."""
    for position in positions:
        target.reach(position)
        if target.interrupted:
            raise KeyboardInterrupt
        yield target.stops[position]


def _gap(debugger: Debugger, metric: Metric, stop: Stop) -> Gap:
    scope = DebuggerScope(debugger)
    try:
        total = scope.gap(metric.name)
    except EtscopeError:
        return Gap(None)
    try:
        return Gap(total, _local(debugger, scope, metric, stop))
    except EtscopeError:
        return Gap(total)  # of a delegate, or a node of a branch: PyTorch has no operator for it


def _local(debugger: Debugger, scope: DebuggerScope, metric: Metric, stop: Stop) -> float | None:
    """The operator's own error: from what PyTorch makes of the inputs that the device has."""
    if stop.path is None or stop.kind == "delegate":
        return None
    result = debugger.reference.call(stop.path, scope.value_for_call)
    return decided(metric, only(result), scope.value_for_call(stop.path))
