"""Pairs are right: the logged value is the node's value, told by the numbers themselves.

The artefacts' weights and inputs are random, so that values of different nodes differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("executorch.exir")

from etscope.analysis.matching.matching import Matching, match
from etscope.analysis.matching.run import LoggedSpec, type_mismatch
from etscope.analysis.program.correlate import MethodSymbols
from etscope.analysis.program.program import InstructionRecord
from etscope.model.graph import Graph, Node, TensorSpec, Value
from tests.support.numeric_runs import ATEN, EDGE, Compared, compared

# artefact -> pairs with the exported program and with the edge program
FLOAT = {
    "cnn_portable": (23, 36),
    "cnn_xnnpack": (1, 1),
    "transformer": (40, 66),
    "transformer_portable": (70, 110),
    "cond": (6, 8),
    "while_loop": (6, 6),
    "channels_last": (5, 5),
    "int_outputs": (9, 9),
    "dynamic_shape": (5, 6),
    "deconvolution": (1, 1),
    "attention_xnnpack": (8, 25),
    "recurrent_xnnpack": (5, 5),
    "many_delegates": (7, 8),
    "batched_linear": (3, 6),
    "rewritten_state": (8, 17),
    "forward_and_extra": (1, 1),
}


def check_values(found: Compared, **tolerances: float) -> None:
    """Each pair has one value."""
    assert found.matching.pairs
    for pair in found.matching.pairs:
        for expected, logged in found.values(pair):
            if pair.is_view:
                assert logged.size == expected.size
                logged = logged.reshape(expected.shape)
            assert logged.shape == expected.shape, pair
            np.testing.assert_allclose(logged, expected, err_msg=str(pair), **tolerances)


@pytest.mark.parametrize("program", [True, False], ids=["program", "no program"])
@pytest.mark.parametrize("reference", [ATEN, EDGE])
@pytest.mark.parametrize("name", FLOAT)
def test_a_pair_has_one_value(name: str, reference: str, program: bool) -> None:
    result = compared(name, reference, program=program)
    check_values(result, rtol=1e-3, atol=1e-4)
    if program:
        wanted = FLOAT[name][0 if reference == ATEN else 1]
        assert len(result.matching.pairs) == wanted


def test_pairs_of_a_lowered_graph_of_int8_and_of_each_method() -> None:
    lowered = compared("cnn_xnnpack_lowered", EDGE)
    check_values(lowered, rtol=1e-3, atol=1e-4)
    calls = [pair for pair in lowered.matching.pairs if "call_delegate" in pair.node]
    assert calls and all(pair.element is not None for pair in calls)
    check_values(compared("cnn_xnnpack_int8", ATEN), rtol=0, atol=0.1)  # its steps
    for method in ("encode", "decode"):
        check_values(compared("two_methods", EDGE, method=method), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reference", [ATEN, EDGE])
@pytest.mark.parametrize("name", FLOAT)
def test_whatever_has_no_partner_has_a_reason(name: str, reference: str) -> None:
    result = compared(name, reference)
    matching = result.matching
    unpaired = [*matching.unpaired_outputs, *matching.unpaired_nodes]
    assert all(item.reason and item.kind for item in unpaired)
    # each output is either in a pair or in the other list, and only once
    outputs = [(pair.instruction, pair.output, pair.delegate_id) for pair in matching.pairs]
    assert len(outputs) == len(set(outputs))
    left = {(item.instruction, item.output) for item in matching.unpaired_outputs}
    assert left.isdisjoint((number, output) for number, output, _ in outputs)
    assert {item.node for item in matching.unpaired_nodes}.isdisjoint(matching.by_node)
    coverage = matching.coverage
    assert coverage.pairs == len(matching.pairs)
    assert len(coverage.table()) == len(unpaired)


def test_a_linear_layer_of_a_batch_is_its_product_in_another_shape() -> None:
    result = compared("batched_linear", ATEN)
    (first,) = result.matching.by_node["linear"]
    assert first.is_view
    assert result.logged.values(first)[0].shape == (6, 6)
    views = compared("batched_linear", EDGE).matching.unpaired_nodes
    assert {item.kind for item in views} == {"view"}


def test_outputs_of_a_delegate_are_not_in_the_order_of_its_handles() -> None:
    pairs = compared("many_delegates", ATEN).matching.by_instruction
    several = next(found for found in pairs.values() if len(found) == 3)
    assert [pair.node for pair in several] == ["linear_1", "add", "mul"]
    assert [pair.output for pair in several] == [0, 1, 2]
    assert all(pair.logged > pair.output for pair in several)  # inputs are logged before


def test_only_the_element_that_is_used_has_a_partner() -> None:
    pairs = compared("rewritten_state", ATEN).matching.by_node["unbind"]
    assert [pair.element for pair in pairs] == [1]


def test_branches_that_were_not_taken_have_no_partner() -> None:
    matching = compared("cond", EDGE).matching
    not_run = [item.node for item in matching.unpaired_nodes if item.kind == "not run"]
    taken = {pair.node.partition("/")[0] for pair in matching.pairs if "/" in pair.node}
    assert len(taken) == 1 and len(not_run) == 3
    assert all(node is not None and node.partition("/")[0] not in taken for node in not_run)


def test_without_the_program_an_ambiguous_order_is_no_pair() -> None:
    known = compared("attention_xnnpack", EDGE).matching
    guessed = compared("attention_xnnpack", EDGE, program=False).matching
    assert len(guessed.pairs) < len(known.pairs)
    reasons = {item.reason for item in guessed.unpaired_outputs if item.kind == "ambiguous"}
    assert reasons and all("without the program" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("logged", "node", "words"),
    [
        (("float32", (2, 3)), ("float32", (2, 3)), None),
        (("float32", (9, 3)), ("float32", ("s0", 3)), None),
        (("float64", (2, 3)), ("float32", (2, 3)), "float64"),
        (("float32", (3, 2)), ("float32", (2, 3)), "[3, 2]"),
        (("float32", (2,)), ("float32", (2, 3)), "[2]"),
        # A widened type agrees, a narrowed one does not.
        (("float32", (2,)), ("float16", (2,)), None),
        (("float32", (2,)), ("bfloat16", (2,)), None),
        (("float16", (2,)), ("float32", (2,)), "float16"),
        (("bfloat16", (2,)), ("float32", (2,)), "bfloat16"),
        # A number is no tensor.
        (None, None, None),
        (None, ("float32", ()), ""),
    ],
)
def test_shape_and_dtype_must_agree(logged: Any, node: Any, words: str | None) -> None:
    why = type_mismatch(logged and LoggedSpec(*logged), node and TensorSpec(*node))
    assert why is None if words is None else why is not None and words in why


def chain(*ops: str) -> Graph:
    """A graph in which each operator reads the one before it, all of one handle."""
    spec = TensorSpec("float32", (2,))
    nodes = [Node("x", "placeholder", "x", "", outputs=(Value("x", spec),))]
    for name, op in ((f"n{index}", op) for index, op in enumerate(ops)):
        of_one = {"inputs": (nodes[-1].name,), "debug_handle": 1}
        nodes.append(Node(name, "call_function", op, op, outputs=(Value(name, spec),), **of_one))
    nodes.append(Node("output", "output", "output", "", inputs=(nodes[-1].name,)))
    return Graph("g", tuple(nodes), inputs=("x",), outputs=(nodes[-2].name,))


def matched(
    ops: list[str],
    kernels: list[tuple[str, int, int]],
    shape: tuple[int, ...] = (2,),
    outputs: tuple[int, ...] = (),
) -> Matching:
    """The kernels, each (name, value that it reads, value that it writes), matched with a chain."""
    graph, places = chain(*ops), range(len(kernels))
    symbols = MethodSymbols("forward", graph, handles=dict.fromkeys(places, 1))
    records = [
        InstructionRecord(
            number, "kernel", "", name, (reads,), (writes,), operator=f"aten::{name}.out"
        )
        for number, (name, reads, writes) in enumerate(kernels)
    ]
    specs = {number: [LoggedSpec("float32", shape)] for number in places}
    return match(graph, symbols, records, specs, outputs=outputs)


SIN = "aten.sin.default"


def test_equal_operators_are_told_apart_by_what_they_read() -> None:
    found = matched([SIN] * 3, [("sin", number, number + 1) for number in range(3)], outputs=(3,))
    assert [pair.node for pair in found.pairs] == ["n0", "n1", "n2"]


def test_a_kernel_that_is_no_node_of_its_handle_takes_the_replaced_one() -> None:
    assert [pair.node for pair in matched([SIN], [("cos", 0, 1)], outputs=(1,)).pairs] == ["n0"]


def test_too_few_instructions_for_the_nodes_is_ambiguous() -> None:
    found = matched([SIN] * 2, [("sin", 7, 8)])
    assert not found.pairs
    (unpaired,) = found.unpaired_outputs
    assert unpaired.kind == "ambiguous" and "n0, n1" in unpaired.reason


def test_another_shape_is_no_pair() -> None:
    found = matched([SIN], [("sin", 0, 1)], shape=(3,), outputs=(1,))
    assert not found.pairs
    assert found.unpaired_outputs[0].kind == "differs"
    assert "[3]" in found.unpaired_outputs[0].reason
