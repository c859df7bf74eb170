"""Programs whose instructions are not what their records' edge graphs say: all true pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.dialects._ops import ops
from executorch.exir.pass_base import ExportPass
from torch import nn

from tests.support.artifact_recipes.workbench import Call, Workbench, exported, seeded, xnnpack


class UpAndDown(nn.Module):
    """A convolution and a transposed one, which XNNPACK logs as "Deconvolution"."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(torch.relu(self.down(x)))


class Counter(nn.Module):
    """State that each run changes: the emitter writes it back with a `copy_` that no node is of."""

    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)
        return x + self.steps


class Wave(nn.Module):
    """Two sines; `CosineForSine` makes cosines of them."""

    def __init__(self, wave: Callable[[torch.Tensor], torch.Tensor] = torch.sin) -> None:
        super().__init__()
        self.wave = wave

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wave(x) + self.wave(x * 2)


class CosineForSine(ExportPass):
    """Replaces an operator before lowering, as passes for a backend do."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        if op == ops.edge.aten.sin.default:
            op = ops.edge.aten.cos.default
        return super().call_operator(op, args, kwargs, meta)


def deconvolution(bench: Workbench) -> None:
    """One XNNPACK delegate with a transposed convolution."""
    torch.manual_seed(0)
    model = UpAndDown().eval()
    call = Call((torch.randn(1, 2, 8, 8, generator=seeded(1)),), repeat=3)
    bench.save(xnnpack(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=200_000)


def written_state(bench: Workbench) -> None:
    """A buffer is written back: a third of the kernels are `copy_`. Profile only: upstream cannot
    open runs whose outputs differ."""
    x = torch.randn(4, generator=seeded(1))
    bench.save(xnnpack(exported(Counter(), (x,))))
    bench.profile(Counter().eval(), Call((x,)), Call((x,)), Call((x,)), debug_bytes=0, timing=False)


def replaced_operators(bench: Workbench) -> None:
    """The record's edge graph has sines, the program runs cosines; a further graph has those."""
    model = Wave().eval()
    call = Call((torch.randn(3, generator=seeded(1)),), repeat=3)
    bench.save(
        to_edge_transform_and_lower(
            exported(model, call.inputs), transform_passes=[CosineForSine()], generate_etrecord=True
        )
    )
    bench.profile(Wave(torch.cos), call, debug_bytes=200_000)
