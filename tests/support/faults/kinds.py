"""A model of many operators, and faults of known kinds that are planted into what a device runs.

The edge program is exported once; each fault changes a copy of it, before memory is planned.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import executorch.kernels.quantized  # noqa: F401  (registers the out variants)
import torch
from executorch.exir import to_edge
from executorch.exir.dialects._ops import ops
from torch import nn

from etscope.analysis.numerics.rows import Numerics
from etscope.run import run

EDGE = ops.edge.aten
QUANTIZED = torch.ops.quantized_decomposed


class Parts(nn.Module):
    """Operators beside each other: a fault in one shows in its own output alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(16, 16) for _ in range(3))
        self.norm, self.batch = nn.LayerNorm(16, eps=1e-3), nn.BatchNorm2d(6)
        self.conv = nn.Conv2d(6, 6, 3, padding=1)
        self.each = nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False)
        self.table = nn.Embedding(20, 16)
        self.pool = nn.AvgPool2d(3, stride=1, padding=1)
        self.scales = nn.Parameter(torch.rand(16) + 0.5)
        for one in (self.norm, self.batch):
            nn.init.uniform_(one.weight, 0.5, 1.5)
            nn.init.uniform_(one.bias, 0.5, 1.5)
        nn.init.uniform_(self.batch.running_mean, -0.5, 0.5)
        nn.init.uniform_(self.batch.running_var, 0.5, 1.5)

    def forward(
        self, x: torch.Tensor, image: torch.Tensor, tokens: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        hidden = self.second(nn.functional.gelu(self.first(x)))
        scores = self.third(x)[0] @ x[0].transpose(0, 1) * 0.25
        mask = torch.ones(16, 16, dtype=torch.bool).tril()
        codes = QUANTIZED.quantize_per_tensor.default(x * 2, 0.05, 3, -128, 127, torch.int8)
        return (
            self.norm(hidden * 0.1),
            torch.softmax(scores.masked_fill(~mask, -9.0), -1),
            self.batch(self.conv(image)),
            self.pool(torch.relu(self.each(image))),
            self.table(tokens) * self.scales,
            x - image.reshape(4, 16, 12).mean(-1, keepdim=True),
            torch.tanh(x).transpose(1, 2) / (x * x + 1.0),
            torch.clamp(x + 0.5, -1.0, 1.0).roll(1, 1)[:, 2:10],
            QUANTIZED.dequantize_per_tensor.default(codes, 0.05, 3, -128, 127, torch.int8),
            torch.cat([torch.sigmoid(x), torch.exp(-x)], 1),
            torch.rsqrt(x.pow(2).mean(-1, keepdim=True) * 0.1 + 0.01),
        )


def inputs() -> tuple[torch.Tensor, ...]:
    """Inputs of `Parts`."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 16, 16, generator=generator)
    image = torch.randn(2, 6, 8, 8, generator=generator)
    return x, image, torch.arange(12).reshape(2, 6)


def model() -> Parts:
    """The model without fault; the same each time."""
    torch.manual_seed(0)
    return Parts().eval()


@cache
def portable() -> Any:
    """The edge program of the model, which has not been lowered."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return to_edge(torch.export.export(model(), inputs()), generate_etrecord=True)


@cache
def record() -> Any:
    """The record of the model without fault."""
    return copy.deepcopy(portable()).to_executorch().get_etrecord()


def nodes(program: Any, operator: str) -> list[Any]:
    """The nodes of an operator, in order."""
    found = [node for node in program.graph.nodes if f".{operator}." in f".{node.target}."]
    assert found, operator
    return found


@dataclass(frozen=True)
class Planted:
    """A fault, the kind that it is to be named by, and words of the explanation.

    plant: changes an edge program.
    """

    name: str
    kind: str
    words: str
    plant: Callable[[Any], None]


def weight(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], None]:
    """Return a fault in a weight."""

    def plant(program: Any) -> None:
        program.state_dict[name] = nn.Parameter(
            change(program.state_dict[name].detach().clone()), requires_grad=False
        )

    return plant


def arguments(operator: str, number: int = 0, **changed: Any) -> Callable[[Any], None]:
    """Return a fault in the arguments of an operator, by position ("at_1") or name."""

    def plant(program: Any) -> None:
        node = nodes(program, operator)[number]
        for name, value in changed.items():
            if name.startswith("at_"):
                node.args = (*node.args[: int(name[3:])], value, *node.args[int(name[3:]) + 1 :])
            else:
                node.kwargs = {**node.kwargs, name: value}

    return plant


def target(operator: str, other: Any, number: int = 0) -> Callable[[Any], None]:
    """Return a fault in which an operator is another one."""

    def plant(program: Any) -> None:
        nodes(program, operator)[number].target = other

    return plant


def swapped(operator: str) -> Callable[[Any], None]:
    """Return a fault in which an operator has its two operands in the other order."""

    def plant(program: Any) -> None:
        node = nodes(program, operator)[0]
        node.args = (node.args[1], node.args[0], *node.args[2:])

    return plant


def diagnosed(program: Any, to: Any = None, given: Any = None) -> Numerics:
    """What is found in a run of a program, with the record of the one without fault."""
    given = inputs() if given is None else given
    with (
        warnings.catch_warnings(),
        run(
            program,
            given,
            debug_level="intermediate_outputs",
            separate=False,
            isolate=False,
            iterations=1,
            warmup=0,
        ) as done,
    ):
        warnings.simplefilter("ignore")
        inspector = done.inspector(etrecord=record() if to is None else to, verify=False)
        return inspector.diagnose_numerics(inputs=given)


def planted(plant: Callable[[Any], None]) -> Numerics:
    """What is found in a run of the model with a fault."""
    faulty = copy.deepcopy(portable())
    program = faulty.exported_program()
    program._state_dict = dict(program.state_dict)
    plant(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return diagnosed(faulty.to_executorch())


def swap_where(program: Any) -> None:
    node = nodes(program, "where")[0]
    node.args = (node.args[0].args[0], *node.args[1:])


def not_counted(program: Any) -> None:
    node = nodes(program, "avg_pool2d")[0]
    node.args = (*node.args[:4], False, False)


def swapped_sub(program: Any) -> None:
    node = nodes(program, "sub")[1]
    node.args = (node.args[1], node.args[0])


def reversed_cat(program: Any) -> None:
    node = nodes(program, "cat")[0]
    node.args = (list(node.args[0])[::-1], *node.args[1:])


FAULTS = (
    Planted(
        "weight transposed",
        "transposed",
        "0 and 1 transposed",
        weight("first.weight", lambda w: w.T.contiguous()),
    ),
    Planted(
        "weight of another layer",
        "other weight",
        "third.weight in place of second.weight",
        lambda p: weight("second.weight", lambda w: p.state_dict["third.weight"].detach())(p),
    ),
    Planted(
        "bias of another layer",
        "other weight",
        "second.bias in place of first.bias",
        lambda p: weight("first.bias", lambda w: p.state_dict["second.bias"].detach())(p),
    ),
    Planted(
        "bias missing", "left out", "first.bias left out", weight("first.bias", torch.zeros_like)
    ),
    Planted(
        "bias of a convolution missing",
        "left out",
        "conv.bias left out",
        weight("conv.bias", torch.zeros_like),
    ),
    Planted(
        "bias with another sign",
        "argument scale",
        "second.bias with the sign turned",
        weight("second.bias", torch.neg),
    ),
    Planted(
        "bias times 3",
        "argument scale",
        "first.bias times 3",
        weight("first.bias", lambda b: b * 3),
    ),
    Planted("weight times 1.5", "scale", "times 1.5", weight("third.weight", lambda w: w * 1.5)),
    Planted(
        "weight of a convolution times 2",
        "argument scale",
        "conv.weight times 2",
        weight("conv.weight", lambda w: w * 2),
    ),
    Planted(
        "one channel times 1.5",
        "argument scale",
        "conv.weight times 1.5 in channel 3",
        weight("conv.weight", lambda w: w * torch.tensor([1, 1, 1, 1.5, 1, 1]).reshape(6, 1, 1, 1)),
    ),
    Planted(
        "one channel of a depthwise convolution",
        "scale",
        "times 0.7 in channel 2",
        weight("each.weight", lambda w: w * torch.tensor([1, 1, 0.7, 1, 1, 1]).reshape(6, 1, 1, 1)),
    ),
    Planted(
        "channels swapped",
        "permuted argument",
        "each.weight with channels 2 and 5 swapped",
        weight("each.weight", lambda w: w[[0, 1, 5, 3, 4, 2]]),
    ),
    Planted(
        "channels rolled",
        "rolled argument",
        "each.weight rolled by one in dimension 0",
        weight("each.weight", lambda w: w.roll(1, 0)),
    ),
    Planted(
        "kernel transposed",
        "transposed argument",
        "conv.weight transposed in dimensions (2, 3)",
        weight("conv.weight", lambda w: w.transpose(2, 3).contiguous()),
    ),
    Planted(
        "kernel's channels transposed",
        "transposed argument",
        "conv.weight transposed in dimensions (0, 1)",
        weight("conv.weight", lambda w: w.transpose(0, 1).contiguous()),
    ),
    Planted(
        "kernel turned around",
        "reversed argument",
        "turned around",
        weight("conv.weight", lambda w: w.flip(2, 3)),
    ),
    Planted(
        "one weight",
        "weight element",
        "element [3, 2, 1, 1] of conv.weight",
        weight(
            "conv.weight",
            lambda w: w + 0.2 * (torch.arange(w.numel()).reshape(w.shape) == 3 * 54 + 2 * 9 + 4),
        ),
    ),
    Planted(
        "input channel of a kernel",
        "weight part",
        "conv.weight times 0.5 in its index 4 of dimension 1",
        weight("conv.weight", lambda w: w * torch.tensor([1, 1, 1, 1, 0.5, 1]).reshape(1, 6, 1, 1)),
    ),
    Planted(
        "one row of a table",
        "scale",
        "times 1.2 in index 1 of dimension 0 and index 3 of dimension 1",
        weight("table.weight", lambda w: w * (1 + 0.2 * (torch.arange(20) == 9)).unsqueeze(1)),
    ),
    Planted(
        "weights as bfloat16",
        "rounded",
        "rounded to bfloat16",
        weight("second.weight", lambda w: w.bfloat16().float()),
    ),
    Planted(
        "kernel as bfloat16",
        "rounded argument",
        "conv.weight rounded to bfloat16",
        weight("conv.weight", lambda w: w.bfloat16().float()),
    ),
    Planted(
        "kernel as float16",
        "rounded argument",
        "conv.weight rounded to float16",
        weight("conv.weight", lambda w: w.half().float()),
    ),
    Planted(
        "scale of a norm missing",
        "left out",
        "norm.weight left out (1 everywhere)",
        weight("norm.weight", torch.ones_like),
    ),
    Planted(
        "bias of a norm missing",
        "left out",
        "norm.bias left out",
        weight("norm.bias", torch.zeros_like),
    ),
    Planted(
        "mean of a batch norm missing",
        "left out",
        "batch.running_mean left out",
        weight("batch.running_mean", torch.zeros_like),
    ),
    Planted(
        "eps of a layer norm",
        "eps",
        "eps of 1e-05 in place of 0.001",
        arguments("native_layer_norm", at_4=1e-5),
    ),
    Planted(
        "eps of a batch norm",
        "eps",
        "eps of 0.02 in place of 1e-05",
        arguments("_native_batch_norm_legit_no_training", at_6=0.02),
    ),
    Planted(
        "added eps",
        "number",
        "its other 0.003 in place of 0.01",
        weight("_lifted_tensor_constant10", lambda w: w * 0.3),
    ),
    Planted(
        "factor of attention",
        "number",
        "its other 0.125 in place of 0.25",
        weight("_lifted_tensor_constant3", lambda w: w * 0.5),
    ),
    Planted(
        "gelu by tanh",
        "activation",
        "gelu by tanh in place of gelu",
        arguments("gelu", approximate="tanh"),
    ),
    Planted(
        "relu for gelu", "activation", "relu in place of gelu", target("gelu", EDGE.relu.default)
    ),
    Planted(
        "sigmoid for tanh",
        "activation",
        "sigmoid in place of tanh",
        target("tanh", EDGE.sigmoid.default),
    ),
    Planted("abs for relu", "activation", "abs in place of relu", target("relu", EDGE.abs.default)),
    Planted(
        "softmax over rows",
        "dimension",
        "over dimension 0 in place of 1",
        arguments("_softmax", at_1=0),
    ),
    Planted(
        "mask inverted", "inverted argument", "its condition inverted", lambda p: swap_where(p)
    ),
    Planted(
        "logical or for and",
        "operands",
        "logical_or in place of logical_and",
        target("logical_and", EDGE.logical_or.default),
    ),
    Planted("operands swapped", "operands", "b - a in place of a - b", swapped_sub),
    Planted(
        "multiplied and not divided",
        "operands",
        "a * b in place of a / b",
        target("div", EDGE.mul.Tensor),
    ),
    Planted(
        "added and not subtracted",
        "operands",
        "a + b in place of a - b",
        target("sub", EDGE.add.Tensor, 1),
    ),
    Planted("alpha", "argument scale", "its other times 2", arguments("sub", 1, alpha=2)),
    Planted("clamped too early", "clamped", "cut off above at 0.8", arguments("clamp", at_2=0.8)),
    Planted("not clamped below", "left out", "without its min", arguments("clamp", at_1=-9.0)),
    Planted(
        "slice one later",
        "number",
        "from 3 in place of 2",
        arguments("slice_copy", at_2=3, at_3=11),
    ),
    Planted("padding not counted", "option", "count_include_pad off", not_counted),
    Planted(
        "another constant",
        "offset",
        "plus -14",
        weight("_lifted_tensor_constant8", lambda w: w * 0 + 1),
    ),
    Planted(
        "concatenated the other way",
        "operands",
        "its tensors in reversed order",
        lambda p: reversed_cat(p),
    ),
    Planted(
        "zero point off by one",
        "number",
        "its zero_point 4 in place of 3",
        arguments("dequantize_per_tensor", at_2=4),
    ),
    Planted(
        "scale doubled",
        "number",
        "its scale 0.1 in place of 0.05",
        arguments("quantize_per_tensor", at_1=0.1),
    ),
)
