"""Programs with more than one method."""

from __future__ import annotations

import torch
from torch import nn

from tests.support.artifact_recipes.workbench import (
    Call,
    Programs,
    Workbench,
    exported,
    portable,
    seeded,
    xnnpack,
)

DEBUG_BYTES = 500_000


class AutoEncoder(nn.Module):
    """Two methods, neither of which is called forward."""

    def __init__(self) -> None:
        super().__init__()
        self.squeeze = nn.Linear(16, 4)
        self.expand = nn.Linear(4, 16)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.squeeze(x))

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.expand(torch.relu(z)) + 1.0) * 2.0


class WithExtra(nn.Module):
    """The usual method and one more; both begin with the same layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.tail = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.tail(torch.relu(self.body(x))), dim=-1)

    def extra(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.body(x) * y)


class Method(nn.Module):
    """One method of a model as the ``forward`` that torch.export wants."""

    def __init__(self, model: nn.Module, method: str) -> None:
        super().__init__()
        self.model = model
        self.method = method

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return getattr(self.model, self.method)(*inputs)


def programs(model: nn.Module, *calls: Call) -> Programs:
    """One exported program a method."""
    return {call.method: exported(Method(model, call.method), call.inputs) for call in calls}


def two_methods(bench: Workbench) -> None:
    """``encode`` runs three times, then ``decode`` twice; portable kernels."""
    torch.manual_seed(0)
    model = AutoEncoder().eval()
    encode = Call((torch.randn(2, 16, generator=seeded(1)),), "encode", repeat=3)
    decode = Call((torch.randn(2, 4, generator=seeded(2)),), "decode", repeat=2)
    bench.save(portable(programs(model, encode, decode)))
    bench.profile(model, encode, decode, debug_bytes=DEBUG_BYTES)


def forward_and_extra(bench: Workbench) -> None:
    """``forward`` and ``extra`` take turns, both with XNNPACK delegates."""
    torch.manual_seed(0)
    model = WithExtra().eval()
    x, y = (torch.randn(2, 8, generator=seeded(seed)) for seed in (1, 2))
    forward, extra = Call((x,)), Call((x, y), "extra")
    bench.save(xnnpack(programs(model, forward, extra)))
    bench.profile(model, forward, extra, forward, extra, debug_bytes=DEBUG_BYTES)
