"""Small exported models for the tests of ETRecord; each is lowered once in a test run."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.core import BundledProgram
from executorch.exir import to_edge
from torch import nn

from etscope.etrecord import ETRecord, generate_etrecord, parse_etrecord


class Net(nn.Module):
    """One linear layer and what follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.relu(self.linear(x)), dim=-1)


class Gate(nn.Module):
    """Branches that hold constants: in the edge dialect these are attributes of the branches."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def grow(y: torch.Tensor) -> torch.Tensor:
            return y * 2.0 + 1

        def shrink(y: torch.Tensor) -> torch.Tensor:
            return y - 0.1

        return torch.cond(x.sum() > 0, grow, shrink, (self.linear(x),))


@dataclass(frozen=True)
class Exported:
    """A model at each stage. `edge` is the copy from before `to_executorch`."""

    model: nn.Module
    inputs: tuple[torch.Tensor, ...]
    exported: dict[str, Any]
    edge: Any
    program: Any

    def bundled(self, method: str = "forward", cases: int = 2) -> Any:
        """A bundled program with test cases for a method."""
        case = MethodTestCase(self.inputs, [self.model(*self.inputs).detach()])
        return BundledProgram(self.program, [MethodTestSuite(method, [case] * cases)])


@cache
def lowered(*methods: str, model: type[nn.Module] = Net) -> Exported:
    """A model exported under these names of methods ("forward" if there are none)."""
    torch.manual_seed(0)
    module, inputs = model().eval(), (torch.randn(2, 4),)
    exported = {name: torch.export.export(module, inputs) for name in methods or ("forward",)}
    edge = to_edge(exported)
    edge_copy = copy.deepcopy(edge)
    return Exported(module, inputs, exported, edge_copy, edge.to_executorch())


def saved(path: Path, *methods: str, **extra: Any) -> ETRecord:
    """A record of the small model, written and opened."""
    net = lowered(*methods)
    exported = net.exported if methods else net.exported["forward"]
    generate_etrecord(path, net.edge, net.program, exported, **extra)
    return parse_etrecord(path)
