"""The table of nodes, the tree of modules and the report on one node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etscope.analysis.graphs.node_costs import node_times
from etscope.analysis.graphs.node_info import find_node, node_info
from etscope.analysis.graphs.node_table import NodeTables, default_columns
from etscope.analysis.profile.scale import Scale
from etscope.errors import MissingDataError, UsageError
from etscope.model.graph import Delegate, ModuleFrame, Origin
from etscope.model.selector import Selector
from etscope.model.table import Table
from etscope.units import TimeScale
from tests.support.analysis.graphs import branching, call, graph, linked, lowered, profile, row

NS = Scale(TimeScale.NS, TimeScale.NS)


def picked(table: Table) -> list[tuple[int, str]]:
    return list(zip(table.depth or (), table.values["node"], strict=True))


def test_branches_stand_below_their_names() -> None:
    assert picked(NodeTables(linked(branching())).nodes()) == [
        (0, "x"), (0, "gt"), (0, "cond"),
        (1, "submodule_0"), (2, "a"), (2, "inner"), (2, "output"),
        (1, "submodule_1"), (2, "a"), (2, "inner"), (2, "output"),
        (0, "output"),
    ]  # fmt: skip
    table = NodeTables(linked(branching()), keep=Selector("op:cos").matches).nodes()
    assert picked(table) == [(0, "cond"), (1, "submodule_1"), (2, "inner")]


def test_delegates_can_be_left_closed() -> None:
    table = NodeTables(linked(lowered()), into_delegates=False).nodes()
    assert picked(table) == [(0, "x"), (0, "conv"), (0, "delegate"), (0, "output")]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("kind:*", ["x", "weight", "lowered_module_0", "conv", "delegate", "a", "w", "permute",
                    "addmm", "output", "output"]),
        ("op:convolution", ["conv"]),
        ("op:addmm", ["delegate", "addmm"]),
        ("delegate:Some*", ["delegate", "a", "w", "permute", "addmm", "output"]),
        ("module:stem", ["conv"]),
        ("file:model.py:20", ["delegate", "permute", "addmm"]),
        ("handle:2 and not permute", ["delegate", "addmm"]),
        ("id:1", ["delegate", "permute", "addmm"]),
        ("op:nothing", []),
    ],
)  # fmt: skip
def test_selection_keeps_the_calls_around(selector: str, expected: list[str]) -> None:
    found = linked(lowered(), {0: 1, 1: [2, 2]}, delegates={1: "SomeBackend"})
    table = NodeTables(found, keep=Selector(selector).matches).nodes()
    assert table.values["node"] == expected


def test_cells() -> None:
    found = linked(lowered(), {0: 1, 1: [2, 2]}, delegates={1: "SomeBackend"})
    table = NodeTables(found).nodes()
    assert {name: table.values[name][1] for name in table.names} == {
        "node": "conv",
        "kind": "call_function",
        "op": "aten.convolution.default",
        "output": "f32[1,8,16,16]",
        "outputs": ["float32[1, 8, 16, 16]"],
        "flops": 2 * 8 * 16 * 16 * 8,  # the weight of this graph is [1, 8]
        "bytes": 4 * (3 * 16 * 16 + 8 + 8 * 16 * 16),
        "instructions": [0],
        "handle": 1,
        "backend": None,
        "module": "stem.conv",
        "module_type": "Conv",
        "source": "model.py:10",
        "source_path": "/home/me/model.py:10",
        "users": 1,
        "used_by": ["delegate"],
        "inputs": ["x", "weight"],
        "target": "executorch.exir.dialects.edge.ops.aten.convolution.default",
        "graph": "edge_dialect_exported_program/forward",
    }
    assert table.values["backend"][2] == "SomeBackend"


def timed() -> tuple[Table, Table]:
    shown = graph(
        call("a", "aten.add.Tensor", handle=1, module="first"),
        call("b", "aten.mul.Tensor", handle=2, module="second.left"),
        call("c", "aten.sub.Tensor", handle=3, module="second.right"),
    )
    found = linked(shown, {0: 1, 1: [2, 3]}, delegates={1: "B"})
    times = node_times(
        found,
        profile(row("kernel", "add", 0, 10, 30), row("delegate", "B", 1, 50, 50), total=[100, 100]),
    )
    tables = NodeTables(found, times=times, scale=NS)
    return tables.nodes(), tables.modules()


def test_times_are_averages_with_the_number_of_their_nodes() -> None:
    table, _ = timed()
    assert table.values["avg"] == [20, 50, None]
    assert table.values["share"] == [0.2, 0.5, None]
    assert table.values["nodes"] == [1, 2, None]
    assert table.values["instructions"] == [[0], [1], [1]]
    assert (
        "of 100 ns of Method::execute, instructions of this graph's nodes take 70 ns"
        in table.notes[0]
    )
    assert "the first of them shows its time" in table.notes[1]
    assert "nodes" in default_columns(table)


def test_a_time_counts_for_the_module_around_all_its_nodes() -> None:
    _, tree = timed()
    cells = list(zip(tree.values["module"], tree.depth or (), tree.values["nodes"],
                     tree.values["delegated"], tree.values["avg"], strict=True))  # fmt: skip
    assert cells == [
        ("(root)", 0, 3, 2, 70),
        ("first", 1, 1, 0, 20),
        ("second", 1, 2, 2, 50),
        ("second.left", 2, 1, 1, None),
        ("second.right", 2, 1, 1, None),
    ]


def test_a_module_path_without_end_takes_bounded_time() -> None:
    frame = ModuleFrame("k", "m" + ".m" * 100_000, "T")
    deep = replace(call("a", "aten.add.Tensor"), modules=(frame,))
    found = NodeTables(linked(graph(deep))).modules()
    assert len(found) == 101
    assert max(found.depth or ()) == 100


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("node", ["conv", "delegate", "output", "x"]),
        ("-handle", ["delegate", "conv", "x", "output"]),
    ],
)
def test_sorting_keeps_nodes_below_their_call(sort: str, order: list[str]) -> None:
    table = NodeTables(linked(lowered())).nodes(sort=sort)
    assert [name for depth, name in picked(table) if depth == 0] == order
    position = table.values["node"].index("delegate")
    assert table.values["node"][position + 1 : position + 3] == ["a", "permute"]
    with pytest.raises(UsageError, match="unknown column 'nonsense'"):
        NodeTables(linked(lowered())).nodes(sort="-nonsense")


def test_a_limit_counts_the_nodes_of_the_graph_itself() -> None:
    table = NodeTables(linked(lowered())).nodes(limit=3)
    assert table.values["node"] == ["x", "conv", "delegate", "a", "permute", "addmm", "output"]
    assert table.notes[0] == "1 more node is not shown."


# -- one node


def test_a_node_in_a_sub_graph_needs_the_sub_graph_when_there_are_several() -> None:
    found = linked(branching())
    section = node_info(found, find_node(found, "cond")).section("subgraphs")
    assert section.table.values["graph"] == ["submodule_0", "submodule_1"]
    assert find_node(found, "gt").node.op == "aten.gt.Scalar"
    assert find_node(found, "submodule_1/inner").node.op == "aten.cos.default"
    with pytest.raises(UsageError, match="several nodes have the name 'inner'") as caught:
        find_node(found, "inner")
    assert "submodule_0/inner, submodule_1/inner" in str(caught.value.hint)
    # The graph itself comes before its sub-graphs.
    assert find_node(linked(lowered()), "output").depth == 0
    assert find_node(linked(lowered()), "addmm").backend == "SomeBackend"
    with pytest.raises(MissingDataError, match="has no node 'con'") as missing:
        find_node(linked(lowered()), "con")
    assert missing.value.hint == "did you mean 'conv'?"


def facts_of(report_section: object) -> dict[str, object]:
    table = report_section.table  # type: ignore[attr-defined]
    return {name: table.values[name][0] for name in table.names}


def test_all_of_a_node() -> None:
    shown = graph(
        call("w", "aten.full.default"),
        call("mm", "aten.mm.default", "w", handle=4, module="fc", line=3,
             origins=[Origin("mm", "aten.mm.default", 7, "Pass", ("create",),
                             [Origin("linear", "aten.linear.default", 8)])]),
        call("relu", "aten.relu.default", "mm", module="act"),
    )  # fmt: skip
    found = linked(shown, {5: 4})
    times = node_times(found, profile(row("kernel", "mm.out", 5, 10, 30), total=[40, 40]))
    report = node_info(found, find_node(found, "mm"), times, NS)
    assert report.about == {"graph": shown.name, "node": "mm"}
    names = [section.name for section in report.sections]
    assert names == [
        "node", "times", "work", "arguments", "outputs", "users", "modules", "stack", "origins",
    ]  # fmt: skip
    section = dict(zip(names, report.sections, strict=True))
    node = facts_of(section["node"])
    assert node["debug_handle"] == 4
    assert node["instructions"] == [5]
    assert node["code"] == "return something"
    times_of = facts_of(section["times"])
    assert (times_of["avg"], times_of["first"], times_of["share"]) == (20, 10, 0.5)
    assert list(section["arguments"].table.rows()) == [
        ("0", "w", "float32[1, 8]", "aten.full.default", None)
    ]
    assert section["users"].table.values["node"] == ["relu"]
    assert section["modules"].table.values["module"] == ["(root)", "fc"]
    assert list(section["stack"].table.rows()) == [
        ("/home/me/model.py", 3, "forward", "return something")
    ]
    assert section["origins"].table.values["node"] == ["mm", "linear"]
    assert section["origins"].table.depth == [0, 1]


def test_the_time_of_a_node_that_shares_an_instruction_names_the_others() -> None:
    shown = graph(call("a", "aten.add.Tensor", handle=1), call("b", "aten.mul.Tensor", handle=2))
    found = linked(shown, {0: [1, 2]}, delegates={0: "B"})
    times = node_times(found, profile(row("delegate", "B", 0, 6), total=[6]))
    report = node_info(found, find_node(found, "b"), times, NS)
    assert facts_of(report.section("times"))["together_with"] == ["a"]


def test_arguments_name_the_weights_and_the_parts_of_lists() -> None:
    cat = replace(call("cat", "aten.cat.default", "x", "weight"),
                  arguments=(("tensors", "[x, weight]"),))  # fmt: skip
    nodes = [node for node in lowered().nodes if node.kind == "placeholder"]
    found = linked(graph(*nodes, cat, parameters={"weight": "stem.conv.weight"}))
    section = node_info(found, find_node(found, "cat")).section("arguments")
    assert list(section.table.rows()) == [
        ("tensors", "[x, weight]", "float32[1, 3, 16, 16], float32[1, 8]",
         "placeholder, placeholder", "stem.conv.weight"),
    ]  # fmt: skip


def test_options_that_are_not_text_are_shown_as_bytes_and_cut() -> None:
    options = {"raw": b"\x00\xff", "long": b"a" * 500}
    shown = graph(call("d", "executorch_call_delegate",
                       delegate=Delegate("B", "m", None, 1, options)))  # fmt: skip
    section = node_info(linked(shown), find_node(linked(shown), "d")).section("delegate")
    cells = facts_of(section)
    assert cells["option_raw"] == "0x00ff"
    assert cells["option_long"] == "a" * 80 + "…"
