"""A model with a part that does not bear int8."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Planted(nn.Module):
    """One channel between `wild` and `mix` is two thousand times as large as the others."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.wild = nn.Conv2d(8, 8, 3, padding=1)
        self.mix = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 5)
        with torch.no_grad():
            self.wild.weight[0] *= 2000
            self.mix.weight[:, 0] /= 2000

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.stem(x))
        x = x + self.mix(self.wild(x))
        return self.head(torch.relu(x).mean((2, 3)))


def sample(seed: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(seed)),)


def planted() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Planted(), sample(0)
