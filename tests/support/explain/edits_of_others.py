"""More pairs of `edits`, written without a look at the rules of `etscope explain`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tests.support.explain.edits import Pair

PAIRS: dict[str, Any] = {}


def pair(name: str, slow: type[nn.Module], fast: type[nn.Module], *sizes: tuple[int, ...]) -> None:
    PAIRS[name] = Pair(slow, fast, sizes)


# -- spotting keywords


class Keywords(nn.Module):
    """A recurrent network over frames of sound, with one product for the gates of all frames."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.kept = nn.Linear(40, 192), nn.Linear(64, 192, bias=False)
        self.head = nn.Linear(64, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, read = torch.zeros(1, 64), self.read(x)
        for at in range(24):
            gates = torch.sigmoid(read[:, at] + self.kept(state))
            state = gates[:, :64] * state + gates[:, 64:128] * torch.tanh(gates[:, 128:])
        return self.head(state)


class KeywordsEachTime(Keywords):
    """A product for each gate of each frame."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(1, 64)
        for at in range(24):
            gates = []
            for i in (0, 64, 128):
                read = F.linear(x[:, at], self.read.weight[i : i + 64], self.read.bias[i : i + 64])
                kept = F.linear(state, self.kept.weight[i : i + 64])
                gates.append(torch.sigmoid(read + kept))
            state = gates[0] * state + gates[1] * torch.tanh(gates[2])
        return self.head(state)


pair("keywords_gates", KeywordsEachTime, Keywords, (1, 24, 40))


# -- the style of images


class Styled(nn.Module):
    """Residual blocks of a style transfer network, each value normed by image and channel."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(24, 24, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.InstanceNorm2d(24, affine=True) for _ in range(3))

    def normed(self, x: torch.Tensor, norm: nn.Module) -> torch.Tensor:
        x = x - x.mean((2, 3), keepdim=True)
        spread = torch.rsqrt((x * x).mean((2, 3), keepdim=True) + 1e-5)
        return x * spread * norm.weight[:, None, None] + norm.bias[:, None, None]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + torch.relu(self.normed(conv(x), norm))
        return x


class InstanceNormed(Styled):
    def normed(self, x: torch.Tensor, norm: nn.Module) -> torch.Tensor:
        return norm(x)


pair("style_norm", InstanceNormed, Styled, (1, 24, 64, 64))


# -- recommendations


class Liked(nn.Module):
    """A recommender: vectors of what somebody liked, and a few matrices over them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(2000, 32) * 0.1)
        self.deep = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.head = nn.Linear(32, 1)

    def vectors(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, self.table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ids = (torch.sigmoid(x) * 1999.0).long()
        return self.head(self.deep(self.vectors(ids)))


class LikedOneHot(Liked):
    def vectors(self, ids: torch.Tensor) -> torch.Tensor:
        return F.one_hot(ids, 2000).float() @ self.table


pair("recommender_one_hot", LikedOneHot, Liked, (1, 24))


# -- captions


class Captions(nn.Module):
    """A decoder of captions: the next word after those that are there."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(64, 64) for _ in range(4))
        self.head = nn.Linear(64, 3000)

    def words(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x[:, -1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.bmm(self.query(x), self.key(x).transpose(1, 2)) * 0.125
        x = x + self.out(torch.bmm(torch.softmax(scores, -1), self.value(x)))
        return torch.softmax(self.words(x), -1)


class CaptionsOfAll(Captions):
    def words(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)[:, -1:]


pair("captions_of_all", CaptionsOfAll, Captions, (1, 48, 64))


# -- convolutions over time


class Causal(nn.Module):
    """A temporal convolutional network, with norms of weights."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(64, 64, (3, 1), padding=(2**i, 0), dilation=(2**i, 1)) for i in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = x + torch.relu(conv(x))
        return x


class CausalNormed(Causal):
    def __init__(self) -> None:
        super().__init__()
        for conv in self.convs:
            weight_norm(conv)


pair("temporal_weight_norm", CausalNormed, Causal, (1, 64, 100, 1))


# -- capsules


class Capsules(nn.Module):
    """Layers of capsules, each a vector of length one."""

    def __init__(self) -> None:
        super().__init__()
        self.votes = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))

    def unit(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) * 32.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for votes in self.votes:
            x = self.unit(votes(x))
        return x


class CapsulesNormalized(Capsules):
    def unit(self, x: torch.Tensor) -> torch.Tensor:
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


pair("capsules_length", CapsulesNormalized, Capsules, (1, 300, 32))


# -- depths of images


class Depths(nn.Module):
    """An encoder of depths, which halves an image twice."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, 2, 1) for _ in range(2))
        self.head = nn.Conv2d(16, 1, 1)

    def halved(self, x: torch.Tensor, conv: nn.Conv2d) -> torch.Tensor:
        return torch.relu(conv(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = self.halved(x, conv)
        return self.head(x)


class DepthsOfEachOther(Depths):
    def halved(self, x: torch.Tensor, conv: nn.Conv2d) -> torch.Tensor:
        x = F.conv2d(x, conv.weight, conv.bias, padding=1)
        return torch.relu(x)[:, :, ::2, ::2]


pair("depth_slices", DepthsOfEachOther, Depths, (1, 16, 96, 96))


# -- attention to some


class Looking(nn.Module):
    """An encoder of time series, of which each place looks at those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(48, 48) for _ in range(3))
        later = torch.triu(torch.ones(128, 128), 1)
        self.register_buffer("later", later.bool()[None])
        self.register_buffer("hidden", later[None] * -1e4)

    def masked(self, scores: torch.Tensor) -> torch.Tensor:
        return scores + self.hidden

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            scores = torch.bmm(self.query(x), self.key(x).transpose(1, 2)) * 0.15
            x = x + torch.bmm(torch.softmax(self.masked(scores), -1), self.value(x))
        return x


class LookingFilled(Looking):
    def masked(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(self.later, -1e4)


pair("series_masked_fill", LookingFilled, Looking, (1, 128, 48))


# -- paths beside each other


class Paths(nn.Module):
    """Blocks of a ResNeXt, with a convolution of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(64, 32, 1), nn.Conv2d(32, 64, 1)
        self.groups = nn.Conv2d(32, 32, 3, padding=1, groups=8)

    def grouped(self, x: torch.Tensor) -> torch.Tensor:
        return self.groups(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x + self.up(torch.relu(self.grouped(self.down(x))))
        return x


class PathsInTurn(Paths):
    def grouped(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.groups.weight
        each = range(0, 32, 4)
        found = [F.conv2d(x[:, i : i + 4], weights[i : i + 4], padding=1) for i in each]
        return torch.cat(found, 1) + self.groups.bias[:, None, None]


pair("resnext_paths", PathsInTurn, Paths, (1, 64, 28, 28))


# -- samples


class Sampled(nn.Module):
    """A decoder of a variational autoencoder, whose values are all positive."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(96, 96) for _ in range(3))

    def positive(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(torch.exp(x) + 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.positive(layer(x))
        return x


class SampledSoftly(Sampled):
    def positive(self, x: torch.Tensor) -> torch.Tensor:
        return F.softplus(x)


pair("samples_softplus", SampledSoftly, Sampled, (64, 96))
