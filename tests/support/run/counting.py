"""A program that looks like a language model, and whose logits depend on how often it ran."""

from __future__ import annotations

import torch
from torch import nn


class Counting(nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        ids = torch.arange(16).to(torch.float32)
        return (tokens + position).to(torch.float32) * 0 - (ids - self.count).abs()


def counting_program() -> bytes:
    from executorch.exir import to_edge

    inputs = torch.ones(1, 1, dtype=torch.int64), torch.tensor([0])
    exported = torch.export.export(Counting(), inputs)
    made = to_edge(exported, constant_methods={"use_kv_cache": True}).to_executorch()
    return bytes(made.buffer)
