"""Models of which the device computes some samples otherwise, and a model that remembers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

CLASSES = 6


class Classifier(torch.nn.Module):
    """Numbers above `limit` are cut off: on the device at another limit than in the record."""

    def __init__(self, limit: float = 6.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, CLASSES)
        self.limit = limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        hidden = torch.clamp(hidden, max=self.limit)  # fault
        return self.second(hidden)


class Running(torch.nn.Module):
    """The sum of all inputs so far, times a constant."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(4))
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sum.add_(x * self.factor)
        return torch.sin(self.sum) + x


class Picked(torch.nn.Module):
    """Fails with an index that there is not."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.index_select(x, 0, index) * 2


class Places(torch.nn.Module):
    """A table of positions is added; on the device one number of it is off."""

    def __init__(self, error: float = 0.0) -> None:
        super().__init__()
        table = torch.randn(48, 64, generator=torch.Generator().manual_seed(0))
        table[3, 5] += error
        self.register_buffer("table", table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 0.5 + self.table)


SMALL, LARGE = 0.3, 8.0  # sizes of inputs that the limits do not, and do, touch


@cache
def inputs(count: int = 12) -> torch.Tensor:
    """Samples of shape [count, 1, 8]; every third is large."""
    sizes = torch.tensor([LARGE if n % 3 == 2 else SMALL for n in range(count)])
    made = torch.randn(count, 1, 8, generator=torch.Generator().manual_seed(1))
    return made * sizes[:, None, None]


def fault_line() -> int:
    """The line that the classifier's fault is in."""
    lines = Path(__file__).read_text().splitlines()
    return next(n for n, text in enumerate(lines, 1) if text.endswith("# fault"))
