"""Models of many forms, and a backend that gets one operator of them wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from executorch.exir import to_edge
from torch import nn
from torch.export import ExportedProgram

from tests.support.export.planted_backend import lowered_by

PLANTED = "planted"
WIDTH = 6


class Tangent(nn.Module):
    """What `wrong` gets wrong."""

    op = "aten.tan.default"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tan(torch.tanh(x))


class Products(nn.Module):
    """ExecuTorch cannot lower it to portable kernels."""

    op = "aten.cumprod.default"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x, 1)


class Sorted(nn.Module):
    """The runtime has no kernel for it."""

    op = "aten.sort.default"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x, 1)[0]


PLANTS: tuple[type[Any], ...] = (Tangent, Products, Sorted)


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Split(nn.Module):
    """Operators of several outputs, and of several inputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.split(WIDTH // 2, dim=1)
        values, _ = torch.topk(second, WIDTH // 2)
        return torch.cat([torch.sigmoid(first), values], dim=1)


class Counting(nn.Module):
    """Writes to a buffer."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x * self.count


def generated(seed: int, planted: nn.Module) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """A model of `seed`, with the planted layer somewhere in it, and its inputs."""
    torch.manual_seed(seed)
    chance = random.Random(seed)
    kinds: list[Callable[[], nn.Module]] = [
        lambda: nn.Linear(WIDTH, WIDTH),
        lambda: Residual(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sigmoid())),
        lambda: nn.LayerNorm(WIDTH),
        nn.ReLU,
        Split,
        Counting,
    ]
    layers = [chance.choice(kinds)() for _ in range(chance.randint(3, 5))]
    if chance.random() < 0.5:
        planted = Residual(planted)
    layers.insert(chance.randint(0, len(layers)), planted)
    return nn.Sequential(*layers).eval(), (torch.randn(2, WIDTH),)


def wrong(programs: Any) -> Any:
    """Lowers as the portable backend does, with sine in the place of tangent."""
    return to_edge(
        {name: _with(program, torch.ops.aten.sin.default) for name, program in programs.items()},
        generate_etrecord=True,
    )


def _with(program: ExportedProgram, target: Any) -> ExportedProgram:
    for node in program.graph.nodes:
        if node.target is torch.ops.aten.tan.default:
            node.target = target
    program.graph_module.recompile()
    return program


@contextmanager
def backend(function: Any = wrong) -> Iterator[str]:
    """The function as a backend, by the name that is given."""
    with lowered_by(PLANTED, function):
        yield PLANTED
