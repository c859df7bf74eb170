"""`etscope.intermediate_output_tap` in the place of upstream's."""

from __future__ import annotations

import copy
import warnings
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import intermediate_output_tap as upstreams
from executorch.exir import to_edge_transform_and_lower
from torch import nn

import etscope.intermediate_output_tap as ours
from etscope.errors import UsageError


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + torch.relu(self.linear(self.norm(x)))
        return result


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.head(self.layers(x)), dim=-1)


class Written(nn.Module):
    """A value that is written to after it was tapped; a node with two values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z = y.relu_() + 1
        return torch.topk(z, 2)[0]


INPUTS = (torch.linspace(-1, 1, 32).reshape(4, 8),)
SELECTORS: dict[str, Any] = {
    "all": lambda taps: taps.select_all_call_function(),
    "op": lambda taps: taps.select_by_op_type("linear.default", "aten.relu.default"),
    "path": lambda taps: taps.select_by_module_path("layers.*"),
    "inside": lambda taps: taps.select_by_module_path("layers.1", output_only=False),
    "class": lambda taps: taps.select_by_module_class("Layer", "Linear"),
    "both": lambda taps: taps.select_all(
        taps.select_by_module_class("Layer", output_only=False),
        taps.select_not(taps.select_by_op_type("add.Tensor")),
    ),
    "either": lambda taps: taps.select_any(
        taps.select_by_module_path("head"), taps.select_by_op_type("softmax.int")
    ),
}


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def model(kind: type[nn.Module] = Model) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


@cache
def _exported(kind: type[nn.Module]) -> Any:
    return torch.export.export(model(kind), INPUTS, strict=True)


def exported(kind: type[nn.Module] = Model) -> Any:
    """The exported model, which a test may write taps into."""
    return copy.deepcopy(_exported(kind))


def test_the_names_are_upstreams() -> None:
    assert sorted(ours.__all__) == sorted(upstreams.__all__)
    assert ours.STATS.fields == upstreams.STATS.fields


@pytest.mark.parametrize("name", SELECTORS)
def test_the_specs_are_upstreams(name: str) -> None:
    found = []
    for taps in (ours, upstreams):
        program = exported()
        rules = [(SELECTORS[name](taps), "FULL_TENSOR")]
        same, specs = taps.tap_intermediate_outputs_(program, rules, max_taps=9)
        assert same is program
        found.append([asdict(spec) for spec in specs])
        assert len(taps.find_tap_nodes(program.graph_module)) == len(specs)
    assert found[0] == found[1]
    assert found[0]


@pytest.mark.parametrize(
    ("reducer", "selector", "delegated"), [("STATS", "op", True), ("FULL_TENSOR", "all", False)]
)
def test_the_comparison_is_upstreams(reducer: str, selector: str, delegated: bool) -> None:
    frames = [
        taps.tap_compare(
            model(Layer),
            INPUTS,
            [XnnpackPartitioner()] if delegated else None,
            rules=(SELECTORS[selector](taps), reducer),
        )[0]
        for taps in (ours, upstreams)
    ]
    assert list(frames[0].columns) == list(frames[1].columns)
    names, numbers = frames[0].columns[:6], frames[0].columns[6:]
    assert frames[0][names].equals(frames[1][names])
    one, other = (frame[numbers].astype(float) for frame in frames)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_what_upstream_gets_wrong() -> None:
    frame, specs = ours.tap_compare(
        Written(), INPUTS, rules=(ours.select_all_call_function(), "FULL_TENSOR")
    )
    assert [spec.node_name for spec in specs] == ["mul", "relu_", "add", "getitem", "getitem_1"]
    assert (frame["sqnr_db"] > 100).all()
    values, _ = upstreams.tap_compare(
        Written(), INPUTS, rules=(upstreams.select_by_op_type("mul.Tensor"), "FULL_TENSOR")
    )
    assert (values["sqnr_db"] < 10).all()  # held against what relu_ made of it


def test_a_reducer_of_ones_own() -> None:
    from executorch.exir.dialects._ops import ops

    def emit(graph: Any, node: Any) -> Any:
        return graph.call_function(ops.edge.aten.sum.dim_IntList, (node, [0]))

    total = ours.StatReducer("TOTAL", ("a", "b", "c"), emit, lambda value: value.sum(0))
    frame, _ = ours.tap_compare(
        model(),
        INPUTS,
        [XnnpackPartitioner()],
        rules=(ours.select_by_op_type("softmax.int"), total),
    )
    sums = model()(*INPUTS).sum(0).tolist()
    np.testing.assert_allclose(frame[["aot_a", "aot_b", "aot_c"]].iloc[0], sums, rtol=1e-5)
    np.testing.assert_allclose(frame[["rt_a", "rt_b", "rt_c"]].iloc[0], sums, rtol=1e-5)


def test_nothing_is_left_of_a_tap() -> None:
    program, _ = ours.tap_intermediate_outputs_(exported(Layer))
    edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    assert ours.find_tap_nodes(edge.exported_program().graph_module)
    ours.strip_taps_(edge)
    assert not ours.find_tap_nodes(edge.exported_program().graph_module)


def test_what_cannot_be_is_a_value_error() -> None:
    program = exported()
    nothing = (ours.select_by_op_type("aten.no.such"), ours.STATS)
    with pytest.raises(UsageError, match="no rule selects"):
        ours.tap_intermediate_outputs_(program, nothing)
    with pytest.raises(ValueError, match="rules that say what to tap are missing"):
        ours.tap_intermediate_outputs_(program, [])
    with pytest.raises(ValueError, match="unknown reducer 'MEDIAN'"):
        ours.get_reducer("MEDIAN")
    with pytest.raises(ValueError, match="built-in"):
        ours.get_reducer(ours.StatReducer("STATS", (), ours.STATS.emit, ours.STATS.eager))
    with pytest.raises(ValueError, match="at least"):
        ours.select_by_op_type()
    assert ours.tap_intermediate_outputs_(program, nothing, error_on_empty=False)[1] == []
    size = torch.export.Dim("n", min=2, max=8)
    dynamic = torch.export.export(model(), INPUTS, dynamic_shapes=({0: size},), strict=True)
    with pytest.raises(UsageError, match="static shape"):
        ours.tap_intermediate_outputs_(dynamic)
