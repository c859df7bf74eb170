"""A fault in a single channel of a convolution, planted into what a device runs."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import nn

from etscope.export import export
from etscope.run import run

CHANNEL, CHANNELS = 17, 64
NODE = "aten_convolution_default_1"


class Net(nn.Module):
    """Two convolutions and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.wide = nn.Conv2d(16, CHANNELS, 3, padding=1)
        self.head = nn.Linear(CHANNELS, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(self.wide(x))
        return self.head(x.mean((2, 3)))


def write_files(folder: Path) -> None:
    """Write the record of the right model, "right.etrecord", the faulty program, "wrong.pte", and a
    run of it, "ran"."""
    torch.manual_seed(0)
    model, example = Net().eval(), torch.randn(1, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export(model, (example,)).save(folder, "right")
        with torch.no_grad():
            model.wide.weight[CHANNEL] *= 1.3
        wrong = export(model, (example,))
        wrong.save(folder, "wrong")
        with run(
            wrong.program,
            (example,),
            debug_level="intermediate_outputs",
            separate=False,
            isolate=False,
            runner="python",
        ) as done:
            done.save(folder / "ran")
