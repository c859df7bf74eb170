"""Models that remember: how often they were executed, or what they were given."""

from __future__ import annotations

import torch


class Counter(torch.nn.Module):
    """Its output is how often it was executed, times the input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1.0)
        return x * self.count


class Cache(torch.nn.Module):
    """Attention over a cache of keys, which both methods write."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 8).requires_grad_(requires_grad=False)
        self.register_buffer("cache", torch.zeros(1, 16, 8))

    def _attend(self, query: torch.Tensor) -> torch.Tensor:
        return torch.softmax(query @ self.cache.transpose(1, 2), -1) @ self.cache

    def prefill(self, x: torch.Tensor) -> torch.Tensor:
        keys = self.linear(x)
        self.cache[:, :4] = keys
        return self._attend(keys)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        key = self.linear(x)
        self.cache.index_copy_(1, position, key)
        return self._attend(key)


Values = tuple[torch.Tensor, ...]


def cache_calls() -> list[tuple[str, Values, torch.Tensor]]:
    """A prefill and three decodes: method, inputs, and what the eager model gives in that order."""
    model, generator = Cache(), torch.Generator().manual_seed(1)
    first = torch.randn(1, 4, 8, generator=generator)
    calls: list[tuple[str, Values, torch.Tensor]] = [("prefill", (first,), model.prefill(first))]
    for position in range(4, 7):
        values = torch.randn(1, 1, 8, generator=generator), torch.tensor([position])
        calls.append(("decode", values, model(*values)))
    return calls
