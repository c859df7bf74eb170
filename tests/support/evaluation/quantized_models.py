"""Models to quantise: with a layer that does not survive int8, and with layers for torchao."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Picture(nn.Module):
    """Convolutions, one of which has a channel of huge range."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.expand = nn.Conv2d(8, 16, 3, padding=1)
        self.project = nn.Conv2d(16, 8, 1)
        self.head = nn.Linear(8, 4)
        with torch.no_grad():
            self.expand.weight[0] *= 1000
            self.project.weight[:, 0] /= 1000
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.project(self.expand(x))
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


class Network(nn.Module):
    """Linear layers between operators that stay in float."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(10, 32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)
        self.head = nn.Linear(32, 8)
        self.eval()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        result: torch.Tensor = self.head(x + self.down(nn.functional.gelu(self.up(x))))
        return result


def eight_bit(model: Any, only: str | None = None) -> Any:
    """Change linear layers, or one, to int8 weights and dynamically quantised activations."""
    from torchao.quantization.granularity import PerAxis
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_

    def chosen(module: nn.Module, name: str) -> bool:
        return isinstance(module, nn.Linear) and only in (None, name)

    config = Int8DynamicActivationIntxWeightConfig(weight_granularity=PerAxis(0))
    quantize_(model, config, filter_fn=chosen)
    return model
