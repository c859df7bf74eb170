"""Models as users write them: each name is one form of MODEL on the command line."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Tiny(nn.Module):
    """A linear layer and a relu; the smallest thing that XNNPACK delegates."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


class WithInputs(Tiny):
    """Brings its example inputs along, as a method."""

    def example_inputs(self) -> torch.Tensor:
        return torch.ones(2, 8)


class WithListOfInputs(Tiny):
    """Brings them as an attribute."""

    example_inputs = (torch.ones(2, 8),)


class WithGetter(Tiny):
    """Brings them under the other name."""

    def get_example_inputs(self) -> list[torch.Tensor]:
        return [torch.ones(2, 8)]


class Keywords(nn.Module):
    """Two inputs by keyword, a number, and outputs in a dict."""

    def forward(
        self, first: torch.Tensor, second: torch.Tensor, *, scale: float = 2.0
    ) -> dict[str, torch.Tensor]:
        return {"difference": (first - second) * scale, "first": first + 1}


class Counting(nn.Module):
    """State that is not zero in the beginning, and changes."""

    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.tensor([1.0, 2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)
        return x * self.steps


class Branching(nn.Module):
    """Python's `if` on a value: torch.export cannot follow it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # the line that the error names
            return x
        return -x


class Failing(nn.Module):
    """Fails in PyTorch itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class EagerModel:
    """The interface of ExecuTorch's example models."""

    def get_eager_model(self) -> nn.Module:
        return Tiny()

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        return (torch.ones(2, 8),)

    def get_dynamic_shapes(self) -> Any:
        return {"x": {0: torch.export.Dim("batch", min=2, max=8)}}


class Zoo:
    """Factories in a class."""

    def bound(self) -> Any:
        return pair()

    @staticmethod
    def static() -> Any:
        return pair()

    @classmethod
    def of_class(cls) -> Any:
        return pair()


instance = WithInputs()
eager_model = EagerModel()
number = 3


def pair() -> Any:
    return Tiny(), (torch.randn(2, 8),)


def triple() -> Any:
    return Tiny(), (torch.randn(2, 8),), {"x": {0: torch.export.Dim("batch", min=2, max=8)}}


def single_tensor() -> Any:
    return Tiny(), torch.randn(2, 8)


def by_keyword() -> Any:
    return Keywords(), {"second": torch.ones(3), "first": torch.zeros(3)}


def module_only() -> Any:
    return Tiny()


def program() -> Any:
    return torch.export.export(Tiny(), (torch.randn(2, 8),), strict=True)


def methods() -> Any:
    encoder = torch.export.export(Tiny(), (torch.randn(2, 8),), strict=True)
    decoder = torch.export.export(nn.Linear(4, 3), (torch.randn(2, 4),), strict=True)
    return {"encode": encoder, "decode": decoder}


def branching() -> Any:
    return Branching(), (torch.ones(3),)


def failing() -> Any:
    return Failing(), (torch.ones(3, 4),)


def with_arguments(path: str) -> Any:
    return path


def raising() -> Any:
    raise ValueError("weights are not here")  # the line that the error names


def leaving() -> Any:
    raise SystemExit("usage: train.py")


def wrong() -> Any:
    return [1, 2]


def nothing() -> Any:
    return None
