"""A model of many operators, and faults of known kinds: changes of its edge program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import executorch.kernels.quantized  # noqa: F401  (registers the out variants)
import torch
from executorch.exir.dialects._ops import ops
from torch import nn

Plant = Callable[[Any], None]
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


def nodes(program: Any, operator: str) -> list[Any]:
    """The nodes of an operator, in order."""
    found = [node for node in program.graph.nodes if f".{operator}." in f".{node.target}."]
    assert found, operator
    return found


def weight(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Plant:
    """Return a fault in a weight."""

    def plant(program: Any) -> None:
        program.state_dict[name] = nn.Parameter(
            change(program.state_dict[name].detach().clone()), requires_grad=False
        )

    return plant


def arguments(operator: str, number: int = 0, **changed: Any) -> Plant:
    """Return a fault in the arguments of an operator, by position ("at_1") or name."""

    def plant(program: Any) -> None:
        node = nodes(program, operator)[number]
        for name, value in changed.items():
            if name.startswith("at_"):
                node.args = (*node.args[: int(name[3:])], value, *node.args[int(name[3:]) + 1 :])
            else:
                node.kwargs = {**node.kwargs, name: value}

    return plant


def target(operator: str, other: Any, number: int = 0) -> Plant:
    """Return a fault in which an operator is another one."""

    def plant(program: Any) -> None:
        nodes(program, operator)[number].target = other

    return plant


def at_random(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a change that adds random numbers."""
    return lambda one: (
        one + 0.1 * torch.randn(one.shape, generator=torch.Generator().manual_seed(seed))
    )


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


FAULTS: dict[str, Plant] = {
    "weight transposed": weight("first.weight", lambda w: w.T.contiguous()),
    "weight of another layer": lambda p: weight(
        "second.weight", lambda w: p.state_dict["third.weight"].detach()
    )(p),
    "bias of another layer": lambda p: weight(
        "first.bias", lambda w: p.state_dict["second.bias"].detach()
    )(p),
    "bias missing": weight("first.bias", torch.zeros_like),
    "bias of a convolution missing": weight("conv.bias", torch.zeros_like),
    "bias with another sign": weight("second.bias", torch.neg),
    "bias times 3": weight("first.bias", lambda b: b * 3),
    "weight times 1.5": weight("third.weight", lambda w: w * 1.5),
    "weight of a convolution times 2": weight("conv.weight", lambda w: w * 2),
    "one channel times 1.5": weight(
        "conv.weight", lambda w: w * torch.tensor([1, 1, 1, 1.5, 1, 1]).reshape(6, 1, 1, 1)
    ),
    "one channel of a depthwise convolution": weight(
        "each.weight", lambda w: w * torch.tensor([1, 1, 0.7, 1, 1, 1]).reshape(6, 1, 1, 1)
    ),
    "channels swapped": weight("each.weight", lambda w: w[[0, 1, 5, 3, 4, 2]]),
    "channels rolled": weight("each.weight", lambda w: w.roll(1, 0)),
    "kernel transposed": weight("conv.weight", lambda w: w.transpose(2, 3).contiguous()),
    "kernel's channels transposed": weight("conv.weight", lambda w: w.transpose(0, 1).contiguous()),
    "kernel turned around": weight("conv.weight", lambda w: w.flip(2, 3)),
    "one weight": weight(
        "conv.weight",
        lambda w: w + 0.2 * (torch.arange(w.numel()).reshape(w.shape) == 3 * 54 + 2 * 9 + 4),
    ),
    "input channel of a kernel": weight(
        "conv.weight", lambda w: w * torch.tensor([1, 1, 1, 1, 0.5, 1]).reshape(1, 6, 1, 1)
    ),
    "one row of a table": weight(
        "table.weight", lambda w: w * (1 + 0.2 * (torch.arange(20) == 9)).unsqueeze(1)
    ),
    "weights as bfloat16": weight("second.weight", lambda w: w.bfloat16().float()),
    "kernel as bfloat16": weight("conv.weight", lambda w: w.bfloat16().float()),
    "kernel as float16": weight("conv.weight", lambda w: w.half().float()),
    "scale of a norm missing": weight("norm.weight", torch.ones_like),
    "bias of a norm missing": weight("norm.bias", torch.zeros_like),
    "mean of a batch norm missing": weight("batch.running_mean", torch.zeros_like),
    "eps of a layer norm": arguments("native_layer_norm", at_4=1e-5),
    "eps of a batch norm": arguments("_native_batch_norm_legit_no_training", at_6=0.02),
    "added eps": weight("_lifted_tensor_constant10", lambda w: w * 0.3),
    "factor of attention": weight("_lifted_tensor_constant3", lambda w: w * 0.5),
    "gelu by tanh": arguments("gelu", approximate="tanh"),
    "relu for gelu": target("gelu", EDGE.relu.default),
    "sigmoid for tanh": target("tanh", EDGE.sigmoid.default),
    "abs for relu": target("relu", EDGE.abs.default),
    "softmax over rows": arguments("_softmax", at_1=0),
    "mask inverted": swap_where,
    "logical or for and": target("logical_and", EDGE.logical_or.default),
    "operands swapped": swapped_sub,
    "multiplied and not divided": target("div", EDGE.mul.Tensor),
    "added and not subtracted": target("sub", EDGE.add.Tensor, 1),
    "alpha": arguments("sub", 1, alpha=2),
    "clamped too early": arguments("clamp", at_2=0.8),
    "not clamped below": arguments("clamp", at_1=-9.0),
    "slice one later": arguments("slice_copy", at_2=3, at_3=11),
    "padding not counted": not_counted,
    "another constant": weight("_lifted_tensor_constant8", lambda w: w * 0 + 1),
    "concatenated the other way": reversed_cat,
    "zero point off by one": arguments("dequantize_per_tensor", at_2=4),
    "scale doubled": arguments("quantize_per_tensor", at_1=0.1),
}
# Of no kind: what is told of them has no name.
FAULTS |= {
    f"{name} at random, {seed}": weight(name, at_random(seed))
    for name in ("second.weight", "conv.weight", "table.weight", "norm.weight")
    for seed in range(3)
}

# Inside of a delegate's call: the parameter of a feed-forward layer, and what is done to it.
INSIDE: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "missing": ("up.bias", torch.zeros_like),
    "times": ("down.bias", lambda one: one * 3),
    "rounded": ("down.weight", lambda one: one.half().float()),
    "random": ("up.weight", at_random(8)),
}
