"""A model in which one channel of a convolution is wrong."""

from __future__ import annotations

import torch
from torch import nn

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
