"""More pairs of `edits`: sequences, points, graphs and caches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.explain.edits import Made, Pair

PAIRS: dict[str, Any] = {}


def pair(name: str, slow: type[nn.Module], fast: type[nn.Module], *sizes: tuple[int, ...]) -> None:
    PAIRS[name] = Pair(slow, fast, sizes)


# -- sound


class Wave(nn.Module):
    """Blocks of a WaveNet: gated convolutions over time, with a kernel that grows apart."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 32, 1)
        self.gates = nn.ModuleList(
            nn.Conv2d(32, 64, (3, 1), padding=(2**i, 0), dilation=(2**i, 1)) for i in range(2)
        )
        self.out = nn.ModuleList(nn.Conv2d(32, 32, 1) for _ in range(2))
        self.head = nn.Conv2d(32, 8, 1)

    def gated(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x[:, :32]) * torch.sigmoid(x[:, 32:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for gates, out in zip(self.gates, self.out, strict=True):
            x = x + out(self.gated(gates(x)))
        return self.head(torch.relu(x))


class Wave1d(nn.Module):
    """The same with convolutions of one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, 32, 1)
        self.gates = nn.ModuleList(
            nn.Conv1d(32, 64, 3, padding=2**i, dilation=2**i) for i in range(2)
        )
        self.out = nn.ModuleList(nn.Conv1d(32, 32, 1) for _ in range(2))
        self.head = nn.Conv1d(32, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x[..., 0])
        for gates, out in zip(self.gates, self.out, strict=True):
            y = gates(x)
            x = x + out(torch.tanh(y[:, :32]) * torch.sigmoid(y[:, 32:]))
        return self.head(torch.relu(x))


class WaveSplit(Wave):
    def gated(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = torch.split(x, [32, 32], 1)
        return torch.tanh(value) * torch.sigmoid(gate)


pair("wavenet_1d", Wave1d, Wave, (1, 1, 1000, 1))
pair("wavenet_split", WaveSplit, Wave, (1, 1, 1000, 1))


# -- images that are made larger


class Upscaled(nn.Module):
    """A decoder of segmentation, with a coarse image that is made larger twice."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(3))

    def up(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2.0, mode="bilinear")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.convs[0](x))
        x = torch.relu(self.convs[1](self.up(x)))
        return self.convs[2](self.up(x))


class Bicubic(Upscaled):
    def up(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2.0, mode="bicubic")


class Narrow(nn.Module):
    """A super-resolution network: few channels of a large image."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(16, 16, 1), nn.Conv2d(16, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


class NormFirst(nn.Module):
    """Shared layers of a PointNet, each after its norm."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(32, 32, 1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(32) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = torch.relu(conv(norm(x)))
        return x


class NormFolded(NormFirst):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = torch.relu(conv(x))
        return x


pair("segmentation_bicubic", Bicubic, Upscaled, (1, 16, 32, 32))
pair("narrow_channels_first", Narrow, Narrow, (1, 16, 256, 256))
pair("pointnet_norm_first", NormFirst, NormFolded, (1, 32, 128, 32))


# -- rays


class Rays(nn.Module):
    """A NeRF: sines of places at several frequencies, and a few matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", self.made())
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.first, self.last = nn.Linear(256, 64), nn.Linear(64, 4)

    def made(self) -> torch.Tensor:
        octaves = torch.exp(torch.arange(256).float() * 0.02)
        phases = torch.arange(128).float()[:, None] * octaves
        return torch.sin(phases) * torch.cos(phases * 0.5)

    def table(self) -> torch.Tensor:
        return self.steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x * self.table()))
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.last(x)


class RaysEachTime(Rays):
    def table(self) -> torch.Tensor:
        return self.made()


pair("nerf_frequencies", RaysEachTime, Rays, (1, 128, 256))
pair("nerf_portable", Rays, Rays, (1, 128, 256))


# -- latents that look at inputs


class Perceiver(nn.Module):
    """Latents that look at many inputs, by products of three dimensions."""

    heads, size = 4, 16

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(32, 64) * 0.1)
        self.key, self.value, self.out = (nn.Linear(64, 64) for _ in range(3))

    def looked(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        query, key, value = (one.squeeze(0) for one in (query, key, value))
        scores = torch.bmm(query * 0.25, key.transpose(1, 2))
        return torch.bmm(torch.softmax(scores, -1), value).unsqueeze(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query = self.latents.view(1, 32, self.heads, self.size).transpose(1, 2)
        for _ in range(2):
            key = self.key(x).view(1, -1, self.heads, self.size).transpose(1, 2)
            value = self.value(x).view(1, -1, self.heads, self.size).transpose(1, 2)
            query = query + self.looked(query, key, value)
        return self.out(query.transpose(1, 2).reshape(1, 32, 64))


class PerceiverFused(Perceiver):
    def looked(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value)


class PerceiverProducts(Perceiver):
    def looked(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = torch.matmul(query * 0.25, key.transpose(-1, -2))
        return torch.matmul(torch.softmax(scores, -1), value)


class PerceiverByHand(Perceiver):
    def looked(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        query, key, value = (one.squeeze(0) for one in (query, key, value))
        raised = torch.exp(torch.bmm(query * 0.25, key.transpose(1, 2)))
        return torch.bmm(raised / raised.sum(-1, keepdim=True), value).unsqueeze(0)


class PerceiverHeads(Perceiver):
    """One head after the other."""

    heads, size = 16, 4

    def looked(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        found = []
        for i in range(16):
            scores = (query[0, i] * 0.25) @ key[0, i].transpose(0, 1)
            found.append(torch.softmax(scores, -1) @ value[0, i])
        return torch.stack(found).unsqueeze(0)


class PerceiverAllHeads(Perceiver):
    heads, size = 16, 4


pair("perceiver_attention", PerceiverFused, Perceiver, (1, 256, 64))
pair("perceiver_products", PerceiverProducts, Perceiver, (1, 256, 64))
pair("perceiver_softmax", PerceiverByHand, Perceiver, (1, 256, 64))
pair("perceiver_heads", PerceiverHeads, PerceiverAllHeads, (1, 64, 64))


# -- graphs


class Neighbours(nn.Module):
    """Convolutions over the neighbours in a fixed graph."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.register_buffer("edges", (torch.rand(160, 160) > 0.9).float())
        self.register_buffer("weights", self.made())
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))

    def made(self) -> torch.Tensor:
        linked = self.edges + torch.eye(160)
        return linked / linked.sum(1, keepdim=True)

    def neighbours(self) -> torch.Tensor:
        return self.weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.neighbours()
        for layer in self.layers:
            x = torch.relu(torch.matmul(weights, layer(x)))
        return x


class NeighboursEachTime(Neighbours):
    def neighbours(self) -> torch.Tensor:
        return self.made()


pair("graph_weights", NeighboursEachTime, Neighbours, (160, 64))


# -- tokens


class Tower(nn.Module):
    """A tower of a retrieval model: a few matrices over tokens, and their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(96, 96) for _ in range(2))
        self.head = nn.Linear(96, 32)

    def mixed(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.transpose(1, 2), -1).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + self.mixed(torch.relu(layer(x)))
        return self.head(x)


class TowerOverTokens(Tower):
    def mixed(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, 1)


class TowerDecay(Tower):
    """The sum of all tokens before, as in a state-space model, by a product."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("before", torch.tril(torch.ones(32, 32)))

    def mixed(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(self.before, x)


class TowerScan(Tower):
    def mixed(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 1)


class TowerMean(Tower):
    """The mean over the width of each token, beside it."""

    def mixed(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.unsqueeze(-1).mean((2, 3), keepdim=True).squeeze(-1)


class TowerFlatMean(Tower):
    def mixed(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.mean(-1, keepdim=True)


pair("tower_softmax", TowerOverTokens, Tower, (1, 64, 96))
pair("tower_scan", TowerScan, TowerDecay, (1, 32, 96))
pair("tower_mean", TowerFlatMean, TowerMean, (1, 64, 96))


# -- caches


class Rotary(nn.Module):
    """A step of a decoder whose keys turn in part, with a cache that is written by position."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.out = (nn.Linear(64, 64) for _ in range(3))
        self.register_buffer("keys", torch.zeros(1, 1024, 64))

    def kept(self, key: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.keys.index_copy_(1, position, key)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.tanh(x[..., :16]), x[..., 16:]], -1)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        keys = self.kept(self.turned(self.key(x)), position)
        scores = torch.bmm(self.query(x), keys.transpose(1, 2)) * 0.1
        return self.out(torch.bmm(torch.softmax(scores, -1), keys))


class AssignedCache(Rotary):
    def kept(self, key: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.keys[:, position] = key
        return self.keys


class ChosenCache(Rotary):
    def kept(self, key: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        here = torch.arange(1024) == position
        self.keys.copy_(torch.where(here[None, :, None], key, self.keys))
        return self.keys


class MovedCache(Rotary):
    def kept(self, key: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.keys.copy_(torch.cat([self.keys[:, 1:], key], 1))
        return self.keys


@dataclass(frozen=True)
class Steps(Pair):
    """Steps of a decoder: a token, and its position."""

    def made(self, *, is_slow: bool = True) -> Made:
        model, inputs = super().made(is_slow=is_slow)
        return model, (*inputs, torch.tensor([5]))


for _name, _kind in {
    "rotary_copied": Rotary,
    "rotary_assigned": AssignedCache,
    "rotary_chosen": ChosenCache,
    "rotary_moved": MovedCache,
}.items():
    PAIRS[_name] = Steps(_kind, Rotary, ((1, 1, 64),))


# -- weights


class WideStep(nn.Module):
    """A step of a wide recurrent model: weights that no cache holds."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1792, 1792) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


pair("wide_step", WideStep, WideStep, (1, 1792))


# -- padding


class Encoder(nn.Module):
    """An encoder of sentences with a mask, for at most 256 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 64, padding_idx=0)
        self.query, self.key, self.value, self.out = (nn.Linear(64, 64) for _ in range(4))
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        for _ in range(2):
            scores = torch.bmm(self.query(x), self.key(x).transpose(1, 2)) * 0.1
            scores = scores + (1.0 - mask[:, None, :]) * -1e4
            x = x + self.out(torch.bmm(torch.softmax(scores, -1), self.value(x)))
            x = x + self.down(torch.relu(self.up(x)))
        return (x * mask[:, :, None]).sum(1) / math.sqrt(64)


@dataclass(frozen=True)
class Padded(Pair):
    """Sentences of 12 words, in 256 tokens or by themselves."""

    def made(self, *, is_slow: bool = True) -> Made:
        model, _ = super().made(is_slow=is_slow)
        ids = torch.zeros(1, 256 if is_slow else 12, dtype=torch.int64)
        ids[0, :12] = torch.arange(1, 13)
        return model, (ids, (ids != 0).float())


PAIRS["padded_tokens"] = Padded(Encoder, Encoder, ())
