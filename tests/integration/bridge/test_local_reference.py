"""Values recomputed from the device's own: those in float64 are the same on demand as in a run of
their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from etscope.analysis.numerics.diagnose import RunMatcher  # noqa: E402
from etscope.analysis.numerics.runs import TracedMethod  # noqa: E402
from etscope.bridge.reference.local_reference import recompute  # noqa: E402
from etscope.bridge.reference.reference import GraphNode  # noqa: E402
from etscope.bridge.reference.ties import Local  # noqa: E402
from etscope.bridge.reference.xnnpack_int8 import dynamic_of, static_of  # noqa: E402
from etscope.diagnosis.reference import ReferenceGraphs, named_program  # noqa: E402
from tests.support.numeric_runs import EDGE, inputs_of, inspector  # noqa: E402


class SideBySide:
    """A graph that is not taken for a plain one."""

    is_plain = False

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)


def recomputed(name: str, *, rebuilt: bool, plain: bool) -> Iterator[Any]:
    trace = inspector(name).trace
    method, graphs = TracedMethod(trace, "forward"), ReferenceGraphs.of(trace)
    graph = graphs.of_method(method, EDGE)
    ran = RunMatcher(graph).match(method, method.run(None))
    runnable: Any = named_program(trace.record, graph) if rebuilt else graphs.runnable(graph)
    assert runnable.is_plain
    if not plain:
        runnable = SideBySide(runnable)
    return recompute(runnable, inputs_of(name), ran.device, set(ran.matching.by_node))


def arrays(value: Any) -> list[Any]:
    return [np.asarray(one) for one in (value if isinstance(value, (tuple, list)) else [value])]


@pytest.mark.parametrize(
    ("name", "rebuilt"),
    [("cnn_portable", False), ("llama_xnnpack", True), ("many_delegates", False)],
)
def test_float64_on_demand_is_that_of_a_run_of_its_own(name: str, rebuilt: bool) -> None:
    pairs = zip(
        recomputed(name, rebuilt=rebuilt, plain=True),
        recomputed(name, rebuilt=rebuilt, plain=False),
        strict=True,
    )
    count = 0
    for one, other in pairs:
        assert (one.name, one.loop_pass) == (other.name, other.loop_pass)
        for found, expected in zip(arrays(one.wide), arrays(other.wide), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
            assert found.dtype == expected.dtype
            count += found.dtype == np.float64
        for kind in ("local", "reference"):
            for found, expected in zip(
                arrays(getattr(one, kind)), arrays(getattr(other, kind)), strict=True
            ):
                np.testing.assert_array_equal(found, expected)
    assert count


def test_float64_does_not_depend_on_what_else_was_asked_for() -> None:
    everything = {
        one.name: one.wide for one in recomputed("cnn_portable", rebuilt=False, plain=True)
    }
    last = None
    for one in recomputed("cnn_portable", rebuilt=False, plain=True):
        last = one
    assert last is not None and len(everything) > 5
    np.testing.assert_array_equal(last.wide, everything[last.name])


@pytest.mark.parametrize(
    "operator",
    [
        "quantized_decomposed.choose_qparams.tensor",
        "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
        "torchao.choose_qparams_affine.default",
    ],
)
def test_zero_points_next_to_the_middle_between_two_steps_go_to_the_other_side(
    operator: str,
) -> None:
    choose = dynamic_of(GraphNode("choose", operator))
    assert choose is not None
    above = 1 + 2.0**-22
    rows = torch.tensor([[-1.0, 0.5, 1.0], [-1.0, 0.5, above], [-1.0, 0.5, 1.2], [0.0, 0.0, 0.0]])
    scales, zeros = choose(None, (rows,), {}, None)
    _, flipped = choose(None, (rows,), {}, Local((rows,)))
    assert scales.shape == zeros.shape == (4, 1)
    assert scales[2].item() == pytest.approx(2.2 / 255)
    assert zeros[2:].flatten().tolist() == flipped[2:].flatten().tolist() == [-12, 127]
    assert {zeros[0].item(), flipped[0].item()} == {zeros[1].item(), flipped[1].item()} == {-1, 0}


def test_a_number_at_a_tie_goes_to_the_other_step_than_in_float32() -> None:
    chosen = GraphNode("choose", "torchao.choose_qparams_affine.default")
    arguments = [GraphNode("x"), [1, 4], chosen, chosen]
    quantize = dynamic_of(GraphNode("quantize", "torchao.quantize_affine.default", arguments))
    assert quantize is not None
    step, zero = torch.ones(2, 1, dtype=torch.float64), torch.tensor([[3], [3]])
    # Above the middle by rounding, exactly there in float64, where it is rounded to the even step.
    # The last two are sums of larger terms, with more rounding than their own size shows.
    near = torch.tensor([[32.500004, 7.4999, -2.0, 32.6], [0.2, 1.49999, 0.50002, 3.3]])
    wide = torch.tensor([[32.5, 7.4999, -2.0, 32.6], [0.20001, 1.50001, 0.49998, 3.3]])
    local = quantize(None, (near, [1, 4], step, zero), {}, None) - 3
    found = quantize(None, (wide.double(), [1, 4], step, zero), {}, Local((near, [1, 4], step))) - 3
    assert local.tolist() == [[33, 7, -2, 33], [0, 1, 1, 3]]
    assert found.tolist() == [[32, 7, -2, 33], [0, 2, 0, 3]]


@pytest.mark.parametrize(
    ("operator", "inputs", "is_left_out"),
    [
        ("aten.linear.default", "quantized_decomposed.dequantize_per_tensor.default", True),
        ("aten.add.Tensor", "quantized_decomposed.dequantize_per_tensor.default", False),
        ("aten.linear.default", "aten.relu.default", False),
    ],
)
def test_only_a_layer_of_integers_is_not_rounded_before_its_clamp(
    operator: str, inputs: str, is_left_out: bool
) -> None:
    nodes = [GraphNode(operator, operator, [GraphNode(name, inputs, (None, 0.5)) for name in "xw"])]
    for step in ("quantize", "dequantize", "clamp", "quantize"):
        quantized = f"quantized_decomposed.{step}_per_tensor.default"
        name = "aten.clamp.default" if step == "clamp" else quantized
        nodes.append(GraphNode(step, name, (nodes[-1], 0.5, 0)))
        nodes[-2].users.append(nodes[-1])
    found = [static_of(node) is not None for node in nodes[1:]]
    assert found == [is_left_out, is_left_out, False, False]
