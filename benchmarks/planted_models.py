"""Models for `benchmarks.planted_faults`, and the ways in which they are quantised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

Inputs = tuple[torch.Tensor, ...]


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class FeedForward(nn.Module):
    """Matrices, an activation, a residual and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
        self.one, self.other = nn.Linear(64, 64), nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.one(x)
        y = torch.relu(y)
        y = self.other(y)
        x = x + y
        y = self.up(x)
        y = nn.functional.gelu(y)
        y = self.down(y)
        x = x + y
        return self.norm(x)


class Convolutions(nn.Module):
    """Convolutions of all kinds, a mean and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.each = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.point = nn.Conv2d(32, 32, 1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = torch.relu(x)
        y = self.each(x)
        y = nn.functional.relu6(y)
        y = self.point(y)
        x = x + y
        x = x.mean((2, 3))
        return self.head(x)


class Attention(nn.Module):
    """Causal attention of four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(64, 64) for _ in range(4))
        self.register_buffer("mask", torch.full((32, 32), -1e4).triu(1))
        with torch.no_grad():  # attention to some, and not to all alike
            self.query.weight *= 4
            self.key.weight *= 4

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(1, 32, 4, 16).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query = self.heads(self.query(x))
        key = self.heads(self.key(x))
        value = self.heads(self.value(x))
        scores = query @ key.transpose(-1, -2)
        scores = scores / 4
        scores = scores + self.mask
        weights = torch.softmax(scores, -1)
        y = weights @ value
        y = y.transpose(1, 2).reshape(1, 32, 64)
        return self.out(y)


class Large(nn.Module):
    """An elementwise product of 262,144 numbers, and a large matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(512, 512))
        self.layer = nn.Linear(512, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.scale
        x = self.layer(x)
        return torch.tanh(x)


class OneLarge(nn.Module):
    """One channel is 30,000 times as large as the others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(64, 64), nn.Linear(64, 8)
        with torch.no_grad():
            self.layer.weight[7] *= 30_000

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        x = torch.relu(x)
        return self.head(x)


class Embedded(nn.Module):
    """A look-up, positions, and a norm that is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(1000, 64), nn.Parameter(torch.randn(1, 64, 64))
        self.gain = nn.Parameter(torch.rand(64) + 0.5)
        self.layer = nn.Linear(64, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        x = x + self.places
        mean = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(mean + 1e-6)
        x = x * self.gain
        left = x.narrow(-1, 0, 32)
        right = x.narrow(-1, 32, 32)
        x = torch.cat([torch.sigmoid(left), torch.tanh(right)], -1)
        x = self.layer(x)
        return torch.log_softmax(x, -1)


class Deep(nn.Module):
    """Twelve blocks, one after the other."""

    def __init__(self, count: int = 12) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(FeedForward() for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class WideRange(nn.Module):
    """Channels from 1e-6 to 1e6, and functions that are steep."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(64, 64), nn.Linear(64, 64)
        with torch.no_grad():
            self.one.weight *= 10 ** torch.linspace(-6, 6, 64)[:, None]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.other(torch.tanh(self.one(x)))
        return torch.log1p(torch.abs(y)) * torch.exp(x)


class Softmaxes(nn.Module):
    """Softmax of large numbers, of masked ones, and of a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.register_buffer("mask", torch.full((32, 32), float("-inf")).triu(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.layer(x) * 20
        weights = torch.softmax(y @ y.transpose(-1, -2) + self.mask, -1)
        return torch.log_softmax(weights @ y, -1), torch.softmax(y * 50, -1)


class Cached(nn.Module):
    """A cache of keys, written at a position."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(64, 64)
        self.register_buffer("cache", torch.zeros(1, 16, 64))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(1, position, self.key(x))
        return torch.softmax(x @ self.cache.transpose(1, 2), -1) @ self.cache


class Recurrent(nn.Module):
    """An LSTM, with trigonometry of large angles."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(64, 64, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.cells(x)[0]
        return y, torch.cos(y * 100), torch.pow(torch.abs(y) + 1e-3, 1.7)


class Images(nn.Module):
    """Norms by group, a transposed convolution, interpolation and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(4, 16), nn.Conv2d(3, 16, 3, stride=2)
        self.back = nn.ConvTranspose2d(16, 8, 4, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = nn.functional.silu(self.norm(self.conv(x)))
        z = nn.functional.interpolate(self.back(y), scale_factor=2.0, mode="bilinear")
        return nn.functional.max_pool2d(z, 2), z.mean((2, 3)), z.std((2, 3)), torch.erf(z)


class ConvBlocks(nn.Module):
    """Six convolutions with residuals: noise of quantisation passes through all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(5))
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def _sequence(seed: int) -> Inputs:
    return (numbers(seed, 1, 32, 64),)


def _image(seed: int) -> Inputs:
    return (numbers(seed, 1, 3, 16, 16),)


MODELS: dict[type[nn.Module], Callable[[int], Inputs]] = {
    FeedForward: _sequence,
    Convolutions: _image,
    Attention: _sequence,
    Large: lambda seed: (numbers(seed, 512, 512),),
    OneLarge: lambda seed: (numbers(seed, 32, 64),),
    Embedded: lambda seed: (
        torch.randperm(1000, generator=torch.Generator().manual_seed(seed))[None, :64],
    ),
    Deep: _sequence,
    WideRange: _sequence,
    Softmaxes: _sequence,
    Cached: lambda seed: (numbers(seed, 1, 1, 64), torch.tensor([3])),
    Recurrent: lambda seed: (numbers(seed, 1, 12, 64),),
    Images: _image,
    ConvBlocks: _image,
}


def made(kind: type[nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return kind().eval()


# -- programs, by what they compute with


def as_float(model: nn.Module, inputs: Inputs) -> tuple[ExportedProgram, Inputs]:
    return torch.export.export(model, inputs), inputs


def as_half(model: nn.Module, inputs: Inputs) -> tuple[ExportedProgram, Inputs]:
    halves = tuple(one.half() if one.is_floating_point() else one for one in inputs)
    return torch.export.export(model.half(), halves), halves


def static(per_channel: bool) -> Callable[[nn.Module, Inputs], tuple[ExportedProgram, Inputs]]:
    return lambda model, inputs: _by_quantizer(model, inputs, per_channel, is_dynamic=False)


def dynamic(model: nn.Module, inputs: Inputs) -> tuple[ExportedProgram, Inputs]:
    return _by_quantizer(model, inputs, per_channel=True, is_dynamic=True)


def _by_quantizer(
    model: nn.Module, inputs: Inputs, per_channel: bool, is_dynamic: bool
) -> tuple[ExportedProgram, Inputs]:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer()
    quantizer.set_global(
        get_symmetric_quantization_config(is_per_channel=per_channel, is_dynamic=is_dynamic)
    )
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    prepared(*inputs)
    return torch.export.export(convert_pt2e(prepared), inputs), inputs


def by_torchao(bits: int, group: int | None) -> Any:
    """Weights of so many bits, by group or by row, and activations of 8 bits by token."""

    def quantised(model: nn.Module, inputs: Inputs) -> tuple[ExportedProgram, Inputs]:
        from torchao.quantization import (
            Int8DynamicActivationIntxWeightConfig,
            PerAxis,
            PerGroup,
            quantize_,
        )
        from torchao.utils import unwrap_tensor_subclass

        config = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4 if bits == 4 else torch.int8,
            weight_granularity=PerAxis(0) if group is None else PerGroup(group),
        )
        quantize_(model, config)
        return torch.export.export(unwrap_tensor_subclass(model), inputs), inputs

    return quantised
