"""A small classifier of images, with random weights."""

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    example_inputs = (torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.classes = nn.Linear(32, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.classes(self.layers(image).mean((2, 3), keepdim=True).flatten(1))
