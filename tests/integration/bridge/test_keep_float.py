"""What stays in float next to what is quantized, and that it still runs."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from torch import nn  # noqa: E402

from etscope.backends.recipes import xnnpack_quantizer  # noqa: E402
from etscope.backends.registry.export_options import ExportOptions  # noqa: E402
from etscope.bridge.lowering.export import methods_of  # noqa: E402
from etscope.bridge.lowering.keep_float import KeepFloat, Unit, quantizable  # noqa: E402
from etscope.errors import UsageError  # noqa: E402
from etscope.export import export  # noqa: E402
from etscope.model.selector import Selector  # noqa: E402
from etscope.run import run  # noqa: E402


class Net(nn.Module):
    """One of each kind that the quantizer knows: fused and alone, shared and handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.left = nn.Conv2d(8, 4, 1)
        self.right = nn.Conv2d(8, 4, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.pool(torch.relu(self.norm(self.stem(x))))
        x = torch.cat([self.left(x), self.right(x)], 1) * x
        x = torch.relu(x + x)
        return torch.relu(self.head(x.mean((2, 3))))


INPUT = (torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    model = Net().eval()
    with torch.no_grad():
        model.norm.running_mean.uniform_(-1, 1)
        model.norm.running_var.uniform_(0.5, 2)
    return model


@cache
def kept(net: Net, *selectors: str) -> Any:
    """The quantized program, not lowered."""
    methods = methods_of(
        net, INPUT, ExportOptions(backend="xnnpack", quantize=True, keep_float=selectors)
    )
    return methods["forward"].program


def weights(program: Any) -> dict[str, bool]:
    """Of each layer with weights, whether they are int8."""
    return {
        node.name: "dequantize" in str(node.args[1].target)
        for node in program.graph.nodes
        if node.op == "call_function" and len(node.args) > 1 and node.name[:4] in ("conv", "line")
    }


def feeds(program: Any, first: str, second: str) -> bool:
    """Whether the one takes the value of the other as it is, and not by way of int8."""
    nodes = {node.name: node for node in program.graph.nodes}
    return nodes[first] in nodes[second].all_input_nodes


def sqnr(net: Net, *selectors: str) -> float:
    """Of the program on the runtime, against the float model."""
    exported = export(net, INPUT, backend="xnnpack", quantize=True, keep_float=selectors)
    with torch.no_grad():
        expected = net(*INPUT)
    with run(exported.program_bytes(), list(INPUT), trace=False, isolate=False) as done:
        error = done.outputs[0] - expected
    return float(10 * torch.log10(expected.square().sum() / error.square().sum()))


@pytest.fixture(scope="module")
def units(net: Net) -> list[Unit]:
    return quantizable(torch.export.export(net, INPUT).module(), xnnpack_quantizer())


def test_the_units_are_what_is_quantized_together(units: list[Unit]) -> None:
    assert {unit.names: unit.moves for unit in units} == {
        ("conv2d", "relu"): False,
        ("max_pool2d",): True,
        ("conv2d_1",): False,
        ("conv2d_2",): False,
        ("cat",): False,
        ("mul",): False,
        ("add", "relu_1"): False,
        ("mean",): False,
        ("linear", "relu_2"): False,
    }


@pytest.mark.parametrize(
    ("selectors", "in_float"),
    [
        (["relu_2"], {"linear"}),  # a pair stays together
        (["module:left", "file:test_keep_float.py and op:linear"], {"conv2d_1", "linear"}),
        (["type:Conv2d and not module:stem"], {"conv2d_1", "conv2d_2"}),
    ],
)
def test_layers_that_are_picked_keep_float_weights(
    net: Net, selectors: list[str], in_float: set[str]
) -> None:
    found = weights(kept(net, *selectors))
    assert {name for name, quantized in found.items() if not quantized} == in_float
    assert len(found) == 4


def test_a_value_between_nodes_in_float_is_float(net: Net) -> None:
    program = kept(net, "module:left", "op:cat")
    assert feeds(program, "conv2d_1", "cat")
    assert not feeds(program, "conv2d_2", "cat")
    assert sqnr(net, "module:left", "op:cat") > 15


def test_a_scale_is_not_handed_on_by_what_is_in_float(net: Net) -> None:
    assert feeds(kept(net, "module:stem"), "relu", "max_pool2d")
    assert not feeds(kept(net, "module:left", "op:cat"), "relu", "max_pool2d")


def test_all_in_float_is_the_float_model(net: Net) -> None:
    before = {name: value.clone() for name, value in net.state_dict().items()}
    nodes = kept(net, "kind:*").graph.nodes
    assert not [node for node in nodes if "quantize" in str(node.target)]
    assert sqnr(net, "kind:*") > 100
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_selector_that_picks_nothing_is_an_error(net: Net) -> None:
    with pytest.raises(
        UsageError,
        match="picks nothing that would be quantized\n  hint: near names: head",
    ):
        kept(net, "module:left", "module:haed")


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("op:conv3d", "near names: conv2d"),
        ("module:norm", "a batch norm is a part of the convolution before it"),
    ],
)
def test_the_error_names_what_there_is(units: list[Unit], selector: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        KeepFloat(None, [Selector(selector)], units=units).check()
    assert words in str(caught.value)


def test_without_quantization_there_is_nothing_to_keep(net: Net) -> None:
    for backend in ("xnnpack", "portable"):
        with pytest.raises(UsageError, match="give quantize too"):
            export(net, INPUT, backend=backend, keep_float="module:head")
