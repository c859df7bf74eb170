"""Big files: many runs of a small program, and a program of very many instructions."""

from __future__ import annotations

import torch
from torch import nn

from tests.support.artifact_recipes.workbench import (
    Call,
    Workbench,
    eager,
    exported,
    portable,
    seeded,
)

STAGES, STEPS = 16, 20


class TinyCnn(nn.Module):
    """Ten instructions, hence twenty-one events a run."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 2, 3)
        self.second = nn.Conv2d(2, 2, 3)
        self.hidden = nn.Linear(8, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = torch.sigmoid(self.second(x))
        x = torch.tanh(self.hidden(torch.flatten(x, 1)))
        return torch.softmax(self.out(x), dim=-1)


class Step(nn.Module):
    """A gated layer: eight instructions, sixteen events."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        gate = torch.sigmoid(x) * torch.tanh(x)
        return torch.tanh(gate + torch.relu(x))


def large_20k(bench: Workbench) -> None:
    """A thousand runs."""
    _many_runs(bench, 1_000)


def large(bench: Workbench) -> None:
    """Ten thousand runs, more than 200,000 events."""
    _many_runs(bench, 10_000)


def large_2m(bench: Workbench) -> None:
    """A hundred thousand runs, more than two million events."""
    _many_runs(bench, 100_000)


def _many_runs(bench: Workbench, runs: int) -> None:
    torch.manual_seed(0)
    model = TinyCnn().eval()
    call = Call((torch.randn(1, 1, 6, 6, generator=seeded(1)),), repeat=runs)
    bench.save(portable(exported(model, call.inputs)))
    outputs = bench.run(call)
    bench.keep([call], outputs, eager(model, call))


def wide(bench: Workbench) -> None:
    """A deep stack, 16 stages of 20 steps: more than 5,000 distinct events in one run."""
    torch.manual_seed(0)
    stages = (nn.Sequential(*(Step() for _ in range(STEPS))) for _ in range(STAGES))
    model = nn.Sequential(*stages).eval()
    call = Call((torch.randn(1, 3, generator=seeded(1)),), repeat=2)
    program = torch.export.export(model, call.inputs)  # strict export takes four times as long
    bench.save(portable(program))
    bench.profile(model, call, debug_bytes=2_000_000)
