"""Models of several architectures, of sizes that a seed draws, for seeded inefficiencies.

All operators of them are taken by XNNPACK, or take little time. A model is built of `parts`, each
of which may be replaced by a slow one of `tests.support.explain.plants`; `between` is what stands
after one of its blocks, which the seed chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import torch
from torch import nn
from torch.nn import functional

Inputs = tuple[torch.Tensor, ...]
Parts = Mapping[str, Callable[..., nn.Module]]
Architecture = Callable[[Random, Parts], tuple[nn.Module, Inputs]]


class Chain(nn.Module):
    """Blocks in a row, with a part after one of them. marked: the path of that block."""

    def __init__(self, random: Random, blocks: list[nn.Module], between: nn.Module | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        at = random.randrange(len(blocks) - 1) if len(blocks) > 1 else 0
        self.marked = f"blocks.{at}"
        self.at, self.between = at, between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index == self.at and self.between is not None:
                x = self.between(x)
        return x


class Headed(nn.Module):
    """A stem, a chain and a head. marked: as of the chain."""

    def __init__(self, stem: nn.Module, chain: Chain, head: nn.Module) -> None:
        super().__init__()
        self.stem, self.chain, self.head = stem, chain, head
        self.marked = f"chain.{chain.marked}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.chain(self.stem(x)))


def _between(parts: Parts, *shape: int) -> nn.Module | None:
    return parts["between"](*shape) if "between" in parts else None


# -- matrices


class FeedForward(nn.Module):
    """Two matrices with an activation, and a residual."""

    def __init__(self, width: int, hidden: int, activation: nn.Module) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.activation(self.up(x)))


def mlp(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """Blocks of two matrices."""
    width, length = random.choice((128, 160, 192)), random.choice((96, 128))
    activation = parts.get("activation", nn.ReLU)
    blocks: list[nn.Module] = [
        FeedForward(width, 2 * width, activation()) for _ in range(random.choice((3, 4)))
    ]
    model = Chain(random, blocks, _between(parts, length, width))
    return model, (torch.randn(1, length, width),)


class Experts(nn.Module):
    """A mixture: each expert is a block, weighted by a softmax over a gate."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(FeedForward(width, 2 * width, nn.ReLU()) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.gate(x), -1)
        total = self.experts[0](x) * weights[..., :1]
        for index, expert in enumerate(list(self.experts)[1:], 1):
            total = total + expert(x) * weights[..., index : index + 1]
        return total


def mixture(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """Mixtures of three experts."""
    width, length = random.choice((96, 128)), random.choice((64, 96))
    experts = parts.get("experts", Experts)
    blocks: list[nn.Module] = [experts(width, 3) for _ in range(2)]
    return Chain(random, blocks, _between(parts, length, width)), (torch.randn(1, length, width),)


# -- attention


class Attention(nn.Module):
    """Attention by matrix products and a softmax; the mask is a constant."""

    def __init__(self, length: int, width: int, heads: int, is_causal: bool = False) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        mask = torch.full((length, length), -1e4).triu(1) if is_causal else None
        self.register_buffer("mask", mask)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """[1, length, width] as [heads, length, size]."""
        return x.view(x.shape[1], self.heads, self.size).transpose(0, 1)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = torch.bmm(query, key.transpose(1, 2)) * self.size**-0.5
        if self.mask is not None:
            scores = scores + self.mask
        return torch.bmm(torch.softmax(scores, -1), value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (self.split(one(x)) for one in (self.query, self.key, self.value))
        y = self.attend(query, key, value)
        return self.out(y.transpose(0, 1).reshape(1, x.shape[1], -1))


class TanhNorm(nn.Module):
    """A bounded activation in place of a norm: XNNPACK takes all of it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * 0.5) * self.weight + self.bias


class Encoder(nn.Module):
    """A block of a transformer."""

    def __init__(self, length: int, width: int, is_causal: bool, parts: Parts) -> None:
        super().__init__()
        norm = parts.get("norm", TanhNorm)
        self.first, self.second = norm(width), norm(width)
        self.attention = parts.get("attention", Attention)(length, width, 4, is_causal)
        self.feed = FeedForward(width, 2 * width, parts.get("activation", nn.ReLU)())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return self.feed(self.second(x))


def _transformer(random: Random, parts: Parts, is_causal: bool) -> tuple[nn.Module, Inputs]:
    width, length = random.choice((64, 96, 128)), random.choice((64, 96, 128))
    blocks: list[nn.Module] = [Encoder(length, width, is_causal, parts) for _ in range(2)]
    return Chain(random, blocks, _between(parts, length, width)), (torch.randn(1, length, width),)


def transformer(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """An encoder without a mask."""
    return _transformer(random, parts, is_causal=False)


def causal_transformer(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """A transformer with a causal mask."""
    return _transformer(random, parts, is_causal=True)


class Patches(nn.Module):
    """Patches of an image as tokens."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.patch(x).flatten(2).transpose(1, 2)


def vit(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """A vision transformer."""
    width, side = random.choice((64, 96)), random.choice((8, 10))
    blocks: list[nn.Module] = [Encoder(side * side, width, False, parts) for _ in range(2)]
    chain = Chain(random, blocks, _between(parts, side * side, width))
    return Headed(Patches(width, 8), chain, nn.Linear(width, 10)), (
        torch.randn(1, 3, 8 * side, 8 * side),
    )


# -- images


class Convolved(nn.Module):
    """A convolution with a norm that is folded into it, and an activation."""

    def __init__(
        self, channels: int, norm: Callable[..., nn.Module], activation: nn.Module
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm, self.activation = norm(channels), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.norm(self.conv(x)))


class Residual(Convolved):
    """Such a convolution with a residual."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


class Separable(nn.Module):
    """A convolution of each channel and one over all channels."""

    def __init__(
        self, channels: int, norm: Callable[..., nn.Module], activation: nn.Module
    ) -> None:
        super().__init__()
        self.up = nn.Conv2d(channels, 2 * channels, 1)
        self.each = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1, groups=2 * channels)
        self.down, self.norm = nn.Conv2d(2 * channels, channels, 1), norm(channels)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(self.down(self.activation(self.each(self.activation(self.up(x))))))


class Pooled(nn.Module):
    """The mean of each channel and a matrix."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer = nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.mean((2, 3), keepdim=True).flatten(1))


def _images(
    block: type[nn.Module], default: type[nn.Module], random: Random, parts: Parts
) -> tuple[nn.Module, Inputs]:
    channels, side = random.choice((24, 32, 40)), random.choice((32, 40))
    norm, activation = parts.get("norm", nn.BatchNorm2d), parts.get("activation", default)
    blocks = [block(channels, norm, activation()) for _ in range(random.choice((2, 3)))]
    chain = Chain(random, blocks, _between(parts, channels, side, side))
    stem = nn.Conv2d(3, channels, 3, padding=1, stride=2)
    return Headed(stem, chain, Pooled(channels)), (torch.randn(1, 3, 2 * side, 2 * side),)


def cnn(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """Convolutions with batch norms."""
    return _images(Convolved, nn.ReLU, random, parts)


def residual(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """Convolutions with residuals."""
    return _images(Residual, nn.ReLU, random, parts)


def mobile(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """Convolutions by channel."""
    return _images(Separable, nn.Hardswish, random, parts)


class UNet(nn.Module):
    """Convolutions to half the size and back, with what was before beside it."""

    def __init__(self, channels: int, parts: Parts, between: nn.Module | None) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.down = nn.Conv2d(channels, 2 * channels, 3, padding=1, stride=2)
        self.middle = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.up = parts.get("upsample", nn.Upsample)(scale_factor=2, mode="bilinear")
        self.join = nn.Conv2d(3 * channels, channels, 3, padding=1)
        self.head = nn.Conv2d(channels, 3, 1)
        self.between, self.marked = between, "middle"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = torch.relu(self.stem(x))
        small = torch.relu(self.middle(torch.relu(self.down(wide))))
        if self.between is not None:
            small = self.between(small)
        return self.head(torch.relu(self.join(torch.cat([wide, self.up(small)], 1))))


def unet(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """A U-Net of two levels."""
    channels, side = random.choice((12, 16)), random.choice((40, 48, 56))
    between = _between(parts, 2 * channels, side // 2, side // 2)
    return UNet(channels, parts, between).eval(), (torch.randn(1, 3, side, side),)


# -- sound and sequences


class Convolved1d(nn.Module):
    """A convolution over time with an activation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 5, padding=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.conv(x))


def audio(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """Convolutions over time."""
    channels, length = random.choice((64, 80, 96)), random.choice((200, 240))
    blocks: list[nn.Module] = [Convolved1d(channels) for _ in range(3)]
    chain = Chain(random, blocks, _between(parts, channels, length))
    head = nn.Conv1d(channels, 16, 1)
    return Headed(nn.Conv1d(40, channels, 3, padding=1), chain, head), (torch.randn(1, 40, length),)


class Cell(nn.Module):
    """One step of a gated recurrent unit."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.gates, self.new = nn.Linear(inputs + hidden, 2 * hidden), nn.Linear(inputs, hidden)
        self.old, self.hidden = nn.Linear(hidden, hidden), hidden

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        gates = torch.sigmoid(self.gates(torch.cat([x, state], -1)))
        update, reset = gates[:, : self.hidden], gates[:, self.hidden :]
        new = torch.tanh(self.new(x) + reset * self.old(state))
        return new + update * (state - new)


class Recurrent(nn.Module):
    """One step of two cells, with their states as inputs and outputs."""

    def __init__(self, width: int, between: nn.Module | None) -> None:
        super().__init__()
        self.first, self.second = Cell(width, width), Cell(width, width)
        self.between, self.marked = between, "first"

    def forward(self, x: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> Inputs:
        one = self.first(x, one)
        x = one if self.between is None else self.between(one.unsqueeze(0)).squeeze(0)
        return one, self.second(x, two)


def recurrent(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """One step of a recurrent net for a batch of sequences."""
    width, batch = random.choice((128, 192)), random.choice((32, 48))
    between = _between(parts, batch, width)
    return Recurrent(width, between), tuple(torch.randn(batch, width) for _ in range(3))


class Cache(nn.Module):
    """Keys or values of the tokens before, a buffer that is written in place."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(1, length, width))

    def forward(self, new: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.kept.index_copy_(1, position, new)


class Step(nn.Module):
    """A block of a decoder for one token, with its cache."""

    def __init__(self, length: int, width: int, hidden: int, parts: Parts) -> None:
        super().__init__()
        cache = parts.get("cache", Cache)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.keys, self.values = cache(length, width), cache(length, width)
        self.widen = parts["widen"]() if "widen" in parts else nn.Identity()
        self.feed = FeedForward(width, hidden, nn.ReLU())

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        keys = self.widen(self.keys(self.key(x), position))
        values = self.widen(self.values(self.value(x), position))
        scores = torch.bmm(self.query(x), keys.transpose(1, 2)[:, : x.shape[-1]]) * 0.1
        y = torch.bmm(torch.softmax(scores, -1), values[..., : x.shape[-1]])
        return self.feed(x + self.out(y))


class Decoder(nn.Module):
    """A step of a language model: one token, given as its embedding, with its position."""

    def __init__(self, length: int, width: int, hidden: int, parts: Parts) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Step(length, width, hidden, parts) for _ in range(2))
        self.head = parts.get("head", nn.Linear)(width, 4 * width)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, position)
        return self.head(x)


def decoder(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """A step of a decoder with a short cache."""
    width = random.choice((192, 256))
    return Decoder(64, width, 4 * width, parts), (torch.randn(1, 1, width), torch.tensor([5]))


def long_decoder(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """A step of a decoder whose cache is larger than its weights."""
    width, length = random.choice((64, 96)), random.choice((2048, 3072))
    return Decoder(length, width, 2 * width, parts), (torch.randn(1, 1, width), torch.tensor([5]))


def wide_decoder(random: Random, parts: Parts) -> tuple[nn.Module, Inputs]:
    """A step of a decoder whose weights are larger than the processor's caches."""
    width = random.choice((896, 1024))
    return Decoder(32, width, 4 * width, parts), (torch.randn(1, 1, width), torch.tensor([5]))
