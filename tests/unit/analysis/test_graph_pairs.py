"""Nodes of two programs' graphs in pairs: each node once, and what is known to differ."""

from __future__ import annotations

import struct
from collections import Counter

import pytest

from etscope.analysis.comparison.graph_pairs import GraphPair, NodePair, pair_graphs
from etscope.analysis.comparison.programs import Side, diff_programs
from etscope.analysis.graphs.views import graph_views
from etscope.analysis.matching.export import Export
from etscope.formats.program.pte import read_pte
from tests.support.analysis.traces import side
from tests.support.artifacts import artifacts

PAIRS = (
    ("cnn_portable", "cnn_portable_inserted"),
    ("cnn_portable", "cnn_xnnpack"),
    ("cnn_xnnpack", "cnn_xnnpack_int8"),
    ("while_loop", "cond"),
)


def pairs_of(before: Side, after: Side) -> dict[str, GraphPair]:
    views = [graph_views(one.export) for one in (before, after)]
    found = pair_graphs(diff_programs(before, after), *views)
    return {pair.after.key: pair for pair in found}


def named(pair: GraphPair, one: NodePair) -> str:
    """The key of a pair's node, of the later side if it has one."""
    if one.after is not None:
        return pair.after.nodes[one.after].key
    return pair.before.nodes[one.before].key


@pytest.mark.parametrize("with_record", [True, False], ids=["records", "programs"])
@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_each_node_is_in_one_pair(names: tuple[str, str], with_record: bool) -> None:
    found = pairs_of(*(side(name, with_record=with_record) for name in names))
    assert "executed/forward" in found
    assert ("edge/forward" in found) == with_record
    for pair in found.values():
        before = [one.before for one in pair.nodes if one.before is not None]
        after = [one.after for one in pair.nodes if one.after is not None]
        assert sorted(before) == list(range(len(pair.before.nodes)))
        assert after == list(range(len(pair.after.nodes)))
        for one in pair.nodes:
            assert (one.status == "added") == (one.before is None)
            assert (one.status == "removed") == (one.after is None)
            assert one.status != "same" or not one.what


@pytest.mark.parametrize("with_record", [True, False], ids=["records", "programs"])
@pytest.mark.parametrize("name", ["cnn_xnnpack_int8", "transformer", "cond"])
def test_a_program_has_nothing_new_to_itself(name: str, with_record: bool) -> None:
    found = pairs_of(*(side(name, with_record=with_record) for _ in range(2)))
    assert found
    for pair in found.values():
        assert {(one.status, one.what) for one in pair.nodes} == {("same", ())}
        assert [one.before for one in pair.nodes] == [one.after for one in pair.nodes]


@pytest.mark.parametrize("with_record", [True, False], ids=["records", "programs"])
def test_a_layer_that_was_put_in_is_the_only_new_node(with_record: bool) -> None:
    names = ("cnn_portable", "cnn_portable_inserted")
    found = pairs_of(*(side(name, with_record=with_record) for name in names))
    for pair in found.values():
        new = [named(pair, one) for one in pair.nodes if one.status == "added"]
        assert len(new) == 1, new
        assert "sigmoid" in new[0]
        assert not [one for one in pair.nodes if one.status == "removed"]
        moved = {text for one in pair.nodes if one.status == "moved" for text in one.what}
        assert {text for text in moved if not text.startswith("module: stages.")} == set()
        assert bool(moved) == with_record  # the stage behind it has another number


@pytest.mark.parametrize("with_record", [True, False], ids=["records", "programs"])
@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack"])
def test_a_changed_weight_marks_what_reads_it(name: str, with_record: bool) -> None:
    whole = side(name, with_record=with_record)
    weight = max(whole.weights, key=lambda one: one.tensor.span.size)
    data = bytearray(artifacts(name).pte.read_bytes())
    struct.pack_into("<f", data, weight.tensor.span.offset, 1e3)
    pair = pairs_of(whole, side(name, with_record=with_record, data=bytes(data)))[
        "executed/forward"
    ]
    changed = {named(pair, one): one.what for one in pair.nodes if one.status != "same"}
    readers = [key for key in changed if pair.after.by_key[key].node.kind == "call_function"]
    assert len(readers) == 1
    assert "1 of" in changed[readers[0]][0]
    assert "onv" in pair.after.by_key[readers[0]].node.op


def test_delegated_nodes_are_pairs_in_the_edge_graph() -> None:
    names = ("cnn_portable", "cnn_xnnpack")
    pair = pairs_of(*(side(name, with_record=True) for name in names))["exported/forward"]
    backends = Counter(text for one in pair.nodes for text in one.what if "backend" in text)
    assert {one.status for one in pair.nodes} <= {"same", "changed"}
    assert backends["backend: none → XnnpackBackend"] > 3


def test_a_relu_that_was_fused_is_an_argument_of_xnnpacks_operator() -> None:
    view = graph_views(Export(read_pte(artifacts("cnn_xnnpack").pte)))[0]
    arguments = [dict(node.node.arguments) for node in view.nodes if "xnnpack." in node.node.op]
    assert any(found.get("clamped") == "True" for found in arguments)
    assert any("clamped" not in found for found in arguments)
