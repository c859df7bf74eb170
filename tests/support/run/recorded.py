"""A record that holds its program, made by etscope of a small model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from executorch.exir import to_edge

import etscope


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1


def recorded_program(folder: Path) -> tuple[Path, tuple[Any, ...], Any]:
    """The record's path, inputs for its program, and the output to expect."""
    x = torch.arange(6.0).reshape(2, 3)
    edge = to_edge(torch.export.export(Scaled(), (x,)))
    snapshot = copy.deepcopy(edge)
    path = folder / "scaled.etrecord"
    etscope.generate_etrecord(str(path), snapshot, edge.to_executorch())
    return path, (x,), (x * 2 + 1).numpy()
