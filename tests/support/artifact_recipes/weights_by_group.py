"""Weights of 4 bits with a scale for each group: sound ones, and two scales that are exchanged."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torchao.quantization import quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig
from torchao.utils import unwrap_tensor_subclass

from etscope.export import export
from tests.support.artifact_recipes.fault_runs import keep_faults
from tests.support.artifact_recipes.workbench import Workbench, seeded


class Gated(nn.Module):
    """The feed-forward part of a language model, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 128, bias=False)
        self.down = nn.Linear(128, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x + self.down(nn.functional.silu(self.up(self.norm(x))))
        return x


def with_4_bits(model: nn.Module, group: int) -> Any:
    """The model, whose layers get weights of 4 bits and quantise their inputs as they run."""
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(group)
    )
    quantize_(model, config)
    return model


def gated(group: int) -> Any:
    """The model with weights as torchao's own tensors."""
    torch.manual_seed(0)
    return with_4_bits(Gated().eval(), group)


def swapped() -> Any:
    """The model in which two of the scales of `down` have changed places."""
    model = unwrap_tensor_subclass(gated(32))
    (scales,) = (
        value
        for name, value in model.down.named_parameters()
        if value.is_floating_point() and value.shape == (64, 4)
    )
    with torch.no_grad():
        scales[5] = scales[5].flip(0)
    return model


def rows_between_steps() -> torch.Tensor:
    """Rows whose largest and least numbers differ by some last places: XNNPACK's zero point is the
    step on either side."""
    torch.manual_seed(0)
    rows = torch.rand(400, 64) * 2 - 1
    largest = torch.rand(400) + 1
    rows[:, 3] = -largest
    rows[:, 9] = largest * (1 + (torch.arange(400) % 21 - 10) * 2.0**-23)
    return rows


def make(bench: Workbench, name: str) -> None:
    """Export for XNNPACK and run."""
    inputs, wrong = (torch.randn(6, 64, generator=seeded(1)),), {}
    if name == "groups_32":
        right, wrong = unwrap_tensor_subclass(gated(32)), {"swapped": swapped()}
    elif name == "groups_of_rows":
        right = unwrap_tensor_subclass(gated(64))
    elif name == "groups_of_torchao":
        right = gated(32)
    else:
        inputs = (rows_between_steps(),)
        right = unwrap_tensor_subclass(with_4_bits(nn.Linear(64, 32).eval(), 32))
    bench.notes.update(seed=0, planted=list(wrong), file="weights_by_group.py")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = {
            run: export(model, inputs, backend="xnnpack")
            for run, model in {"right": right, **wrong}.items()
        }
    keep_faults(bench, exported.pop("right"), exported, inputs)
