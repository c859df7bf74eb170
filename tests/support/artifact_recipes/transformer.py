"""A stack of transformer blocks: a graph of portable kernels and many delegates."""

from __future__ import annotations

import torch
from torch import nn

from tests.support.artifact_recipes.workbench import (
    Call,
    Workbench,
    exported,
    portable,
    seeded,
    xnnpack,
)

RUNS = 5
DEBUG_BYTES = 8_000_000
VOCABULARY = 64


class Attention(nn.Module):
    """Self-attention, its steps written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.reshape(split).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        weights = torch.softmax(q @ k.transpose(-1, -2) / split[-1] ** 0.5, dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    """Widen, gelu, narrow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    """A pre-norm block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Tokens in, logits out."""

    def __init__(self, width: int = 32, heads: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.randn(1, 16, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


def small_transformer() -> Transformer:
    """The network with seeded weights."""
    torch.manual_seed(0)
    return Transformer().eval()


def sentence(seed: int = 1) -> torch.Tensor:
    """Sixteen tokens."""
    return torch.randint(0, VOCABULARY, (1, 16), generator=seeded(seed))


def transformer(bench: Workbench) -> None:
    """XNNPACK takes the matrix products; embedding, layer norm and the rest stay portable."""
    model, call = small_transformer(), Call((sentence(),), repeat=RUNS)
    bench.save(xnnpack(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)


def transformer_portable(bench: Workbench) -> None:
    """The same network without a delegate."""
    model, call = small_transformer(), Call((sentence(),), repeat=RUNS)
    bench.save(portable(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)
