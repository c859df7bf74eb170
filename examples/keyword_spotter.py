"""A small model that hears keywords in one second of sound: spectrogram, convolutions, attention.

Its weights are random; what matters here is that a part of it runs in XNNPACK and a part on
ExecuTorch's portable kernels, as in many real programs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

SAMPLE_RATE = 16_000
WINDOW, HOP, BINS = 400, 160, 80  # 25 ms windows every 10 ms


class Spectrogram(nn.Module):
    """Log power of each window at `BINS` frequencies: (1, samples) to (1, BINS, windows)."""

    def __init__(self) -> None:
        super().__init__()
        time = torch.arange(WINDOW) / SAMPLE_RATE
        frequency = torch.linspace(60.0, 7600.0, BINS)
        angle = 2 * math.pi * frequency[:, None] * time
        window = torch.hann_window(WINDOW)
        self.register_buffer("cosine", (angle.cos() * window).unsqueeze(1))
        self.register_buffer("sine", (angle.sin() * window).unsqueeze(1))

    def forward(self, sound: Tensor) -> Tensor:
        sound = sound.unsqueeze(1)
        real = nn.functional.conv1d(sound, self.cosine, stride=HOP)
        imaginary = nn.functional.conv1d(sound, self.sine, stride=HOP)
        return torch.log1p(real * real + imaginary * imaginary)


class Block(nn.Module):
    """A depthwise and a pointwise convolution beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.pointwise = nn.Conv2d(channels, channels, 1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.hardswish(self.norm(self.pointwise(self.depthwise(x))))


class AttentionPool(nn.Module):
    """The mean over time, weighted by what a learnt question finds interesting."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.question = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        weight = torch.softmax(self.question(x), dim=1)
        return (weight * x).sum(dim=1)


class KeywordSpotter(nn.Module):
    """The three most likely of `keywords` words in one second of sound, best first."""

    def __init__(self, keywords: int = 12, channels: int = 32, blocks: int = 3) -> None:
        super().__init__()
        self.spectrogram = Spectrogram()
        self.stem = nn.Conv2d(1, channels, (5, 3), stride=2, padding=(2, 1))
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(blocks)))
        self.pool = AttentionPool(channels * BINS // 2)
        self.head = nn.Linear(channels * BINS // 2, keywords)

    @staticmethod
    def example_inputs() -> tuple[Tensor]:
        """One second of noise: what the export traces the model with, and a run feeds it."""
        return (torch.randn(1, SAMPLE_RATE, generator=torch.Generator().manual_seed(1)),)

    def forward(self, sound: Tensor) -> tuple[Tensor, Tensor]:
        image = self.spectrogram(sound).unsqueeze(1)
        features = self.blocks(torch.relu(self.stem(image)))
        steps = features.flatten(1, 2).transpose(1, 2)
        scores = torch.softmax(self.head(self.pool(steps)), dim=-1)
        best = torch.topk(scores, 3)
        return best.values, best.indices
