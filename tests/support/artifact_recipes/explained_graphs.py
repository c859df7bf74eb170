"""Runs of tiny models, each with what a rule of `etscope explain` about graphs finds, or with what
looks like it."""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from etscope.errors import EtscopeWarning
from etscope.export import export
from etscope.run import run
from tests.support.artifact_recipes.workbench import Workbench

WIDTH, LENGTH, HEADS = 32, 16, 4
Step = Callable[[Any], Any]


class Between(nn.Module):
    """A step between two linear layers."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.step = step

    def forward(self, x: Any) -> Any:
        return self.last(self.step(self.first(x)))


class Convolved(nn.Module):
    """A step between two convolutions."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        self.step = step

    def forward(self, x: Any) -> Any:
        return functional.relu(self.last(self.step(self.first(x))))


class Attention(nn.Module):
    """Self-attention. way: "function", "products" of four dimensions, or "bmm" of three."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Any) -> Any:
        size = WIDTH // HEADS
        parts = [part(x) for part in (self.q, self.k, self.v)]
        if self.way == "bmm":
            q, k, v = (part.view(LENGTH, HEADS, size).permute(1, 0, 2) for part in parts)
            weights = torch.softmax(torch.bmm(q, k.permute(0, 2, 1)) * size**-0.5, -1)
            return self.out(torch.bmm(weights, v).permute(1, 0, 2).reshape(1, LENGTH, WIDTH))
        q, k, v = (part.view(1, LENGTH, HEADS, size).transpose(1, 2) for part in parts)
        if self.way == "function":
            found = functional.scaled_dot_product_attention(q, k, v)
        else:
            found = torch.softmax(q @ k.transpose(-1, -2) * size**-0.5, -1) @ v
        return self.out(found.transpose(1, 2).reshape(1, LENGTH, WIDTH))


class Positions(nn.Module):
    """Adds positions, which it computes or has."""

    def __init__(self, computes: bool) -> None:
        super().__init__()
        self.computes = computes
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("positions", self.made())

    def made(self) -> Any:
        steps = torch.arange(LENGTH).float()[:, None]
        rates = torch.exp(torch.arange(WIDTH).float() * -0.3)
        return torch.sin(steps * rates)

    def forward(self, x: Any) -> Any:
        positions = self.made() if self.computes else self.positions
        return self.last(functional.relu(self.first(x + positions)))


class Cache(nn.Module):
    """Writes a row of a buffer, and reads all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(64, WIDTH))
        self.first = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any, at: Any) -> Any:
        self.rows.index_put_((at,), self.first(x))
        return self.rows.sum(0)


class Moved(Cache):
    """Moves the rows of a buffer up by one for a new one, and reads all of it."""

    def forward(self, x: Any, at: Any) -> Any:
        rows = torch.cat([self.rows[1:], self.first(x)])
        self.rows.copy_(rows)
        return rows.sum(0)


class Layers(nn.Module):
    """Layers with weights of their own, each of which reads a row of the second input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(10))

    def forward(self, x: Any, rows: Any) -> Any:
        for index, layer in enumerate(self.layers):
            x = layer(x) * rows[:, index : index + 1]
        return x


class Rms(nn.Module):
    """Divides by the root of the mean of squares."""

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


class Chain(nn.Module):
    """Steps one after the other, each between linear layers."""

    def __init__(self, steps: Iterable[Step]) -> None:
        super().__init__()
        self.steps = list(steps)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in self.steps)

    def forward(self, x: Any) -> Any:
        for step, layer in zip(self.steps, self.layers, strict=True):
            x = step(layer(x))
        return x


def normalised(x: Any) -> Any:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)


def in_pieces(x: Any) -> Any:
    """Scales pairs of elements, one after the other."""
    return torch.cat([x[..., at : at + 2] * (1.0 + at) for at in range(0, WIDTH, 2)], -1)


def halves_exchanged(x: Any) -> Any:
    return torch.cat([x[:, LENGTH // 2 :], x[:, : LENGTH // 2]], 1)


class Scaled(nn.Module):
    """Scales rows, as the last of the dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(LENGTH))

    def forward(self, x: Any) -> Any:
        return (x.transpose(1, 2) * self.scale).transpose(1, 2)


def shifted_softmax(x: Any) -> Any:
    raised = torch.exp(x - x.amax(-1, keepdim=True))
    return raised / raised.sum(-1, keepdim=True)


def over_rows(x: Any) -> Any:
    """Normalised as well, but not over the last dimension."""
    mean = x.mean(1, keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(1, keepdim=True) + 1e-5)


# Operators written by hand, of which there is a kernel.
BY_HAND: dict[str, Step] = {
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    'gelu(..., approximate="tanh")': lambda x: (
        0.5 * x * (1 + torch.tanh(0.7978846 * (x + 0.044715 * x**3)))
    ),
    "layer_norm": normalised,
    "hardswish": lambda x: x * functional.relu6(x + 3) / 6,
    "softmax": lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True),
}
# What looks alike and is something else, or is whole.
ALIKE: tuple[Step, ...] = (
    functional.gelu,
    lambda x: x * 0.5 * (1 + torch.tanh(x * 0.5)),
    lambda x: functional.relu6(x + 3) / 6,
    lambda x: torch.softmax(x, -1),
    nn.LayerNorm(WIDTH),
    over_rows,
    lambda x: torch.exp(x) / (torch.exp(x) + 1),
    lambda x: torch.erf(x.view(LENGTH, WIDTH)).view(1, LENGTH, WIDTH),
)
STEPS: dict[str, Step] = {
    "islands": nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), Rms()),
    "double": lambda x: torch.sqrt(x.double() ** 2 + 1).float(),
    "unsqueeze": lambda x: torch.erf(x.unsqueeze(0)).squeeze(0),
    "flip": lambda x: torch.flip(x, [3]),
    "cumsum": lambda x: torch.cumsum(x, 3),
    "erf": torch.erf,
    "nothing": lambda x: x,
    "channels": lambda x: functional.relu(x.to(memory_format=torch.channels_last)),
}

# Kind, step, backend, quantization.
MODELS = (
    *(("attention", way) for way in ("function", "products", "bmm")),
    ("attention", "function", "portable"),
    *(("positions", way) for way in ("computed", "kept")),
    *(("between", step) for step in ("unsqueeze", "double", "islands")),
    ("between", "nothing", "portable"),
    *(("convolved", step) for step in ("nothing", "flip", "erf")),
    *(("convolved", step, "portable") for step in ("nothing", "channels")),
    *(("convolved", step, "xnnpack", "int8") for step in ("nothing", "flip", "cumsum")),
    ("channels last",),
    ("batch norm", "nothing", "portable"),
    *((kind,) for kind in ("cache", "moved cache", "by hand", "alike", "layers", "in delegates")),
)


def made(kind: str, step: str = "nothing") -> tuple[nn.Module, tuple[Any, ...]]:
    """A model and its inputs."""
    row, image = (torch.randn(1, LENGTH, WIDTH),), (torch.randn(1, 3, 32, 32),)
    makers: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
        "between": (lambda: Between(STEPS[step]), row),
        "convolved": (lambda: Convolved(STEPS[step]), image),
        "channels last": (
            lambda: Convolved(STEPS[step]),
            (image[0].to(memory_format=torch.channels_last),),
        ),
        "attention": (lambda: Attention(step), row),
        "positions": (lambda: Positions(step == "computed"), row),
        "cache": (Cache, (torch.randn(1, WIDTH), torch.tensor([3]))),
        "batch norm": (lambda: Convolved(nn.BatchNorm2d(8)), image),
        "by hand": (lambda: Chain(BY_HAND.values()), row),
        "alike": (lambda: Chain(ALIKE), row),
        "moved cache": (Moved, (torch.randn(1, WIDTH), torch.tensor([3]))),
        "layers": (Layers, (row[0], torch.randn(1, LENGTH, WIDTH))),
        "in delegates": (
            lambda: nn.Sequential(Scaled(), Chain((in_pieces, halves_exchanged, shifted_softmax))),
            row,
        ),
    }
    make, inputs = makers[kind]
    return make().eval(), inputs


def explained_graphs(bench: Workbench) -> None:
    """The record of each model, and a dump of three executions."""
    for kind, *options in MODELS:
        step, backend, quantize = (*options, *("nothing", "xnnpack", "")[len(options) :])
        torch.manual_seed(0)
        model, inputs = made(kind, step)
        with warnings.catch_warnings(), torch.no_grad(), TemporaryDirectory() as folder:
            warnings.simplefilter("ignore", EtscopeWarning)  # of what is not delegated
            exported = export(
                model, inputs, backend=backend, quantize=quantize or False, strict=False
            )
            done = run(
                exported.record,
                inputs,
                iterations=3,
                isolate=False,
                separate=False,
                runner="python",
            )
            done.save(folder)
            name = "-".join((kind, *options)).replace(" ", "_")
            shutil.copy(Path(folder, "run.etdp"), bench.folder / f"{name}.etdp")
            exported.record.save(bench.folder / f"{name}.etrecord")
