"""Small models of which the device computes something else than the record says: by artefact, the
runs of right and wrong ones."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from etscope.export import export
from tests.support.artifact_recipes.fault_runs import keep_faults, keep_run
from tests.support.artifact_recipes.workbench import Workbench, seeded


class Net(torch.nn.Module):
    """A line for each operator; what may differ on the device are the arguments."""

    def __init__(self, scale: float = 1.0, addend: float = 0.5) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.scale, self.addend = scale, addend

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        y = torch.relu(y)
        y = y * self.scale  # scale
        y = y.mean((2, 3))
        y = y + self.addend  # addend
        return torch.log(y)


class Gelu(torch.nn.Module):
    """XNNPACK knows one gelu: that with "tanh" is computed as the exact one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x, approximate="tanh")


class Twice(torch.nn.Module):
    """Two operators read the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + torch.tanh(x)


def layers() -> torch.nn.Module:
    """Linear layers to quantise."""
    torch.manual_seed(0)
    first, second = torch.nn.Linear(16, 8), torch.nn.Linear(8, 6)
    return torch.nn.Sequential(first, torch.nn.ReLU(), second)


IMAGE = (torch.randn(1, 3, 8, 8, generator=seeded()),)
XNNPACK, INT8 = {"backend": "xnnpack"}, {"backend": "xnnpack", "quantize": True}


@dataclass(frozen=True)
class Case:
    """A model, and by run the arguments of the one that the device runs."""

    model: Callable[..., torch.nn.Module]
    wrong: dict[str, dict[str, float]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[torch.Tensor, ...] = IMAGE


CASES = {
    "net_portable": Case(
        Net,
        {
            "scale": {"scale": 1.1},
            "two": {"scale": 1.001, "addend": 5.0},
            "nan": {"addend": -50.0},
        },
    ),
    "net_xnnpack": Case(Net, {"scale": {"scale": 1.1}}, XNNPACK),
    "net_int8": Case(Net, {"scale": {"scale": 1.5}}, INT8),
    "net_gelu_portable": Case(Gelu),
    "net_gelu_xnnpack": Case(Gelu, options=XNNPACK),
    "net_twice": Case(Twice),
    "net_layers_int8": Case(layers, options=INT8, inputs=(torch.randn(4, 16, generator=seeded()),)),
}


def make(bench: Workbench, name: str) -> None:
    """Export and run the models of a case. "lines" notes the lines of the net's faults; the run
    "other_inputs" is of the right model, on others than the record's."""
    case = CASES[name]
    bench.notes.update(seed=3, planted=list(case.wrong), file="net_faults.py")
    source, first = inspect.getsourcelines(Net)
    bench.notes["lines"] = {
        mark: next(n for n, text in enumerate(source, first) if text.rstrip().endswith(f"# {mark}"))
        for mark in ("scale", "addend")
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right, *wrong = (
            export(case.model(**arguments), case.inputs, **case.options)
            for arguments in ({}, *case.wrong.values())
        )
    keep_faults(bench, right, dict(zip(case.wrong, wrong, strict=True)), case.inputs)
    if case.inputs is IMAGE:
        keep_run(bench, "other_inputs", right.program, (IMAGE[0] * 2 + 1,))
