"""Programs whose instructions are not executed once each, in order.

The branches and bodies hold no tensor constants (no ``x + 1.0``): upstream cannot save an
ETRecord of such a graph ("getattr nodes containing tensors should not appear in the graph").
"""

from __future__ import annotations

import torch
from torch import nn
from torch._higher_order_ops import map as map_over
from torch._higher_order_ops import scan

from tests.support.artifact_recipes.workbench import Call, Workbench, exported, portable, seeded

DEBUG_BYTES = 500_000


class Branches(nn.Module):
    """The sign of a sum decides which branch runs; the branches differ in length."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(4, 4)
        self.after = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        x = torch.cond(x.sum() > 0, self.positive, self.negative, (x,))
        return self.after(x)

    @staticmethod
    def positive(x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x) * x

    @staticmethod
    def negative(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) - x.abs()


class Loops(nn.Module):
    """A map over the rows, then a scan that carries a state."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = map_over(lambda row: torch.sigmoid(row) * row, x)
        return scan(self.step, torch.zeros(x.shape[1]), rows)

    @staticmethod
    def step(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = torch.tanh(state + row)
        return state, state * row


def cond(bench: Workbench) -> None:
    """Positive branch, positive again, negative, negative again: two kinds of run."""
    torch.manual_seed(0)
    model = Branches().eval()
    with torch.no_grad():
        model.before.weight.copy_(torch.eye(4))
        model.before.bias.zero_()
    x = torch.rand(2, 4, generator=seeded(1))
    positive, negative = Call((x,), repeat=2), Call((-x,), repeat=2)
    bench.save(portable(exported(model, positive.inputs)))
    bench.profile(model, positive, negative, debug_bytes=DEBUG_BYTES)


def while_loop(bench: Workbench) -> None:
    """Loops: the same instruction occurs once per row in one run.

    ``torch.while_loop`` itself exports but cannot be emitted ("Unsupported control flow
    operator: while_loop", executorch 1.5.1), so these are a map and a scan.
    """
    model, call = Loops(), Call((torch.randn(5, 3, generator=seeded(1)),), repeat=3)
    bench.save(portable(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)
