"""Models with one inefficiency each, of architectures that no other test has, beside the same model
without it.

A slow model differs from the fast one in one part, so that a patch of `etscope explain` for its
lines can be applied to a copy of this file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Pair:
    """A slow model and a fast one, by their classes. sizes: of the random inputs."""

    slow: type[nn.Module]
    fast: type[nn.Module]
    sizes: tuple[tuple[int, ...], ...]

    def made(self, *, is_slow: bool = True) -> Made:
        torch.manual_seed(7)
        model = (self.slow if is_slow else self.fast)().eval()
        torch.manual_seed(11)
        return model, tuple(torch.randn(*size) for size in self.sizes)


PAIRS: dict[str, Any] = {}


def pair(name: str, slow: type[nn.Module], fast: type[nn.Module], *sizes: tuple[int, ...]) -> None:
    PAIRS[name] = Pair(slow, fast, sizes)


# -- a ConvNeXt


class ConvNext(nn.Module):
    """Two blocks of a ConvNeXt with a norm over all of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 48, 4, 4)
        self.each = nn.ModuleList(nn.Conv2d(48, 48, 5, padding=2, groups=48) for _ in range(2))
        self.up = nn.ModuleList(nn.Conv2d(48, 96, 1) for _ in range(2))
        self.down = nn.ModuleList(nn.Conv2d(96, 48, 1) for _ in range(2))
        self.head = nn.Linear(48, 20)

    def act(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x)

    def pooled(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3), keepdim=True).flatten(1)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for each, up, down in zip(self.each, self.up, self.down, strict=True):
            x = self.between(x + down(self.act(up(each(x)))))
        return self.head(self.pooled(x))


class HandGelu(ConvNext):
    def act(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


class HandTanhGelu(ConvNext):
    def act(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3))))


class TanhGelu(ConvNext):
    def act(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x, approximate="tanh")


class Mirror(ConvNext):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(-1)


class BackAndForth(ConvNext):
    """Scales of channels as the last dimension, each time there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((48,), 0.5))

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return (x.permute(0, 2, 3, 1) * self.gamma).permute(0, 3, 1, 2).contiguous()


class Straight(BackAndForth):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gamma[:, None, None]


pair("convnext_gelu", HandGelu, ConvNext, (1, 3, 96, 96))
pair("convnext_tanh_gelu", HandTanhGelu, TanhGelu, (1, 3, 96, 96))
pair("convnext_gamma", BackAndForth, Straight, (1, 3, 96, 96))
pair("convnext_mirror", Mirror, Mirror, (1, 3, 96, 96))


# -- squeeze and excitation


class Excited(nn.Module):
    """Blocks of an EfficientNet, with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.each = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1, groups=32) for _ in range(2))
        self.squeeze = nn.ModuleList(nn.Conv2d(32, 8, 1) for _ in range(2))
        self.excite = nn.ModuleList(nn.Conv2d(8, 32, 1) for _ in range(2))
        self.mix = nn.ModuleList(nn.Conv2d(32, 32, 1) for _ in range(2))

    def weights(self, x: torch.Tensor, squeeze: nn.Module, excite: nn.Module) -> torch.Tensor:
        y = x.mean((2, 3), keepdim=True)
        return torch.sigmoid(excite(torch.relu(squeeze(y))))

    def act(self, x: torch.Tensor) -> torch.Tensor:
        return F.hardswish(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for each, squeeze, excite, mix in zip(
            self.each, self.squeeze, self.excite, self.mix, strict=True
        ):
            y = self.act(each(x))
            x = x + mix(y * self.weights(y, squeeze, excite))
        return x


class SqueezedFlat(Excited):
    def weights(self, x: torch.Tensor, squeeze: nn.Module, excite: nn.Module) -> torch.Tensor:
        y = x.mean((2, 3))
        y = y[:, :, None, None]
        return torch.sigmoid(excite(torch.relu(squeeze(y))))


class HandSwish(Excited):
    def act(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.clamp(x + 3.0, 0.0, 6.0) / 6.0


class Leaky(Excited):
    def act(self, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(x, 0.1)


class LeakyByWhere(Excited):
    def act(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, x * 0.1)


class Noisy(Excited):
    def act(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.hardswish(x), 0.1)


class Pooled(Excited):
    def act(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(F.hardswish(x), 3, 1, 1, count_include_pad=False)


class PooledWithZeros(Excited):
    def act(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(F.hardswish(x), 3, 1, 1)


pair("excitation_flat_mean", SqueezedFlat, Excited, (1, 3, 96, 96))
pair("excitation_hand_swish", HandSwish, Excited, (1, 3, 96, 96))
pair("excitation_where", LeakyByWhere, Leaky, (1, 3, 96, 96))
pair("excitation_dropout", Noisy, Excited, (1, 3, 96, 96))
pair("excitation_pool", PooledWithZeros, Pooled, (1, 3, 96, 96))
pair("excitation_portable", Excited, Excited, (1, 3, 64, 64))


# -- windows that move


class Windows(nn.Module):
    """Attention in windows of a Swin transformer, which move in every other block."""

    side, size, width, heads = 16, 4, 48, 4

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (
            nn.ModuleList(nn.Linear(self.width, self.width) for _ in range(2)) for _ in range(4)
        )

    def moved(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([x[:, 2:], x[:, :2]], 1)
        return torch.cat([x[:, :, 2:], x[:, :, :2]], 2)

    def bias(self, scores: torch.Tensor) -> torch.Tensor:
        return scores

    def split(self, x: torch.Tensor) -> torch.Tensor:
        n = self.side // self.size
        x = x.view(n, self.size, n, self.size, self.width).permute(0, 2, 1, 3, 4)
        x = x.reshape(n * n, self.size**2, self.heads, self.width // self.heads)
        return x.permute(0, 2, 1, 3).reshape(-1, self.size**2, self.width // self.heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = self.side // self.size
        for index in range(2):
            y = self.moved(x) if index else x
            query, key, value = (
                self.split(one[index](y)) for one in (self.query, self.key, self.value)
            )
            scores = self.bias(torch.bmm(query, key.transpose(1, 2)) * 0.3)
            y = torch.bmm(torch.softmax(scores, -1), value)
            y = y.view(n * n, self.heads, self.size**2, -1).permute(0, 2, 1, 3)
            y = y.reshape(n, n, self.size, self.size, self.width).permute(0, 2, 1, 3, 4)
            x = x + self.out[index](y.reshape(1, self.side, self.side, self.width))
        return x


class Rolled(Windows):
    def moved(self, x: torch.Tensor) -> torch.Tensor:
        return torch.roll(x, (-2, -2), (1, 2))


class Biased(Windows):
    """A bias by the distance of two places of a window."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("distance", self.made())

    def made(self) -> torch.Tensor:
        at = torch.arange(self.size**2)
        rows, columns = (at // self.size).float(), (at % self.size).float()
        far = (rows[:, None] - rows[None]).abs() + (columns[:, None] - columns[None]).abs()
        return torch.exp(-far * 0.3).repeat(64, 1, 1)

    def bias(self, scores: torch.Tensor) -> torch.Tensor:
        return scores + self.distance


class BiasedEachTime(Biased):
    def bias(self, scores: torch.Tensor) -> torch.Tensor:
        return scores + self.made()


pair("swin_roll", Rolled, Windows, (1, 16, 16, 48))
pair("swin_bias", BiasedEachTime, Biased, (1, 16, 16, 48))


# -- mixing tokens


class Mixer(nn.Module):
    """Blocks of an MLP-Mixer."""

    tokens, width = 64, 96

    def __init__(self) -> None:
        super().__init__()
        self.along = nn.ModuleList(nn.Linear(self.tokens, self.tokens) for _ in range(2))
        self.across = nn.ModuleList(nn.Linear(self.width, self.width) for _ in range(2))
        self.weight = nn.Parameter(torch.ones(self.width))
        self.head = nn.Linear(self.width, 10)

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)

    def first(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :1].reshape(1, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for along, across in zip(self.along, self.across, strict=True):
            x = x + along(self.norm(x).transpose(1, 2)).transpose(1, 2)
            x = x + across(torch.relu(self.norm(x)))
        return self.head(self.first(x))


class HandNorm(Mixer):
    def norm(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        var = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(var + 1e-5) * self.weight


class Norm(Mixer):
    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (self.width,), self.weight)


class DoubleNorm(Mixer):
    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.double() * 0.7).float()


class SingleNorm(Mixer):
    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * 0.7)


class CubicNorm(Mixer):
    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.pow(x, 3))


class ProductNorm(Mixer):
    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * x * x)


class UnitNorm(Mixer):
    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x, dim=-1)


class HandUnitNorm(Mixer):
    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).unsqueeze(-1).mean((2, 3), keepdim=True).squeeze(-1) * 96.0)


class TwiceTransposed(Mixer):
    def norm(self, x: torch.Tensor) -> torch.Tensor:
        y = x.transpose(1, 2).contiguous()
        return torch.tanh(y.transpose(1, 2).contiguous())


class Alpha(Mixer):
    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.add(x, torch.relu(x), alpha=2.0))


class NoAlpha(Mixer):
    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x + 2.0 * torch.relu(x))


pair("mixer_hand_norm", HandNorm, Norm, (1, 64, 96))
pair("mixer_double", DoubleNorm, SingleNorm, (1, 64, 96))
pair("mixer_cube", CubicNorm, ProductNorm, (1, 64, 96))
pair("mixer_transposed", TwiceTransposed, Mixer, (1, 64, 96))
pair("mixer_alpha", Alpha, NoAlpha, (1, 64, 96))
pair("mixer_threads", Mixer, Mixer, (1, 64, 96))
pair("mixer_portable", Mixer, Mixer, (1, 64, 96))


# -- channels that are shuffled


class Shuffled(nn.Module):
    """Blocks of a ShuffleNet: half of the channels are convolved, and all are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))
        # The order of a shuffle, in the weights of a product.
        order = torch.eye(32)[torch.arange(32).view(2, 16).t().reshape(-1)]
        self.register_buffer("order", order[:, :, None, None])

    def halves(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[:, :16], x[:, 16:]

    def shuffle(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.order)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for conv in self.convs:
            left, right = self.halves(x)
            x = self.shuffle(torch.cat([left, torch.relu(conv(right))], 1))
        return x


class Chunked(Shuffled):
    def halves(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = x.chunk(2, 1)
        return left, right


class IndexedShuffle(Shuffled):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.cat([torch.arange(16, 32), torch.arange(16)]))

    def shuffle(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, self.places]


class SlicedShuffle(Shuffled):
    def shuffle(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, 16:], x[:, :16]], 1)


class TenParts(Shuffled):
    def shuffle(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x[:, 4 * i : 4 * i + 4] * (1.0 + i) for i in range(8)]
        return torch.cat(parts, 1)


class ScaledParts(Shuffled):
    def __init__(self) -> None:
        super().__init__()
        scale = torch.arange(1.0, 9.0).repeat_interleave(4)
        self.register_buffer("scale", scale[:, None, None])

    def shuffle(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


pair("shufflenet_chunk", Chunked, Shuffled, (1, 3, 96, 96))
pair("shufflenet_index", IndexedShuffle, SlicedShuffle, (1, 3, 96, 96))
pair("shufflenet_parts", TenParts, ScaledParts, (1, 3, 96, 96))
