"""Programs in which it is hard to tell which logged value is which node's."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.support.artifact_recipes.workbench import (
    Call,
    Workbench,
    exported,
    portable,
    seeded,
    xnnpack,
)

DEBUG_BYTES = 1_000_000


class Attention(nn.Module):
    """Attention is decomposed into twenty nodes of one debug handle, in three delegates."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.view(1, 4, 2, 4).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return x + self.out(mixed.transpose(1, 2).reshape(1, 4, 8))


class Recurrent(nn.Module):
    """One operator of the model with 136 nodes, all of one debug handle."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        steps, (hidden, cell) = self.lstm(x)
        return steps, hidden, cell


class ManyDelegates(nn.Module):
    """Delegates with several outputs, in another order than that of their nodes, and operators
    between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.relu(self.first(x))
        values, _ = torch.topk(hidden, 3)
        result = self.second(torch.erf(hidden))
        return torch.sigmoid(result) + hidden, values * 2, result


class Batched(nn.Module):
    """Linear layers of a batch of sequences: views around a matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Rewritten(nn.Module):
    """State, in-place operators, views, and tuples of which only a part is used."""

    cache: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(3, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.cache[1] = x * 2
        row = torch.unbind(self.cache + x, 0)[1]
        doubled = row * 2
        doubled.add_(x)
        return doubled, self.cache.sum(0), doubled.view(2, 2).t()


def attention_xnnpack(bench: Workbench) -> None:
    """Five delegates."""
    _portable_or_not(bench, Attention(), (1, 4, 8), delegated=True)


def recurrent_xnnpack(bench: Workbench) -> None:
    """77 values are logged."""
    _portable_or_not(bench, Recurrent(), (1, 3, 4), delegated=True)


def many_delegates(bench: Workbench) -> None:
    """Two delegates, the second with three outputs."""
    _portable_or_not(bench, ManyDelegates(), (2, 4), delegated=True)


def batched_linear(bench: Workbench) -> None:
    """The first layer's view is made by memory planning."""
    _portable_or_not(bench, Batched(), (2, 3, 5), delegated=False)


def rewritten_state(bench: Workbench) -> None:
    """One run, as the second starts from what the first left."""
    _portable_or_not(bench, Rewritten(), (4,), delegated=False)


def _portable_or_not(
    bench: Workbench, model: nn.Module, shape: tuple[int, ...], *, delegated: bool
) -> None:
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    call = Call((torch.randn(shape, generator=seeded(1)),))
    bench.save((xnnpack if delegated else portable)(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES, timing=False)
