"""What rules are told of a graph: which values stay the same, and which delegate calls would be
one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from etscope.analysis.graphs.partition import DelegateCall, Partition
from etscope.analysis.graphs.run_graph import RunGraph, bytes_of, order_of
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.node_words import at_lines, does, listed, operators
from etscope.analysis.insights.rules.islands import _touch
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.formats.etrecord.reader import read_etrecord
from etscope.model.graph import Graph, Node, TensorSpec
from etscope.units import TimeScale
from tests.support import etrecord_files
from tests.support.analysis.graphs import call, graph, linked, output, placeholder

ADD, ERF, FULL = "aten.add.Tensor", "aten.erf.default", "aten.full_like.default"


def run_graph(shown: Graph, *calls: tuple[Node, ...], mutated: tuple[str, ...] = ()) -> RunGraph:
    """A graph, some of whose nodes delegate calls compute; without a run."""
    made = tuple(
        DelegateCall(number, "XnnpackBackend", nodes=nodes) for number, nodes in enumerate(calls)
    )
    buffers = {f"new_{name}": name for name in mutated}
    return RunGraph(Partition(linked(shown), made, mutated=buffers))


def test_calls_that_a_node_parts() -> None:
    x, a, e, b = placeholder("x"), call("a", ADD, "x"), call("e", ERF, "a"), call("b", ADD, "e")
    run = run_graph(graph(x, a, e, b, output("b")), (a,), (b,))
    assert run.merged_calls([e]) == 1
    assert run.merged_calls([]) == 0
    c = call("c", ADD, "x")
    wrong = run_graph(graph(x, a, e, b, c, output("b", "c")), (a, b), (c,))
    assert wrong.merged_calls([e]) == 0  # e is between a call and itself


def test_a_node_beside_another_parts_calls_still() -> None:
    x, a = placeholder("x"), call("a", ADD, "x")
    e, f = call("e", ERF, "a"), call("f", ERF, "a")
    b = call("b", ADD, "e", "f")
    run = run_graph(graph(x, a, e, f, b, output("b")), (a,), (b,))
    assert run.merged_calls([e]) == 0
    assert run.merged_calls([e, f]) == 1


def test_values_from_outside_part_no_calls() -> None:
    x, y, m = placeholder("x"), placeholder("y"), call("m", ERF, "y")
    a = call("a", ADD, "x")
    e = call("e", ERF, "a", "m")
    b = call("b", ADD, "e")
    run = run_graph(graph(x, y, m, a, e, b, output("b")), (a,), (b,))
    assert run.merged_calls([e]) == 1


def test_calls_that_were_apart_before_are_not_counted() -> None:
    x, a, b = placeholder("x"), call("a", ADD, "x"), call("b", ADD, "x")
    e = call("e", ERF, "a")
    run = run_graph(graph(x, a, b, e, output("b", "e")), (a,), (b,))
    assert run.merged_calls([e]) == 0


def test_without_a_program_the_names_of_kernels_tell_which_nodes_they_ran() -> None:
    """Upstream's exporter keeps neither the program nor the names of its instructions, and the
    parts of a decomposed operator share a debug handle."""
    ops = {"permute": "permute_copy", "addmm": "addmm"}
    nodes = [
        etrecord_files.node(
            name, f"executorch.exir.dialects.edge.ops.aten.{op}.default", debug_handle="7"
        )
        for name, op in ops.items()
    ]
    edge = etrecord_files.program(*nodes, **{name: etrecord_files.tensor(2, 3) for name in ops})
    handles = {"forward": {str(instruction): 7 for instruction in range(len(ops))}}
    record = read_etrecord(etrecord_files.record_bytes(edge, debug_handle_map=handles))
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    for instruction, op in enumerate(ops.values()):
        place = {"chain_index": 0, "instruction_id": instruction}
        start = 10 * instruction
        writer.log_profiling(f"native_call_{op}.out", start + 1, start + 8, **place)
        writer.log_profiling("OPERATOR_CALL", start, start + 9, **place)
    writer.log_profiling("Method::execute", 0, 20)
    trace = Trace(read_etdump(writer.finish()), record)
    (profile,) = trace.profiles()
    run = Facts(trace, profile, Scale(TimeScale.NS, TimeScale.MS)).run_graph
    assert {
        kernel.node.name: [leaf.name for _, leaf in kernel.members]
        for kernel in run.kernels.values()
    } == {"permute": ["permute_copy.out"], "addmm": ["addmm.out"]}


def constant(run: RunGraph) -> set[str]:
    nodes = run.partition.linked.graph.nodes
    return {node.name for node in nodes if id(node) in run.constant}


def test_values_of_weights_and_literals_are_constant() -> None:
    shown = graph(
        placeholder("x"),
        placeholder("w"),
        call("range", "aten.arange.default"),
        call("t", "aten.permute_copy.default", "w"),
        call("both", ADD, "range", "t"),
        call("mixed", ADD, "both", "x"),
        call("noise", "aten.rand.default"),
        output("mixed", "noise"),
        parameters={"w": "fc.weight"},
    )
    assert constant(run_graph(shown)) == {"range", "t", "both"}


@pytest.mark.parametrize(("mutated", "found"), [((), {"sum"}), (("cache",), set())])
def test_buffers_that_change_are_not_constant(mutated: tuple[str, ...], found: set[str]) -> None:
    shown = graph(placeholder("c"), call("sum", ADD, "c"), output("sum"), parameters={"c": "cache"})
    assert constant(run_graph(shown, mutated=mutated)) == found


@pytest.mark.parametrize(("shape", "found"), [((1, 8), {"zeros"}), (("s0", 8), set())])
def test_only_the_size_matters_to_a_fill(shape: tuple[int | str, ...], found: set[str]) -> None:
    shown = graph(placeholder("x", shape), call("zeros", FULL, "x", shape=shape), output("zeros"))
    assert constant(run_graph(shown)) == found


@pytest.mark.parametrize(
    ("shape", "strides", "order"),
    [
        ((1, 3, 4, 4), (48, 16, 4, 1), (0, 1, 2, 3)),
        ((1, 3, 4, 4), (48, 1, 12, 3), (0, 2, 3, 1)),
        ((1, 3, 1, 1), (3, 1, 3, 3), (0, 1, 2, 3)),  # the same in both
        ((2, 3), (), None),
        (("s0", 3), ("3", 1), (0, 1)),
        ((), (), ()),
    ],
)
def test_the_order_of_dimensions_in_memory(
    shape: tuple[int | str, ...], strides: tuple[int | str, ...], order: tuple[int, ...] | None
) -> None:
    assert order_of(TensorSpec("float32", shape, strides)) == order


def test_words_for_nodes() -> None:
    nodes = [call(name, op, line=10 + i) for i, (name, op) in enumerate(
        [("a", ADD), ("b", ADD), ("c", ERF)])]  # fmt: skip
    assert operators(nodes) == "add and erf"
    assert at_lines(nodes) == ", at model.py:10 and 2 other lines"
    assert at_lines([call("a", ADD)]) == ""
    assert listed(["a", "b"], 3) == "a, b and 3 others"
    assert listed(["a"]) == "a"
    assert [does(1, "node", "have"), does(2, "node", "take")] == ["1 node has", "2 nodes take"]
    assert bytes_of(nodes[0]) == 32


def test_the_line_with_most_time_comes_first() -> None:
    nodes = [
        call("early", "aten.add.Tensor", line=3),
        call("some", "aten.mul.Tensor", line=9),
        call("more", "aten.mul.Tensor", line=9),
    ]
    took = {"early": 5.0, "some": 3.0, "more": 4.0}
    run: Any = SimpleNamespace(members=lambda nodes: [node.name for node in nodes])
    time: Any = SimpleNamespace(ticks=lambda names: sum(took[name] for name in names))
    assert at_lines(nodes).endswith(":3 and 1 other line")
    assert at_lines(nodes, run, time).endswith(":9 and 1 other line")


@pytest.mark.parametrize(
    ("starts", "steps", "expected"),
    [
        ((0, 2, 4, 6), 4, True),
        ((0, 3, 6, 9), 4, False),  # gaps
        ((0, 1, 2, 3), 4, False),  # windows over each other
        ((0, 8), 4, True),  # two pieces inside of each step
    ],
)
def test_pieces_of_a_loop_touch(starts: tuple[int, ...], steps: int, expected: bool) -> None:
    """As `batch_loops` needs them: tests/integration/remedies/test_passes.py."""
    nodes = [
        Node(
            f"slice_{start}", "call_function", "", "aten.slice_copy.Tensor", ("x",),
            (("self", "x"), ("dim", "1"), ("start", str(start)), ("end", str(start + 2))),
        )
        for start in starts
    ]  # fmt: skip
    assert _touch(nodes[::-1], steps) is expected
