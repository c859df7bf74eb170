"""A classifier whose fault on the device shows in some samples only, and a model that remembers."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch

from etscope.export import export

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


SMALL, LARGE = 0.3, 8.0  # sizes of inputs that the limits do not, and do, touch


@cache
def inputs(count: int = 12) -> torch.Tensor:
    """Samples of shape [count, 1, 8]; every third is large."""
    sizes = torch.tensor([LARGE if n % 3 == 2 else SMALL for n in range(count)])
    made = torch.randn(count, 1, 8, generator=torch.Generator().manual_seed(1))
    return made * sizes[:, None, None]


@cache
def exported(kind: type[torch.nn.Module], *arguments: float) -> Any:
    """A model with its example inputs, exported once."""
    given = inputs()[0] if kind is Classifier else torch.ones(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return export(kind(*arguments), (given,))


def fault_line() -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(n for n, text in enumerate(lines, 1) if text.endswith("# fault"))
