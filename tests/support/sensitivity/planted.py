"""A model with a part that does not bear int8."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

WIDTH = 32


class Planted(nn.Module):
    """One channel between `wild` and `mix` is two thousand times as large as the others."""

    def __init__(self) -> None:
        super().__init__()
        self.wild = nn.Linear(WIDTH, WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 5)
        with torch.no_grad():
            self.wild.weight[0] *= 2000
            self.mix.weight[:, 0] /= 2000

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(x + self.mix(self.wild(x))))


def sample(seed: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(seed)),)


def planted() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Planted(), sample(0)
