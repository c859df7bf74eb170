"""A model that is right in PyTorch, and not on the runtime: portable LayerNorm takes the variance
as the mean of the squares minus the square of the mean, which cancels for values far from 0.

It is the model of docs/how-to/etdb-editor.md.
"""

import torch
from torch import nn


class Sensors(nn.Module):
    """Features of 64 barometers, which all read about 1013 hPa."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.mix = nn.Linear(64, 64)

    def forward(self, pressures):
        changes = self.norm(pressures)
        return torch.relu(self.mix(changes))


class Weather(nn.Module):
    """The weather in an hour: 4 classes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.sensors = Sensors()
        self.head = nn.Linear(64, 4)

    def forward(self, pressures):
        features = self.sensors(pressures)
        return torch.softmax(self.head(features), dim=1)

    def example_inputs(self):
        torch.manual_seed(0)
        return (1013.25 + 0.2 * torch.randn(4, 64),)
