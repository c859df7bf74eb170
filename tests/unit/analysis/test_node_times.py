"""Times of nodes: given to all nodes of an instruction together, and never lost or doubled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from etscope.analysis.graphs.linked_graph import LinkedGraph, linked_graph
from etscope.analysis.graphs.node_costs import NodeTimes, node_times
from etscope.analysis.graphs.node_table import NodeTables
from etscope.analysis.profile.profile import Row
from etscope.analysis.profile.scale import Scale
from etscope.model.graph import Graph
from etscope.units import TimeScale
from tests.support.analysis.graphs import call, graph, linked, lowered, profile, row
from tests.support.analysis.traces import open_trace

NS = Scale(TimeScale.NS, TimeScale.NS)


def standing(found: LinkedGraph, times: NodeTimes) -> dict[str, tuple[int, list[int]]]:
    """name of the node -> (number of nodes, ticks) of the time that stands at it"""
    return {
        node.name: (len(time.nodes), time.ticks.tolist())
        for node in found.graph.walk()
        if (time := times.at.get(id(node))) is not None
    }


def timed(
    shown: Graph, handles: dict[int, int | Sequence[int]], *rows: Row, total: Sequence[int]
) -> tuple[LinkedGraph, NodeTimes]:
    """A graph with the times of a run. Instructions with a row of a delegate call are such."""
    delegates = {row.instruction_id: row.name for row in rows if row.kind == "delegate"}
    found = linked(shown, handles, delegates=delegates)
    return found, node_times(found, profile(*rows, total=total))


def add_and_mul() -> Graph:
    return graph(call("a", "aten.add.Tensor", handle=1), call("b", "aten.mul.Tensor", handle=2))


def test_each_instruction_at_its_node() -> None:
    rows = row("kernel", "add.out", 0, 3, 5), row("kernel", "mul.out", 1, 4, 4)
    found, times = timed(add_and_mul(), {0: 1, 1: 2}, *rows, total=[9, 9])
    assert standing(found, times) == {"a": (1, [3, 5]), "b": (1, [4, 4])}
    assert times.accounted.tolist() == [7, 9]


def test_a_time_of_several_nodes_stands_at_the_first_and_is_of_all() -> None:
    shown = graph(*add_and_mul().nodes, call("c", "aten.sub.Tensor", handle=3))
    rows = row("delegate", "B", 0, 8), row("kernel", "add", 1, 2)
    found, times = timed(shown, {0: [2, 3], 1: 1}, *rows, total=[10])
    assert standing(found, times) == {"a": (1, [2]), "b": (2, [8])}
    a, b, c = found.graph.nodes
    assert times.of(c) is times.of(b)
    assert times.of(a) is not times.of(b)


def test_two_instructions_of_the_same_nodes_are_added_up() -> None:
    shown = graph(call("a", "aten.add.Tensor", handle=1), call("b", "aten.add.Tensor", handle=1))
    rows = (row("kernel", "add.out", i, 2 + i) for i in range(3))
    found, times = timed(shown, {0: 1, 1: 1, 2: 1}, *rows, total=[10])
    assert standing(found, times) == {"a": (2, [9])}


def test_a_time_that_finds_no_free_node_is_not_lost() -> None:
    rows = [row("kernel", "x", 0, 1), row("kernel", "y", 1, 2), row("delegate", "B", 2, 4)]
    found = linked(add_and_mul(), {0: 1, 1: 2, 2: [1, 2]}, delegates={2: "B"}, labels=["", "", ""])
    times = node_times(found, profile(*rows, total=[7]))
    assert sum(int(time.ticks[0]) for time in times.at.values()) == 7


def test_a_delegate_call_has_its_time_and_its_nodes_theirs_inside() -> None:
    shown = lowered()
    inner = shown.by_name["delegate"].delegate.graph
    rows = (
        row("kernel", "convolution.out", 0, 5),
        row("delegate", "SomeBackend", 1, 20),
        row("delegated", "mm", 1, 12, depth=1, nodes=inner.nodes[2:4]),
        row("unaccounted", "(rest)", 1, 8, depth=1),
    )
    found, times = timed(shown, {0: 1, 1: [2, 2]}, *rows, total=[30])
    assert standing(found, times) == {"conv": (1, [5]), "delegate": (1, [20]), "permute": (2, [12])}
    assert times.at[id(inner.nodes[2])].inside
    assert times.accounted.tolist() == [25]


def test_events_inside_a_delegate_come_before_the_call_where_it_is_no_node() -> None:
    shown = add_and_mul()
    event = row("delegated", "op_b", 0, 12, depth=1, nodes=[shown.nodes[1]])
    found, times = timed(shown, {0: [1, 2]}, row("delegate", "B", 0, 20), event, total=[30])
    assert standing(found, times) == {"b": (1, [12])}
    assert {number: time.ticks.tolist() for number, time in times.rest.items()} == {0: [8]}
    assert times.accounted.tolist() == [20]


def test_times_on_another_clock_are_left_out() -> None:
    shown = graph(call("a", "aten.add.Tensor", handle=1))
    cycles = row("delegated", "a", 0, 99999, depth=1, nodes=[shown.nodes[0]], own_clock=True)
    found, times = timed(shown, {0: [1]}, row("delegate", "B", 0, 20), cycles, total=[30])
    assert standing(found, times) == {"a": (1, [20])}


REAL = ("cnn_xnnpack", "cnn_xnnpack_lowered", "attention_xnnpack", "recurrent_xnnpack",
        "many_delegates", "transformer", "two_methods", "cond", "while_loop", "dynamic_shape",
        "llama_xnnpack")  # fmt: skip
BERT = pytest.param("bert_base_xnnpack", marks=pytest.mark.nightly)


@pytest.mark.parametrize("name", [*REAL, BERT])
@pytest.mark.parametrize("with_program", [False, True])
def test_what_stands_at_nodes_is_what_their_instructions_took(
    name: str, with_program: bool
) -> None:
    trace = open_trace(name, program=with_program)
    profiles = trace.profiles()
    for graph_name in trace.record.graph_names:
        found = linked_graph(trace, graph_name)
        (mine,) = [p for p in profiles if p.method == found.method]
        times = node_times(found, mine)
        shown = sum(time.ticks for time in times.at.values() if not time.inside)
        shown = shown + sum(time.ticks for time in times.rest.values())
        np.testing.assert_array_equal(shown, times.accounted)
        assert (times.accounted <= mine.total).all()
        self_and_shared = {*times.at, *times.shared}
        assert self_and_shared == {id(n) for t in times.at.values() for n in t.nodes}


def test_every_kernel_of_a_portable_program_has_one_node() -> None:
    trace = open_trace("transformer_portable", program=False)
    profiles = trace.profiles()
    found = linked_graph(trace, "edge_dialect_exported_program/forward")
    table = NodeTables(found, times=node_times(found, profiles[0]), scale=NS).nodes()
    timed = [i for i, value in enumerate(table.values["avg"]) if value is not None]
    alone = [i for i in timed if table.values["nodes"][i] == 1]
    assert len(alone) > 0.9 * len(timed)
    kernels = {row.instruction_id: row.name for row in profiles[0].rows if row.kind == "kernel"}
    for i in alone:
        (instruction,) = table.values["instructions"][i]
        assert kernels[instruction].partition(".")[0] in table.values["op"][i]
