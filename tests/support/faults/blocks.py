"""Parts of models, in each of which a fault can be planted that leaves all operators as they are.

A line that a fault is in ends with a comment of its name, ``# scale``: so the line that a diagnosis
should name is known. `FAULTS` says how each is planted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

Plant = Callable[[Any], None]


class Block(nn.Module):
    """A part with faults: by name, what changes a block that has none."""

    FAULTS: ClassVar[dict[str, Plant]] = {}

    @classmethod
    @cache
    def line(cls, fault: str) -> int:
        """The line of the file that the fault's operator is in."""
        mark = f"# {fault.partition('-')[0]}"
        lines, first = inspect.getsourcelines(cls.forward)
        (found,) = [at for at, text in enumerate(lines) if text.rstrip().endswith(mark)]
        return first + found


def _set(name: str, value: Any) -> Plant:
    return lambda block: setattr(block, name, value)


def _element(path: str, value: float) -> Plant:
    """One element of a weight."""

    def plant(block: Any) -> None:
        with torch.no_grad():
            weight = block.get_parameter(path).view(-1)
            weight[weight.numel() // 2] = value

    return plant


def _transposed(path: str) -> Plant:
    def plant(block: Any) -> None:
        weight = block.get_parameter(path)
        with torch.no_grad():
            weight.copy_(weight.transpose(0, 1).clone())

    return plant


def _swapped(one: str, other: str) -> Plant:
    def plant(block: Any) -> None:
        first, second = getattr(block, one), getattr(block, other)
        setattr(block, one, second)
        setattr(block, other, first)

    return plant


# -- of images [n, c, h, w]


class Conv(Block):
    FAULTS: ClassVar = {
        "pad": _set("around", (0, 2, 1, 1)),
        "conv-transposed": _transposed("conv.weight"),
        "conv-nan": _element("conv.weight", float("nan")),
        "conv-inf": _element("conv.weight", float("inf")),
        "slope": _set("slope", 0.2),
        "scale": _set("scale", 0.55),
    }

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3), nn.BatchNorm2d(width)
        self.around, self.slope, self.scale = (1, 1, 1, 1), 0.1, 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.pad(x, self.around)  # pad
        y = self.conv(y)  # conv
        y = self.norm(y)
        y = F.leaky_relu(y, self.slope)  # slope
        return y * self.scale  # scale


class Depthwise(Block):
    FAULTS: ClassVar = {
        "deep-nan": _element("deep.weight", float("nan")),
        "clamp": _set("top", 0.1),
        "point-transposed": _transposed("point.weight"),
        "norm": _set("epsilon", 0.1),
        "sum": _swapped("one", "other"),
    }

    def __init__(self, width: int) -> None:
        super().__init__()
        self.deep = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.point = nn.Conv2d(width, width, 1)
        self.weight, self.bias = (nn.Parameter(torch.rand(width) + 0.5) for _ in range(2))
        self.top, self.epsilon, self.one, self.other = 1.0, 1e-5, 0.75, 1.25

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.deep(x)  # deep
        y = torch.clamp(y, -1.0, self.top)  # clamp
        y = self.point(y)  # point
        y = F.group_norm(y, 2, self.weight, self.bias, self.epsilon)  # norm
        y = y * self.one  # sum
        return x + y * self.other


class Pooled(Block):
    FAULTS: ClassVar = {
        "average": _set("counts_padding", False),
        "offset": _set("offset", 0.26),
        "flip": _set("axis", 2),
        "start": _set("start", 0),
    }

    def __init__(self, width: int) -> None:
        super().__init__()
        self.counts_padding, self.offset, self.axis, self.start = True, 0.25, 3, 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[2]
        y = F.avg_pool2d(x, 3, 1, 1, count_include_pad=self.counts_padding)  # average
        y = y + self.offset  # offset
        y = torch.flip(y, [self.axis])  # flip
        y = F.pad(y, (1, 1, 1, 1))
        y = y.narrow(2, self.start, size)  # start
        y = y.narrow(3, 1, size)
        return torch.maximum(x, F.max_pool2d(y, 3, 1, 1))


# -- of sequences [n, length, width]


class Perceptron(Block):
    FAULTS: ClassVar = {
        "first-transposed": _transposed("first.weight"),
        "first-nan": _element("first.weight", float("nan")),
        "approximation": _set("approximation", "tanh"),
        "alpha": _set("alpha", 0.9),
        "second-inf": _element("second.weight", float("-inf")),
    }

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.approximation, self.alpha = "none", 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)  # first
        y = F.gelu(y, approximate=self.approximation)  # approximation
        y = self.second(y)  # second
        return torch.add(x, y, alpha=self.alpha)  # alpha


class Attention(Block):
    FAULTS: ClassVar = {
        "query-transposed": _transposed("query.weight"),
        "key-nan": _element("key.weight", float("nan")),
        "scale": _set("scale", 0.5),
        "softmax": _set("axis", -2),
        "out-transposed": _transposed("out.weight"),
        "mask": _set("diagonal", 2),
    }

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.scale, self.axis, self.diagonal = width**-0.5, -1, 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query = self.query(x)  # query
        key = self.key(x)  # key
        value = self.value(x)
        scores = query @ key.transpose(-1, -2)
        scores = scores * self.scale  # scale
        size = x.shape[1]
        hidden = torch.ones(size, size, dtype=torch.bool).triu(self.diagonal)  # mask
        scores = scores.masked_fill(hidden, float("-inf"))
        shares = torch.softmax(scores, self.axis)  # softmax
        return x + self.out(torch.nan_to_num(shares) @ value)  # out


class Normed(Block):
    FAULTS: ClassVar = {
        "layer": _set("epsilon", 0.05),
        "power": _set("power", 3),
        "small": _set("small", 0.05),
        "gain": _element("gain", float("nan")),
        "roll": _set("shift", 2),
    }

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.gain = (nn.Parameter(torch.rand(width) + 0.5) for _ in range(2))
        self.epsilon, self.power, self.small, self.shift = 1e-5, 2, 1e-6, 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(x, self.weight.shape, self.weight, None, self.epsilon)  # layer
        y = y + 1.0
        squares = torch.pow(y, self.power)  # power
        mean = squares.mean(-1, keepdim=True)
        mean = mean.abs() + self.small  # small
        y = y * torch.rsqrt(mean)
        y = y * self.gain  # gain
        return x + torch.roll(y, self.shift, 1)  # roll


class Gated(Block):
    FAULTS: ClassVar = {
        "left": _swapped("one", "other"),
        "gate-transposed": _transposed("gate.weight"),
        "gate-inf": _element("gate.bias", float("inf")),
        "slices": _set("start", 0),
        "total": _set("axis", 2),
        "beta": _set("beta", 1.1),
    }

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        self.one, self.other, self.start, self.axis, self.beta = 0.8, 1.7, 1, 1, 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(x * self.one)  # left
        gate = torch.tanh(gate * self.other)
        y = self.gate(x)  # gate
        y = torch.cat([y, x], 1)
        y = y.narrow(1, self.start, x.shape[1])  # slices
        y = y * gate / self.beta  # beta
        y = y - y.sum(self.axis)  # total
        return y + x


# -- where models begin and end


class Embedded(Block):
    FAULTS: ClassVar = {
        "table": _element("table.weight", float("nan")),
        "weight": _set("weight", 1.5),
    }

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(length, width)
        self.positions = nn.Parameter(torch.randn(length, width))
        self.weight = width**0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.table(x)  # table
        y = y * self.weight  # weight
        return y + self.positions


class ImageHead(Block):
    FAULTS: ClassVar = {"mean": _set("axes", (1, 2)), "head-transposed": _transposed("head.weight")}

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head, self.axes = nn.Linear(width, width), (2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.mean(self.axes)  # mean
        return self.head(y)  # head


class SequenceHead(Block):
    FAULTS: ClassVar = {
        "head-nan": _element("head.weight", float("nan")),
        "ends": _set("position", 0),
    }

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head, self.position = nn.Linear(width, 5), -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.select(1, self.position)  # ends
        y = self.head(y)  # head
        return F.log_softmax(y, -1)


IMAGE = (Conv, Depthwise, Pooled)
SEQUENCE = (Perceptron, Attention, Normed, Gated)
