"""Products that take the time of a method, small enough to keep: many rows, few weights."""

from __future__ import annotations

import torch
from torch import nn

from tests.support.artifact_recipes.workbench import Call, Workbench, exported, xnnpack

ROWS, WIDTH = 256, 128


def large_products(bench: Workbench) -> None:
    """Two linear layers of 8 MFLOP each on XNNPACK, of equal rows, which pack well."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    call = Call((torch.ones(ROWS, WIDTH),), repeat=3)
    bench.save(xnnpack(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=4_000_000)
