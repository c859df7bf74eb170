"""The views of graphs: every instruction at its node, boxes that add up, edges through calls."""

from __future__ import annotations

import numpy as np
import pytest

from etscope.analysis.graphs.flow import edges, own_times, without_delegates
from etscope.analysis.graphs.node_costs import STATISTICS
from etscope.analysis.graphs.views import GraphView, graph_views, view_names, view_of
from etscope.analysis.matching.export import Export
from etscope.analysis.profile.scale import Scale
from etscope.analysis.tables.profile_table import profile_table
from etscope.errors import MissingDataError, UsageError
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.units import TimeScale
from tests.support.analysis.graphs import branching, linked, lowered, profile, row
from tests.support.analysis.traces import open_trace
from tests.support.artifacts import artifacts

NS = Scale(TimeScale.NS, TimeScale.NS)
NAMES = (
    *("attention_xnnpack", "recurrent_xnnpack", "cnn_xnnpack", "cnn_xnnpack_lowered"),
    *("transformer", "cond", "while_loop", "two_methods"),
)


@pytest.mark.parametrize("name", NAMES)
def test_edges_lead_to_nodes_and_each_instruction_stands_at_its_own(name: str) -> None:
    views = graph_views(open_trace(name, timing=True))
    for view in views:
        keys = [node.key for node in view.nodes]
        assert len(keys) == len(set(keys))
        for edge in edges(view):
            assert edge.source in view.by_key and edge.target in view.by_key
            assert edge.source != edge.target
    executed = [view for view in views if view.key.startswith("executed/")]
    assert executed
    for view in executed:
        for each in view.profile.rows:
            if each.depth:
                continue
            (place,) = (
                node
                for node in view.nodes
                if node.call is None and node.instructions == (each.instruction_id,)
            )
            assert view.times[place.key].ticks.tolist() == each.ticks.tolist()
        expected = view.profile.total - view.profile.unaccounted
        assert view.accounted.tolist() == expected.tolist()


def test_statistics_are_those_of_the_table_of_events() -> None:
    trace = open_trace("transformer", timing=True)
    (view,) = graph_views(trace, only=["executed/forward"])
    table = profile_table(view.profile, NS, sort="run")
    compared = 0
    for position, instruction in enumerate(table.values["instruction"]):
        if instruction is None:
            continue
        (time,) = (
            view.times[node.key]
            for node in view.nodes
            if node.call is None and node.instructions == (instruction,)
        )
        for name in STATISTICS:
            assert time.statistic(name) == pytest.approx(table.values[name][position])
        compared += 1
    assert compared == 40


def test_delegates_open_to_the_operators_inside_and_add_up() -> None:
    (view,) = graph_views(open_trace("transformer", timing=True), only=["executed/forward"])
    calls = [node for node in view.nodes if node.opens]
    assert len(calls) == 17
    for call in calls:
        inside = [view.times[n.key] for n in view.below[call.key] if n.key in view.times]
        assert inside
        assert all(time.inside for time in inside)
        rest = view.rest(call.key)
        together = rest + np.sum([time.ticks for time in inside], axis=0)
        assert together.tolist() == view.times[call.key].ticks.tolist()
        assert {node.backend for node in view.below[call.key]} == {"XnnpackBackend"}


def test_values_go_in_and_out_of_opened_calls() -> None:
    view = view_of(linked(branching()), "edge/forward")
    found = {(edge.source, edge.target) for edge in edges(view)}
    assert ("x", "submodule_0/a") in found
    assert ("x", "submodule_1/a") in found
    assert ("submodule_0/output", "cond") in found
    assert ("cond", "output") in found
    assert ("x", "cond") not in found

    view = view_of(linked(lowered()), "edge/forward")
    found = {(edge.source, edge.target) for edge in edges(view)}
    assert ("conv", "lowered_module_0/a") in found
    assert ("lowered_module_0/output", "delegate") in found
    assert view.by_key["lowered_module_0/w"].scope == ("fc", "delegate")


def test_a_delegate_that_stays_closed_is_a_node_like_others() -> None:
    times = profile(row("kernel", "conv", 0, 3), row("delegate", "B", 1, 5), total=[9])
    view = view_of(linked(lowered(), {0: 1, 1: [2, 9]}), "edge/forward", times)
    closed = without_delegates(view)
    assert "lowered_module_0/a" in view.by_key
    assert [node.key for node in closed.nodes if node.call] == []
    assert not closed.by_key["delegate"].opens
    assert {(e.source, e.target) for e in edges(closed)} >= {("conv", "delegate")}
    assert closed.times["delegate"].avg == 5


def test_inner_times_that_hold_one_another_are_the_calls() -> None:
    graph = lowered()
    inside = [node for node in graph.walk() if node.name in ("permute", "addmm")]
    times = profile(
        row("delegate", "B", 1, 5),
        row("delegated", "outer", 1, 5, depth=1, nodes=inside[:1]),
        row("delegated", "inner", 1, 4, depth=1, nodes=inside[1:]),
        total=[9],
    )
    view = view_of(linked(graph, {1: [2, 9]}), "edge/forward", times)
    assert view.rest("delegate") is None
    assert own_times(view, "avg") == {"delegate": 5.0}


def test_boxes_are_modules_and_weights_stand_where_they_belong() -> None:
    view = view_of(linked(lowered()), "edge/forward")
    assert view.by_key["conv"].scope == ("stem", "conv")
    assert view.by_key["weight"].scope == ("stem", "conv")
    assert view.by_key["x"].scope == ()
    # The call has no module: it is where all of its nodes are.
    assert view.by_key["delegate"].scope == ("fc", "delegate")
    assert view.by_key["lowered_module_0/addmm"].scope == ("fc", "delegate")


def test_memory_is_of_the_tensors_given_and_of_the_plan() -> None:
    (view,) = graph_views(open_trace("cnn_xnnpack", timing=True), only=["edge/forward"])
    assert view.memory["aten_convolution_default"] == 4 * 8 * 16 * 16
    (view,) = graph_views(open_trace("transformer", timing=True), only=["executed/forward"])
    assert max(view.live.values()) > 0
    assert "output" not in view.memory


def test_graphs_without_a_dump_and_of_a_program_alone() -> None:
    made = artifacts("two_methods")
    export = Export(record=read_etrecord(made.etrecord))
    keys = tuple(view_names(export))
    assert set(keys) == {"edge/encode", "edge/decode"}  # upstream writes them in any order
    assert tuple(view.key for view in graph_views(export)) == keys
    program = read_pte(made.pte)
    views: tuple[GraphView, ...] = graph_views(Export(program))
    assert {view.key for view in views} == {"executed/encode", "executed/decode"}
    assert all(not view.times and view.live for view in views)


def test_what_is_not_there_is_an_error() -> None:
    with pytest.raises(UsageError, match="both are missing"):
        graph_views(Export())
    made = artifacts("two_methods")
    with pytest.raises(UsageError, match="no graph 'edge/nothing'"):
        graph_views(Export(read_pte(made.pte)), only=["edge/nothing"])
    with pytest.raises(MissingDataError):
        read_pte(made.pte).method("nothing")
