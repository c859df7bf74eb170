"""Models with a part that does not bear int8, and one with parts that cannot be in float alone."""

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


class Neighbours(nn.Module):
    """XNNPACK (ExecuTorch 1.5.1) takes no 1d convolution in int8 next to one in float."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(2, 4, 3)
        self.second = nn.Conv1d(4, 4, 3)
        self.third = nn.Conv1d(4, 4, 3)

    def forward(self, x: Any) -> Any:
        return self.third(torch.relu(self.second(torch.relu(self.first(x)))))


def sample(seed: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(seed)),)


def planted() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Planted(), sample(0)


def neighbours() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Neighbours(), (torch.randn(1, 2, 16),)
