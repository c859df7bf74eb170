"""Models, and small faults in them: in one channel, row, weight or element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


def numbers(seed: int, *shape: int) -> torch.Tensor:
    """Seeded random numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.down(nn.functional.gelu(self.up(x))))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.each = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.each(torch.relu(self.first(x))))
        return self.head(x.mean((2, 3)))


class Large(nn.Module):
    """262,144 elements."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.randn(512, 512)), nn.Linear(512, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x * self.scale))


class OneLarge(nn.Module):
    """One channel is 30,000 times as large as the others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(64, 64), nn.Linear(64, 8)
        with torch.no_grad():
            self.layer.weight[7] *= 30_000

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.layer(x)))


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(1000, 32), nn.Parameter(torch.randn(1, 64, 32))
        self.layer = nn.Linear(32, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.layer(self.table(tokens) + self.places), -1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(64, 64) for _ in range(4))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(1, 32, 4, 16).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = map(self.heads, (self.query(x), self.key(x), self.value(x)))
        weights = torch.softmax(query @ key.transpose(-1, -2) / 4, -1)
        return self.out((weights @ value).transpose(1, 2).reshape(1, 32, 64))


INPUTS: dict[type[nn.Module], tuple[Any, ...]] = {
    FeedForward: (numbers(1, 1, 8, 64),),
    Convolutions: (numbers(2, 1, 3, 8, 8),),
    Large: (numbers(3, 512, 512),),
    OneLarge: (numbers(4, 32, 64),),
    Embedded: (torch.arange(5, 645, 10).reshape(1, 64),),
    Attention: (numbers(6, 1, 32, 64),),
}
SMALL = [one for one in range(64) if one != 7]


@dataclass(frozen=True)
class Small:
    """A fault: the model, the parameter, the place in it, and by what it is multiplied.

    operator: which one is wrong on XNNPACK (on portable kernels, an operator of its own transposes
    a matrix before).
    """

    kind: type[nn.Module]
    parameter: str
    place: Any
    factor: float
    operator: str

    def __str__(self) -> str:
        place = "-".join(map(str, self.place)) if isinstance(self.place, tuple) else self.place
        return f"{self.parameter}-{'rest' if self.place is SMALL else place}"


FAULTS = (
    Small(FeedForward, "up.weight", 5, 1.01, "linear"),
    Small(FeedForward, "up.weight", (7, 7), 1.01, "linear"),
    Small(FeedForward, "down.bias", 3, 1.05, "linear"),
    Small(FeedForward, "norm.weight", 63, 1.002, "native_layer_norm"),
    Small(Convolutions, "each.weight", 4, 1.01, "convolution"),
    Small(Convolutions, "first.weight", (1, 1, 1, 1), 1.05, "convolution"),
    Small(Convolutions, "head.bias", 2, 1.01, "linear"),
    Small(Large, "scale", (100, 200), 1.01, "mul"),
    Small(Large, "scale", 511, 1.0002, "mul"),
    Small(Large, "layer.weight", (3, 5), 1.01, "linear"),
    Small(OneLarge, "layer.weight", SMALL, 1.01, "linear"),
    Small(OneLarge, "layer.weight", 20, 1.01, "linear"),
    Small(OneLarge, "head.weight", 3, 1.001, "linear"),
    Small(Embedded, "table.weight", 15, 1.00005, "embedding"),
    Small(Embedded, "places", (0, 9, 9), 1.001, "add"),
    Small(Embedded, "places", (0, 63), 1.0002, "add"),
    Small(Attention, "value.weight", 11, 1.01, "linear"),
    Small(Attention, "query.bias", 11, 1.1, "linear"),
    Small(Attention, "out.weight", 60, 1.0005, "linear"),
)


def model_of(kind: type[nn.Module], fault: Small | None = None) -> nn.Module:
    """A model, the same each time, with a fault or without."""
    torch.manual_seed(0)
    model = kind().eval()
    if fault is not None:
        with torch.no_grad():
            model.get_parameter(fault.parameter)[fault.place] *= fault.factor
    return model
