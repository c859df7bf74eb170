"""Inefficient parts for the models of `architectures`: what users write, or what an export makes of
what they write, that takes longer than it has to.

Each is a `Planted` module, so that its modules and lines in a model are known. Those that stand
between blocks are made with the shape of a value without its batch, and keep it.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from tests.support.explain.architectures import Attention, Cache, Cell, FeedForward


class Planted:
    """A mark of modules that are planted."""


class Between(Planted, nn.Module):
    """A part between blocks, for values of a shape."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape


# -- operators that XNNPACK does not take, in the middle of what it takes


class RunningMean(Between):
    """The means over the tokens before, and of these again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = torch.cumsum(x, 1) * (1.0 / self.shape[0])
        return x


class ErrorFunction(Between):
    """A squashing function."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.erf(x)


class Thresholded(Between):
    """A leaky activation, by a condition."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0.1, x, x * 0.1)


class Mirrored(Between):
    """The mean with its mirror image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + x.flip(-1)) * 0.5


class Flipped(Between):
    """The mirror image, of which nothing is computed: it could stay in 8 bits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(-1)


class Shifted(Between):
    """Windows moved by half their size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.roll((2, 2), (2, 3))


class Ranked(Between):
    """The largest values of each token, put in place of the first ones."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = x.shape[-1] // 2
        return torch.cat([torch.topk(x, count).values, x[..., count:]], -1)


class Grouped(Planted, nn.Module):
    """A norm over groups of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


class Nearest(Planted, nn.Module):
    """Images of twice the size, by the nearest pixel, smoothed a little."""

    def __init__(self, scale_factor: int, mode: str) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x, scale_factor=2.0, mode="nearest")


class Mish(Planted, nn.Module):
    """An activation, written out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(functional.softplus(x))


# -- types


class InDouble(Between):
    """A norm, in double precision to be safe."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.double()
        return (y * torch.rsqrt(y * y + 1.0)).float()


class InBfloat16(Between):
    """A matrix in bfloat16 to save memory."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self.layer = nn.Linear(shape[-1], shape[-1]).bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.bfloat16()).float()


# -- attention


class Fused(Planted, Attention):
    """Attention by torch's own operator, whose softmax is made safe at export."""

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=self.mask)


class FusedCausal(Planted, Attention):
    """The same, whose mask is made by the operator."""

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class MaskedEachTime(Planted, Attention):
    """Attention whose mask is made in each call."""

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = torch.bmm(query, key.transpose(1, 2)) * self.size**-0.5
        length = scores.shape[-1]
        allowed = torch.tril(torch.ones(self.heads, length, length, dtype=torch.bool))
        bias = torch.where(allowed, 0.0, -1e4)
        return torch.bmm(torch.softmax(scores + bias, -1), value)


class RelativeEachTime(Planted, Attention):
    """Attention with a bias by distance, whose slopes and distances are computed in each call."""

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = torch.bmm(query, key.transpose(1, 2)) * self.size**-0.5
        places = torch.arange(scores.shape[-1])
        far = (places[:, None] - places[None, :]).abs().float()
        bias = -torch.pow(far, 0.5) * torch.arange(1, self.heads + 1)[:, None, None]
        return torch.bmm(torch.softmax(scores + bias, -1), value)


class SoftmaxInParts(Planted, Attention):
    """Attention with a softmax that is written out."""

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = torch.bmm(query, key.transpose(1, 2)) * self.size**-0.5
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        weights = weights / weights.sum(-1, keepdim=True)
        return torch.bmm(weights, value)


class InFourDimensions(Planted, Attention):
    """Attention of few heads of keys, which are repeated for the heads of queries."""

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        key, value = (one[:1].expand(self.heads, -1, -1).contiguous() for one in (key, value))
        scores = torch.matmul(query[None], key[None].transpose(-1, -2)) * self.size**-0.5
        return torch.matmul(torch.softmax(scores, -1), value[None]).squeeze(0)


# -- functions written out, that have an operator


class NormInParts(Planted, nn.Module):
    """Layer norm, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        spread = torch.pow(x - mean, 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(spread + 1e-5) * self.weight


class GeluByErf(Planted, nn.Module):
    """GELU, written out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1.0 + torch.erf(x * 0.7071067811865476))


class GeluByTanh(Planted, nn.Module):
    """GELU by tanh, written out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


# -- weights that are prepared in each call


class TransposedWeight(Between):
    """A product with a weight that is kept the other way round."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self.weight = nn.Parameter(torch.randn(shape[-1], shape[-1]) * shape[-1] ** -0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.t()


class TransposedKernel(Between):
    """A convolution with a weight that is kept the other way round."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape[0], shape[0], 1, 1) * shape[0] ** -0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, self.weight.transpose(0, 1))


class TiedHead(Planted, nn.Module):
    """Logits by a table of embeddings, one column for each word."""

    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(words, width) * width**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, self.table.transpose(0, 1))


class ExpandedWeight(Between):
    """One weight for each part of a batch, all alike."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self.weight = nn.Parameter(torch.randn(shape[-1], shape[-1]) * shape[-1] ** -0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = x.view(16, -1, x.shape[-1])
        return torch.bmm(parts, self.weight.expand(16, -1, -1)).view(x.shape)


# -- layouts and copies


class ScaledAlongLast(Between):
    """Scales of channels, each time with the channels put last and back."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self.scales = nn.Parameter(torch.rand(3, shape[0]) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in range(3):
            x = (x.permute(0, 2, 3, 1).contiguous() * self.scales[index]).permute(0, 3, 1, 2)
            x = torch.sigmoid(x.contiguous())
        return x


class TransposedAround(Between):
    """Scales of channels, each time with time and channels exchanged and back."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self.scales = nn.Parameter(torch.rand(4, shape[0]) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in range(4):
            x = (x.transpose(1, 2).contiguous() * self.scales[index]).transpose(1, 2)
            x = torch.tanh(x.contiguous())
        return x


class Dilated(Between):
    """Every other token first, by slices that are put together again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.cat([x[:, ::2], x[:, 1::2]], 1)
        return x


class Widened(Planted, nn.Module):
    """Heads of a cache, repeated for each head of the queries."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :, None, :].expand(-1, -1, 4, -1).reshape(1, x.shape[1], -1)


# -- constants that each call computes


class PlacesEachTime(Between):
    """The positions of a transformer, as sines and cosines, computed in each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length, width = self.shape
        powers = torch.pow(10000.0, -torch.arange(width) / width)
        places = torch.arange(length).float()[:, None] * powers[None, :]
        table = torch.where(torch.arange(width) % 2 == 0, torch.sin(places), torch.cos(places))
        return x + table


class WindowEachTime(Between):
    """Spectra by a matrix of cosines that is computed in each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = self.shape[-1]
        places = torch.arange(length)
        turns = torch.fmod(places[:, None] * places[None, :], 2 * length).float()
        return torch.matmul(x, torch.cos(turns * (math.pi / length)) * length**-0.5)


# -- many small operators


class TokenByToken(Between):
    """A recurrent cell, one token after the other."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self.cell = Cell(shape[-1], 16)
        self.out = nn.Linear(16, shape[-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(1, 16)
        for index in range(12):
            state = self.cell(x[:, index], state)
        return x + self.out(state)


class ChannelByChannel(Between):
    """A scale for each channel, one after the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x[:, index : index + 1] * (1.0 + index) for index in range(x.shape[1])]
        return torch.cat(parts, 1)


class ManyExperts(Planted, nn.Module):
    """Many small experts, each for its own slice of the width."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(FeedForward(4, 8, nn.ReLU()) for _ in range(width // 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [expert(x[..., 4 * i : 4 * i + 4]) for i, expert in enumerate(self.experts)]
        return torch.cat(parts, -1)


# -- caches


class ChosenCache(Planted, Cache):
    """A cache whose new row is chosen by a condition over all rows."""

    def forward(self, new: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        places = torch.arange(self.kept.shape[1]) == position
        kept = torch.where(places[None, :, None], new, self.kept)
        self.kept.copy_(kept)
        return kept


class MovedCache(Planted, Cache):
    """A cache whose rows move up by one for each token."""

    def forward(self, new: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        kept = torch.cat([self.kept[:, 1:], new], 1)
        self.kept.copy_(kept)
        return kept


class LongCache(Planted, Cache):
    """A cache of many more rows than the attention looks at, all of them copied for a new one."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__(16 * length, width)
        self.length = length

    def forward(self, new: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return super().forward(new, position)[:, : self.length]
