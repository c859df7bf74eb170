"""A model, and errors planted into one step of what is made of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from etscope.backends import chosen
from etscope.bridge.lowering import export as lowering
from etscope.bridge.lowering.passes import EdgePasses


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.up(x))
        return x + self.down(y)


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width)])
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.head(self.blocks[0](x)), -1)


class OneBlock(Net):
    """Without what is after it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks[0](x)


class AssumesPositive(Net):
    """An export takes it for granted that the sum of the inputs is positive."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](x)
        if torch.compiler.is_exporting() or float(x.sum()) > 0:
            x = x * 2
        return self.head(x)


def made(kind: type[Net] = Net) -> tuple[Net, tuple[torch.Tensor]]:
    """A seeded model with example inputs, whose sum is positive."""
    torch.manual_seed(0)
    return kind().eval(), (torch.rand(2, 8),)


def line_of(text: str) -> int:
    """The number of the line of this file that has only this code."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


def with_wrong_weights(
    name: str, applies: Callable[[ExportedProgram], bool] = lambda program: True
) -> Callable[[Any], Any]:
    """A lowering to XNNPACK whose kernel takes 1.5 times a weight; the record is of the right
    program. applies: tells by a program whether it has the fault."""
    backends = chosen("xnnpack")
    parts = [part for one in backends for part in one.partitioners(quantize=False)]
    passes = EdgePasses((), parts)
    real = partial(
        lowering.edge_programs, backends=backends, passes=passes, lowering=lowering.Lowering()
    )

    def lowered(programs: Any) -> Any:
        right = real(programs)
        if not any(applies(program) for program in programs.values()):
            return right
        wrong = {}
        for method, program in programs.items():
            twin = copy.deepcopy(program)
            weight = twin.state_dict[name]
            twin.state_dict[name] = nn.Parameter(weight * 1.5)
            wrong[method] = twin
        manager = real(wrong)
        manager._etrecord = right._etrecord
        return manager

    return lowered
