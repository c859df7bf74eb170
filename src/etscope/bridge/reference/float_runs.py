"""Run a quantized graph together with its float graph, to measure what quantization costs.

The float graph's values replace the quantized graph's, so each operator computes from exact inputs
and the remaining error is its own. The other way round, one value of the quantized graph in the
float graph shows what that operator alone does to the outputs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from etscope.analysis.matching.graph_alignment import FOLDED, GraphAlignment
from etscope.analysis.metrics import Metric
from etscope.analysis.numerics.limits import difference
from etscope.analysis.numerics.quantization import (
    Quantization,
    QuantizedOperator,
    output_errors,
    worst_error,
)
from etscope.analysis.numerics.values import quantized_range
from etscope.analysis.program.source_location import lines_of, module_path
from etscope.bridge.reference.local_reference import Memory, flat_inputs, own_arrays, replaced
from etscope.bridge.reference.reference import ReferenceGraph, arrays_of, finished
from etscope.model.graph import Graph, NodeValue, stem
from etscope.support.tensor_spill import TensorSpill

State = dict[str, torch.Tensor]
# The replacement values of a node, as (element or None, array).
Known = Callable[[str], Collection[tuple[int | None, Any]]]


def copied_state(state: Mapping[str, torch.Tensor]) -> State:
    """Copy the buffers of a model: a run may write to them."""
    return {name: value.clone() for name, value in state.items()}


def run_with(
    graph: ReferenceGraph,
    inputs: Any,
    state: State,
    wanted: Collection[str] = (),
    known: Known = lambda name: (),
) -> Generator[tuple[str, Any], None, list[Any]]:
    """Run a graph, and yield the wanted nodes with their values as computed, as arrays to be used
    before the next one; of a loop the first pass. `known` values replace them for later nodes.

    Returns the outputs, flat, as copies. Only `state` is changed.
    """
    seen: set[str] = set()
    run = graph.run(inputs, state)
    given = None
    while True:
        try:
            name, value = run.send(given)
        except StopIteration as end:
            return own_arrays(end.value)
        given = None
        if name in seen:
            continue
        seen.add(name)
        if name in wanted:
            yield name, arrays_of(value)
        replacements = known(name)
        if replacements:
            given = replaced(value, replacements, graph.own_memory)


def outputs_with(graph: ReferenceGraph, inputs: Any, state: State, known: Known) -> list[Any]:
    """Do `run_with` for the graph's outputs only."""
    return finished(run_with(graph, inputs, state, (), known))


# Operators with the largest own errors: each costs a run of the float graph.
_TRIED_ALONE = 8


@dataclass(frozen=True, slots=True, eq=False)
class FloatReference:
    """A quantized graph, the float graph that it was made of, and the pairs of their values."""

    graph: Graph
    floats: Graph
    runnable: ReferenceGraph
    runnable_float: ReferenceGraph
    pairs: GraphAlignment

    def run(self, inputs: Any, memory: Memory) -> FloatRun:
        """Run the float graph on the inputs of a run, and keep the values that have counterparts.
        memory: state from the runs before; this run updates the float graph's."""
        before = copied_state(memory.float_state)
        users = [name for name in self.floats.inputs if name not in self.floats.parameters]
        spill = TensorSpill()
        kept: dict[Any, Any] = {
            name: spill.add(value) for name, value in zip(users, flat_inputs(inputs), strict=False)
        }
        wanted = {value.path for value in self.pairs.of.values()}
        run = run_with(self.runnable_float, inputs, memory.float_state, wanted)
        while True:
            try:
                name, value = next(run)
            except StopIteration as end:
                outputs = memory.float_outputs = end.value
                break
            for element, one in _elements(value):
                kept[(name, element)] = spill.add(np.array(one) if np.ndim(one) == 0 else one)
        return FloatRun(self, inputs, copied_state(memory.reference), before, kept, spill, outputs)


def _elements(value: Any) -> list[tuple[int | None, Any]]:
    if isinstance(value, (tuple, list)):
        return list(enumerate(value))
    return [(None, value)]


@dataclass(frozen=True, slots=True, eq=False)
class FloatRun:
    """The values of a run of the float graph."""

    side: FloatReference
    inputs: Any
    state: dict[str, Any]
    float_state: dict[str, Any]
    kept: Mapping[Any, Any]
    spill: TensorSpill
    outputs: Sequence[Any]

    def value(self, path: str, element: int | None) -> Any:
        """The float graph's value for one of the quantized graph; None if it has none."""
        other = self.side.pairs.of.get(NodeValue(path, element))
        return None if other is None else self._float_value(other)

    def _float_value(self, value: NodeValue) -> Any:
        key = value.path if value.path in self.kept else (value.path, value.element)
        found = self.kept.get(key)
        return None if found is None else self.spill.get(found)

    def compare(
        self, metric: Metric, reference: Sequence[Any], device: Sequence[Any], *, operators: bool
    ) -> Quantization:
        """Compare the outputs of the float graph, the reference and the device; with `operators`,
        also each operator.
        """
        return Quantization(
            metric=metric,
            graph=self.side.floats.name,
            outputs=output_errors(metric, self.outputs, reference, device),
            operators=tuple(self._operators(metric)) if operators else (),
            missing=self.side.pairs.unpaired("float", "quantized"),
        )

    def _operators(self, metric: Metric) -> list[QuantizedOperator]:
        side, of = self.side, self.side.pairs.of
        # By float value: the values that stand for it, in order, without copies and those that an
        # operator quantizes dynamically for itself.
        position = {path: index for index, path in enumerate(side.graph.calls)}
        groups: dict[NodeValue, list[NodeValue]] = {}
        for one in sorted(of, key=lambda value: position[value.path]):
            if one.path in side.pairs.rounded or one.path in side.pairs.computed:
                groups.setdefault(of[one], []).append(one)
        totals: dict[NodeValue, float | None] = {}
        wanted = {value.path for value in of}
        quantized = run_with(side.runnable, self.inputs, copied_state(self.state), wanted)
        for name, value in quantized:
            for element, one in _elements(value):
                expected = self.value(name, element)
                if expected is not None:
                    totals[NodeValue(name, element)] = difference(metric, expected, one)
        own = self._own_errors(metric, groups)
        alone = self._alone(metric, own)
        rows = []
        for other, values in groups.items():
            node = side.graph.calls[values[0].path]
            origin = side.floats.calls.get(other.path)
            shown = node if origin is None or stem(origin.op) in FOLDED else origin
            error = own.get(other)
            rows.append(
                QuantizedOperator(
                    node=values[0].path,
                    float_node=other.path,
                    op=stem(shown.op),
                    module=module_path(node),
                    lines=lines_of([node] if origin is None else [node, origin]),
                    total=totals.get(values[-1]),
                    own=None if error is None else error[0],
                    alone=alone.get(other),
                    **self._range(other, values),
                )
            )
        return rows

    def _range(self, other: NodeValue, values: Sequence[NodeValue]) -> dict[str, Any]:
        """The range of a quantized value, the range of its float numbers, and the share beyond."""
        rounded = [value.path for value in values if value.path in self.side.pairs.rounded]
        numbers = np.asarray(self._float_value(other))
        if numbers.dtype.kind in "biuO" or not numbers.size:
            return {}
        numbers = numbers.astype(np.float64)
        found: dict[str, Any] = {"low": float(numbers.min()), "high": float(numbers.max())}
        span = quantized_range(self.side.graph, rounded[0]) if rounded else None
        if span is None or span.low is None or span.high is None or span.step is None:
            return found
        half = span.step / 2  # such a number is rounded to the end, as it should be
        beyond = (numbers < span.low - half) | (numbers > span.high + half)
        return {**found, "range": span, "saturated": float(beyond.mean())}

    def _own_errors(
        self, metric: Metric, groups: Mapping[NodeValue, list[NodeValue]]
    ) -> dict[NodeValue, tuple[float, Any]]:
        """By float value: the error of what its quantized operator computes from float values, and
        that value, of the worst ones."""
        side = self.side
        last = {value: other for other, values in groups.items() for value in values[-1:]}
        replaced: dict[str, list[int | None]] = {}
        for values in groups.values():
            rounded = [value for value in values if value.path in side.pairs.rounded]
            for value in rounded or values:
                replaced.setdefault(value.path, []).append(value.element)

        def known(name: str) -> list[tuple[int | None, Any]]:
            given = [(element, self.value(name, element)) for element in replaced.get(name, ())]
            return [(element, value) for element, value in given if value is not None]

        errors: dict[NodeValue, tuple[float, Any]] = {}
        worst: list[tuple[float, int, NodeValue]] = []
        paths = {value.path for value in last}
        # An error that earlier runs left in a buffer is not an error of this run's operators.
        state = copied_state(self.state)
        for name, buffer in copied_state(self.float_state).items():
            if name in state and (state[name].dtype, state[name].shape) == (
                buffer.dtype,
                buffer.shape,
            ):
                state[name] = buffer
        run = run_with(side.runnable, self.inputs, state, paths, known)
        for name, computed in run:
            for element, one in _elements(computed):
                other = last.get(NodeValue(name, element))
                expected = None if other is None else self._float_value(other)
                error = None if expected is None else difference(metric, expected, one)
                if other is None or error is None:
                    continue
                errors[other] = error, None
                if error == metric.perfect or other.path not in side.floats.calls:
                    continue
                errors[other] = error, np.array(one)
                heapq.heappush(worst, (metric.badness(error), len(errors), other))
                if len(worst) > _TRIED_ALONE:
                    least = heapq.heappop(worst)[-1]
                    errors[least] = errors[least][0], None
        return errors

    def _alone(
        self, metric: Metric, own: Mapping[NodeValue, tuple[float, Any]]
    ) -> dict[NodeValue, float | None]:
        """The error of the float graph's outputs with one quantized value in it."""
        found = {}
        for other, (_, value) in own.items():
            if value is None:
                continue

            def known(
                name: str, other: NodeValue = other, value: Any = value
            ) -> list[tuple[int | None, Any]]:
                return [(other.element, value)] if name == other.path else []

            outputs = outputs_with(
                self.side.runnable_float, self.inputs, copied_state(self.float_state), known
            )
            found[other] = worst_error(metric, self.outputs, outputs)
        return found
