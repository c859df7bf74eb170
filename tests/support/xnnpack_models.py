"""Models for XNNPACK in which every line of Python names the events that it becomes.

A comment ``# is: Add`` at the end of a line names the operator of XNNPACK that runs for the line,
once, so that a test can tell whether an event was put at the right line.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Convolutions(nn.Module):
    """Plain, depthwise and pointwise convolutions with what is folded into them."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.strided = nn.Conv2d(8, 8, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.plain(x)  # is: Convolution
        x = self.norm(x)
        x = torch.relu(x)
        x = self.depthwise(x)  # is: Convolution
        x = functional.hardswish(x)  # is: HardSwish
        x = self.pointwise(x)  # is: Fully Connected
        x = functional.hardtanh(x, -1.0, 1.0)
        x = self.strided(x)  # is: Convolution
        x = functional.max_pool2d(x, 2)  # is: Max Pooling
        return x.mean((2, 3), keepdim=True)  # is: Mean


class Linears(nn.Module):
    """Linear layers with activations; a relu after a product, which is no fused one."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 32)
        self.b = nn.Linear(32, 32, bias=False)
        self.c = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)  # is: Fully Connected
        x = torch.relu(x)
        x = self.b(x)  # is: Fully Connected
        x = functional.gelu(x)  # is: GELU
        x = x * 2.0  # is: Multiply
        x = torch.sigmoid(x)  # is: Sigmoid
        x = self.c(x)  # is: Fully Connected
        return torch.softmax(x, dim=-1)  # is: Softmax


class Attention(nn.Module):
    """Attention with one head, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(16, 16)
        self.key = nn.Linear(16, 16)
        self.value = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x)  # is: Fully Connected
        key = self.key(x)  # is: Fully Connected
        value = self.value(x)  # is: Fully Connected
        key = key.transpose(1, 2)
        weight = torch.bmm(query, key)  # is: Batch Matrix Multiply
        weight = weight / 4.0  # is: Divide
        weight = torch.softmax(weight, dim=-1)  # is: Softmax
        value = torch.bmm(weight, value)  # is: Batch Matrix Multiply
        return x + value  # is: Add


class Residuals(nn.Module):
    """Convolutions and additions of the same kind, in branches and out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(4, 4, 3, padding=1)
        self.b = nn.Conv2d(4, 4, 3, padding=1)
        self.c = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        left = self.a(x)  # is: Convolution
        right = self.b(x)  # is: Convolution
        both = left + right  # is: Add
        both = torch.relu(both)  # is: Clamp
        more = self.c(both)  # is: Convolution
        total = more + x  # is: Add
        return total - left  # is: Subtract


class Elementwise(nn.Module):
    """One operator of each kind that takes elements one by one."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = torch.abs(x)  # is: Abs
        x = torch.sqrt(x)  # is: Square Root
        x = torch.exp(x)  # is: Exp
        x = torch.tanh(x)  # is: TanH
        x = torch.neg(x)  # is: Negate
        x = torch.ceil(x)  # is: Ceiling
        x = torch.maximum(x, y)  # is: Maximum
        x = torch.floor(x)  # is: Floor
        x = torch.minimum(x, y)  # is: Minimum
        x = functional.leaky_relu(x)  # is: LeakyReLU
        x = functional.elu(x)
        x = torch.sin(x)  # is: Sine
        x = torch.cos(x)  # is: Cosine
        x = x**2  # is: Square
        x = torch.clamp(x, -1.0, 1.0)  # is: Clamp
        x = x * y  # is: Multiply
        x = torch.clamp(x, 0.1, 1.0)  # is: Clamp
        x = torch.log(x)  # is: Log
        return torch.clamp(x, 0.1, 1.0)  # is: Clamp


class Shapes(nn.Module):
    """What moves values about: concatenation, slices, padding, views, transposes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        both = torch.cat([x, y], dim=1)  # is: Copy
        both = functional.pad(both, (1, 1, 1, 1))  # is: Constant Pad
        both = self.conv(both)  # is: Convolution
        both = both[:, 1:3]  # is: Slice
        less = -both  # is: Negate
        more = both * both  # is: Square
        three = torch.cat([both, less, more], dim=2)  # is: Copy
        flat = three.reshape(2, -1)  # is: Static Reshape
        return flat.t()  # is: Transpose


class Sound(nn.Module):
    """Convolutions of one dimension, and an upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv1d(4, 8, 3)
        self.b = nn.Conv1d(8, 8, 3)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.act = nn.PReLU(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)  # is: Convolution
        x = self.b(x)  # is: Convolution
        x = x.unsqueeze(2)
        x = self.up(x)  # is: Deconvolution
        x = self.act(x)  # is: PReLU
        return functional.interpolate(x, scale_factor=2.0, mode="bilinear")  # is: Resize Bilinear


def _tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


MODELS = {
    "convolutions": (Convolutions, lambda: (_tensor(1, 3, 16, 16),)),
    "linears": (Linears, lambda: (_tensor(2, 16),)),
    "attention": (Attention, lambda: (_tensor(1, 6, 16),)),
    "residuals": (Residuals, lambda: (_tensor(1, 4, 8, 8),)),
    "elementwise": (Elementwise, lambda: (_tensor(2, 8), _tensor(2, 8))),
    "shapes": (Shapes, lambda: (_tensor(1, 4, 6, 6), _tensor(1, 4, 6, 6))),
    "sound": (Sound, lambda: (_tensor(1, 4, 20),)),
}
