"""Run a quantised graph beside the float graph that it was made of.

The float graph's values replace those of the quantised graph, so that each operator computes from
exact inputs: what is then off is the operator's own. The other way round, one value of the
quantised graph in the float graph shows what that operator alone does to the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from typing import Any

import torch

from etscope.bridge.reference.local_reference import own_arrays, replaced
from etscope.bridge.reference.reference import ReferenceGraph, arrays_of

State = dict[str, torch.Tensor]
# The values that replace those of a node, as (element or None, array).
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

    Returns the outputs, flat, as arrays of their own. Only `state` is changed.
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
    """Run a graph as `run_with`, for its outputs."""
    outputs: list[Any] = []

    def run() -> Generator[Any, None, None]:
        nonlocal outputs
        outputs = yield from run_with(graph, inputs, state, (), known)

    for _ in run():
        pass
    return outputs
