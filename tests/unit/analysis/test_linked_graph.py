"""Which nodes an instruction runs, where handles alone do not tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etscope.analysis.graphs.linked_graph import (
    LinkedGraph,
    find_graph,
    linked_graph,
    method_of_graph,
    short_name,
)
from etscope.analysis.matching.export import Export
from etscope.analysis.matching.run_nodes import RunNodes
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.compatibility import instruction_labels
from etscope.analysis.program.correlate import method_symbols
from etscope.analysis.program.program import instructions
from etscope.errors import MissingDataError, UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import EDGE, EXPORTED, read_etrecord
from etscope.formats.program.pte import Program, read_pte
from etscope.model.graph import Node, Origin, stem
from tests.support.analysis.graphs import branching, call, graph, linked, lowered
from tests.support.artifacts import artifacts


def names(nodes: tuple[Node, ...]) -> list[str]:
    return [node.name for node in nodes]


def edge_of(name: str, program: Program | None = None) -> LinkedGraph:
    """The edge graph of an artefact, with the names of its program's instructions."""
    labels = instruction_labels(read_pte(artifacts(name).pte).method("forward"))
    record = read_etrecord(artifacts(name).etrecord)
    symbols = method_symbols(record, "forward")
    assert symbols.graph is not None
    nodes = RunNodes(symbols, labels, program)
    return LinkedGraph(f"{EDGE}/forward", symbols.graph, "forward", nodes, {})


def test_a_handle_of_its_own_is_enough() -> None:
    shown = graph(call("a", "aten.add.Tensor", handle=1), call("b", "aten.mul.Tensor", handle=2))
    found = linked(shown, {0: 2, 1: 1})
    assert names(found.ran(0)) == ["b"]
    assert found.instructions == {id(shown.nodes[0]): (1,), id(shown.nodes[1]): (0,)}


def test_another_graph_of_the_export_has_the_links_of_the_exported_program() -> None:
    """ExecuTorch records the id of the exported program alone, not of further graphs."""
    record = read_etrecord(artifacts("transformer_portable").etrecord)
    exported = linked_graph(Export(record=record), EXPORTED)
    assert exported.graph.graph_id is not None
    further = replace(exported, name="aten/forward", graph=replace(exported.graph, graph_id=None))
    assert exported.symbols is not None and exported.symbols.graph is not None
    edge = exported.symbols.graph
    linked_nodes = [node for node in edge.walk() if exported.behind([node])]
    assert len(linked_nodes) > 20
    for node in edge.walk():
        assert names(further.behind([node])) == names(exported.behind([node]))
    # Nor does a graph of another export get them.
    other = replace(further, graph=edge_of("cnn_portable").graph)
    assert not any(other.behind([node]) for node in linked_nodes if node.debug_handle is None)
    # The edge program, recorded once more, is linked node by node.
    again = replace(further, name="edge0/forward", graph=replace(edge, name="edge0/forward"))
    handled = [node for node in edge.nodes if node.debug_handle is not None]
    assert handled and all(again.behind([node]) == (node,) for node in handled)


def test_of_a_decomposed_operator_the_name_tells() -> None:
    shown = graph(
        call("permute", "aten.permute_copy.default", handle=3),
        call("addmm", "aten.addmm.default", handle=3),
    )
    found = linked(shown, {0: 3, 1: 3}, labels=["aten::permute_copy.out", "addmm.out"])
    unlabelled = linked(shown, {0: 3, 1: 3})
    assert (names(found.ran(0)), names(found.ran(1))) == (["permute"], ["addmm"])
    assert names(unlabelled.ran(0)) == ["permute", "addmm"]


def test_of_parts_of_one_name_the_order_tells_if_all_are_there() -> None:
    shown = graph(
        call("one", "aten.bmm.default", handle=3),
        call("view", "aten.view_copy.default", handle=3),
        call("two", "aten.bmm.default", handle=3),
    )
    label = "aten::bmm.out"
    both = linked(shown, {4: 3, 6: 3}, labels=[""] * 4 + [label, "", label])
    single = linked(shown, {4: 3}, labels=[""] * 4 + [label])
    assert (names(both.ran(4)), names(both.ran(6))) == (["one"], ["two"])
    assert names(single.ran(4)) == ["one", "two"]


def test_what_is_known_to_be_a_kernel_is_not_in_a_delegate() -> None:
    shown = graph(
        call("expand", "aten.expand_copy.default", handle=3),
        call("bmm", "aten.bmm.default", handle=3),
    )
    found = linked(
        shown, {0: 3, 1: [3, 3]}, labels=["expand_copy.out", "delegate:B"], delegates={1: "B"}
    )
    assert names(found.ran(1)) == ["bmm"]
    assert found.backends == {id(shown.nodes[1]): "B"}


def test_a_delegate_call_runs_what_its_nodes_run() -> None:
    shown = lowered()
    by_name = shown.by_name
    found = linked(shown, {0: 1, 1: [2, 2]}, delegates={1: "SomeBackend"})
    inner = by_name["delegate"].delegate.graph.by_name["addmm"]  # type: ignore[union-attr]
    assert found.instructions[id(by_name["delegate"])] == (1,)
    assert found.calls[id(inner)] is by_name["delegate"]
    assert found.backends[id(inner)] == "SomeBackend"
    assert id(by_name["conv"]) not in found.backends


def test_branches_are_found_by_the_order_of_their_operators() -> None:
    shown = branching()
    labels = ["aten::gt.Scalar_out", "jump_false", "aten::sin.out", "jump_false", "aten::cos.out"]
    found = linked(shown, {0: 1}, labels=labels)
    assert [node.op for node in found.ran(2)] == ["aten.sin.default"]
    assert [node.op for node in found.ran(4)] == ["aten.cos.default"]


def test_an_exported_graph_is_found_by_the_origins_of_edge_nodes() -> None:
    exported = graph(call("linear", "linear.default"), name=EXPORTED)
    link = Origin("linear", "aten.linear.default", 7)
    other = Origin("linear", "aten.linear.default", 8)
    edge = graph(
        call("permute", "aten.permute_copy.default", handle=1, origins=[link]),
        call(
            "addmm", "aten.addmm.default", handle=2, origins=[Origin("x", "x", 9, origins=[link])]
        ),
        call("stranger", "aten.mul.Tensor", handle=3, origins=[other]),
    )
    found = linked(exported, {0: 1, 1: 2, 2: 3}, edge=edge)
    assert found.instructions == {id(exported.nodes[0]): (0, 1)}


def test_another_graph_is_found_by_handles() -> None:
    other = graph(call("fused", "my.fused.default", handle=4), name="after_fusion/forward")
    edge = graph(call("a", "aten.add.Tensor", handle=4), call("b", "aten.mul.Tensor", handle=5))
    found = linked(other, {0: 4, 1: 5}, edge=edge)
    assert names(found.ran(0)) == ["fused"]
    assert found.ran(1) == ()


def test_the_edge_graph_is_that_whatever_graph_events_are_linked_to() -> None:
    made = artifacts("cnn_portable")
    record = read_etrecord(made.etrecord)
    trace = Trace(read_etdump(made.etdump), record, reference_graph=EXPORTED)
    found = linked_graph(trace, f"{EDGE}/forward")
    assert {stem(node.op) for node in found.ran(0)} == {"convolution"}


@pytest.mark.parametrize("name", ["cnn_portable", "transformer_portable", "cond", "int_outputs"])
@pytest.mark.parametrize("shown", ["edge", "exported"])
def test_instructions_of_real_records_are_of_nodes_of_that_operator(name: str, shown: str) -> None:
    record = read_etrecord(artifacts(name).etrecord)
    found = linked_graph(Export(record=record), find_graph(record, shown))
    instructions = {i for numbers in found.instructions.values() for i in numbers}
    assert instructions == set(record.debug_handle_map["forward"])


@pytest.mark.parametrize(
    "name", ["transformer", "transformer_portable", "attention_xnnpack", "recurrent_xnnpack"]
)
def test_of_parts_of_one_name_the_program_tells(name: str) -> None:
    """Lowering sorts the parts of an operator anew, those of `softmax(x) @ v` for one."""
    program = read_pte(artifacts(name).pte)
    found = edge_of(name, program)
    records = instructions(program, "forward", delegate_outputs=found.symbols.num_outputs).records
    told = 0
    for kernel in (one for one in records if one.kind == "kernel"):
        operator = stem(kernel.operator or "")
        nodes = [n for n in found.ran(kernel.instruction_id) if stem(n.op) == operator]
        shapes = [[value.tensor.shape for value in n.outputs if value.tensor] for n in nodes]
        assert shapes in ([], [[value.sizes for value in kernel.written]]), kernel
        told += len(nodes)
    assert told > len(records) / 3


def test_without_the_program_the_order_is_all_there_is() -> None:
    told = edge_of("transformer", read_pte(artifacts("transformer").pte))
    guessed = edge_of("transformer")
    both = [names(one.ran(number)) for number in (9, 10) for one in (told, guessed)]
    second, third = ["aten_expand_copy_default_2"], ["aten_expand_copy_default_3"]
    assert both == [third, second, second, third]


# -- names


def test_a_graph_has_several_names() -> None:
    record = read_etrecord(artifacts("forward_and_extra").etrecord)
    extra, forward = f"{EDGE}/extra", f"{EDGE}/forward"
    for name, *wanted in (
        (EXPORTED, "exported", "exported_program"),
        (extra, "edge/extra", "edge_dialect_graph_module/extra", "extra"),
        (forward, forward),
    ):
        assert {find_graph(record, one) for one in (*wanted, short_name(name))} == {name}
    methods = {name: method_of_graph(record, name) for name in record.graph_names}
    assert methods == {EXPORTED: "forward", extra: "extra", forward: "forward"}
    with pytest.raises(UsageError, match="'edge' matches several graphs") as caught:
        find_graph(record, "edge")
    assert {"edge/extra", "edge/forward"} <= set(caught.value.hint.replace(",", "").split())


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("adge", "did you mean 'edge'"),
        ("edge/forwrad", "did you mean 'edge/forward'"),
        ("zzzz", "its graphs are: exported, "),
        ("ward", "edge/forward"),
    ],
)
def test_a_wrong_name_gets_a_suggestion(wanted: str, hint: str) -> None:
    record = read_etrecord(artifacts("forward_and_extra").etrecord)
    with pytest.raises(MissingDataError, match=f"graph '{wanted}'") as caught:
        find_graph(record, wanted)
    assert hint in (caught.value.hint or "")
