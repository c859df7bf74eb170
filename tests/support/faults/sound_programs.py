"""Sound programs by seed, to be diagnosed: no operator of theirs may be called wrong.

Each draws its blocks, sizes, inputs and arithmetic. Many compute what is hard to judge: terms that
cancel, numbers of many sizes, values at ties of quantization.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from benchmarks.planted_faults import GROUPS, Group, lowered, ran
from etscope.analysis.numerics.rows import Numerics

Function = Callable[[Any, torch.Tensor], torch.Tensor]


class Part(nn.Module):
    """A function of a tensor, with the modules that it uses."""

    def __init__(self, function: Function, **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


class Chain(nn.Module):
    """Parts one after the other; each result is an output, too, of some models."""

    def __init__(self, parts: list[Part], all_outputs: bool) -> None:
        super().__init__()
        self.parts, self.all_outputs = nn.ModuleList(parts), all_outputs

    def forward(self, x: torch.Tensor) -> Any:
        found = []
        for part in self.parts:
            x = part(x)
            found.append(x)
        return tuple(found) if self.all_outputs else x


# -- parts, of tensors with `width` numbers in the last dimension


def _feed_forward(width: int, chance: random.Random) -> Part:
    act = chance.choice(
        [torch.relu, functional.gelu, functional.silu, torch.tanh, functional.hardswish]
    )
    return Part(
        lambda m, x: x + m.down(act(m.up(x))),
        up=nn.Linear(width, 2 * width),
        down=nn.Linear(2 * width, width),
    )


def _gated(width: int, chance: random.Random) -> Part:
    return Part(
        lambda m, x: x + m.down(functional.silu(m.gate(x)) * m.up(x)),
        up=nn.Linear(width, 2 * width, bias=False),
        gate=nn.Linear(width, 2 * width, bias=False),
        down=nn.Linear(2 * width, width, bias=False),
    )


def _attention(width: int, chance: random.Random) -> Part:
    heads, sharp = chance.choice([1, 2, 4]), chance.choice([1.0, 1.0, 8.0])
    is_causal = chance.random() < 0.5

    def attend(m: Any, x: torch.Tensor) -> torch.Tensor:
        tokens = x.shape[-2]
        query, key, value = (
            one(x).view(-1, tokens, heads, width // heads).transpose(1, 2)
            for one in (m.query, m.key, m.value)
        )
        scores = query @ key.transpose(-1, -2) * (sharp / (width // heads) ** 0.5)
        if is_causal:
            scores = scores + torch.full((tokens, tokens), -1e4, dtype=x.dtype).triu(1)
        y = torch.softmax(scores, -1) @ value
        return x + m.out(y.transpose(1, 2).reshape(x.shape))

    return Part(attend, **{n: nn.Linear(width, width) for n in ("query", "key", "value", "out")})


def _layer_norm(width: int, chance: random.Random) -> Part:
    shift = chance.choice([0.0, 0.0, 30.0, 1000.0])
    return Part(lambda m, x: m.norm(x + shift), norm=nn.LayerNorm(width))


def _written_norm(width: int, chance: random.Random) -> Part:
    epsilon = chance.choice([1e-5, 1e-6])

    def norm(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = x - x.mean(-1, keepdim=True)
        return m.layer(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon))

    return Part(norm, layer=nn.Linear(width, width))


def _rms_norm(width: int, chance: random.Random) -> Part:
    return Part(
        lambda m, x: m.layer(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)),
        layer=nn.Linear(width, width, bias=False),
    )


def _centred(width: int, chance: random.Random) -> Part:
    """Means of what was centred before are rounding alone."""
    axis, size = chance.choice([-1, -2]), chance.choice([1.0, 100.0, 1e4])

    def centred(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * size
        y = y - y.mean(axis, keepdim=True)
        return x + y.mean(axis, keepdim=True) + y.sum(axis, keepdim=True)

    return Part(centred)


def _softmax_less_one(width: int, chance: random.Random) -> Part:
    sharp = chance.choice([1.0, 20.0])
    return Part(lambda m, x: x + (torch.softmax(x * sharp, -1).sum(-1, keepdim=True) - 1))


def _near_one(width: int, chance: random.Random) -> Part:
    return Part(lambda m, x: m.layer(x) + (torch.exp(x * 1e-3) - 1), layer=nn.Linear(width, width))


def _large_that_cancel(width: int, chance: random.Random) -> Part:
    size = chance.choice([1e2, 1e4, 1e6])

    def cancel(m: Any, x: torch.Tensor) -> torch.Tensor:
        signs = torch.ones(x.shape[-1], dtype=x.dtype)
        signs[1::2] = -1
        return x + (x + size * signs).mean(-1, keepdim=True)

    return Part(cancel)


def _differences(width: int, chance: random.Random) -> Part:
    """A product whose terms cancel: each row of the matrix adds up to 0."""
    layer = nn.Linear(width, width, bias=False)
    with torch.no_grad():
        layer.weight -= layer.weight.mean(1, keepdim=True)
    shift = chance.choice([0.0, 10.0, 1000.0])
    return Part(lambda m, x: x + m.layer(x * 0.01 + shift), layer=layer)


def _variance(width: int, chance: random.Random) -> Part:
    shift = chance.choice([0.0, 3.0])
    return Part(lambda m, x: x + (x + shift).var(-1, keepdim=True, unbiased=chance.random() < 0.5))


def _reductions(width: int, chance: random.Random) -> Part:
    axis = chance.choice([-1, -2])
    return Part(
        lambda m, x: x * torch.sigmoid(x.sum(axis, keepdim=True)) + x.amax(axis, keepdim=True) * 0.1
    )


def _log_softmax(width: int, chance: random.Random) -> Part:
    return Part(lambda m, x: torch.log_softmax(m.layer(x) * 5, -1), layer=nn.Linear(width, width))


def _wide_channels(width: int, chance: random.Random) -> Part:
    layer = nn.Linear(width, width)
    power = chance.choice([2.0, 4.0])
    with torch.no_grad():
        layer.weight *= 10 ** torch.linspace(-power, power, width)[:, None]
    return Part(lambda m, x: x + torch.tanh(m.layer(x)), layer=layer)


def _one_large(width: int, chance: random.Random) -> Part:
    layer = nn.Linear(width, width)
    with torch.no_grad():
        layer.weight[3] *= 1000.0
    return Part(lambda m, x: torch.clamp(m.layer(x), -20, 20), layer=layer)


def _on_a_grid(width: int, chance: random.Random) -> Part:
    """Weights and biases that are whole multiples of a power of 2: sums at ties are common."""
    layer = nn.Linear(width, width)
    step = 2.0 ** -chance.randint(2, 5)
    with torch.no_grad():
        layer.weight.copy_((layer.weight * 4 / step).round() * step)
        layer.bias.copy_((layer.bias / step).round() * step)
    return Part(lambda m, x: m.layer(torch.clamp(x, -8, 8)), layer=layer)


def _turned(width: int, chance: random.Random) -> Part:
    def turned(m: Any, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * 0.1
        one, other = x[..., :half], x[..., half:]
        cos, sin = torch.cos(angles), torch.sin(angles)
        return torch.cat([one * cos - other * sin, one * sin + other * cos], -1)

    return Part(turned)


SEQUENCE = (
    _feed_forward, _gated, _attention, _layer_norm, _written_norm, _rms_norm, _centred,
    _softmax_less_one, _near_one, _large_that_cancel, _differences, _variance, _reductions,
    _log_softmax, _wide_channels, _one_large, _on_a_grid, _turned,
)  # fmt: skip


# -- parts, of images with `width` channels


def _convolution(width: int, chance: random.Random) -> Part:
    kernel, act = chance.choice([1, 3, 5]), chance.choice([torch.relu, functional.relu6])
    groups = chance.choice([1, 1, width])
    layer = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=groups)
    return Part(lambda m, x: act(m.layer(x)), layer=layer)


def _residual(width: int, chance: random.Random) -> Part:
    one, other = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
    return Part(lambda m, x: torch.relu(x + m.other(torch.relu(m.one(x)))), one=one, other=other)


def _batch_norm(width: int, chance: random.Random) -> Part:
    norm = nn.BatchNorm2d(width)
    nn.init.uniform_(norm.running_mean, -0.5, 0.5)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return Part(
        lambda m, x: m.norm(m.layer(x)), layer=nn.Conv2d(width, width, 3, padding=1), norm=norm
    )


def _squeezed(width: int, chance: random.Random) -> Part:
    return Part(
        lambda m, x: x * torch.sigmoid(m.layer(x.mean((2, 3), keepdim=True))),
        layer=nn.Conv2d(width, width, 1),
    )


def _group_norm(width: int, chance: random.Random) -> Part:
    shift = chance.choice([0.0, 100.0])
    return Part(lambda m, x: m.norm(x + shift), norm=nn.GroupNorm(4, width))


def _pooled(width: int, chance: random.Random) -> Part:
    pool = chance.choice([functional.avg_pool2d, functional.max_pool2d])
    return Part(lambda m, x: pool(x, 3, 1, 1))


def _instance_centred(width: int, chance: random.Random) -> Part:
    size = chance.choice([1.0, 1e3])

    def centred(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * size
        y = y - y.mean((2, 3), keepdim=True)
        return x + y.mean((2, 3), keepdim=True) / size

    return Part(centred)


def _edges(width: int, chance: random.Random) -> Part:
    """A convolution whose kernels add up to 0, over a bright image."""
    layer = nn.Conv2d(width, width, 3, padding=1, bias=False)
    with torch.no_grad():
        layer.weight -= layer.weight.mean((1, 2, 3), keepdim=True)
    return Part(lambda m, x: m.layer(x + 50.0), layer=layer)


def _upsampled(width: int, chance: random.Random) -> Part:
    return Part(lambda m, x: functional.interpolate(functional.avg_pool2d(x, 2), scale_factor=2.0))


IMAGE = (
    _convolution, _residual, _batch_norm, _squeezed, _group_norm, _pooled, _instance_centred,
    _edges, _upsampled,
)  # fmt: skip

RUNS = 3


@dataclass(frozen=True)
class Sound:
    """A program by its seed. arithmetic: of `GROUPS`."""

    seed: int
    arithmetic: str
    parts: tuple[str, ...]
    model: nn.Module
    inputs: tuple[torch.Tensor, ...]  # one for each run

    def __str__(self) -> str:
        shape = "x".join(map(str, self.inputs[0].shape))
        return f"{self.seed} {self.arithmetic} {shape} {' '.join(self.parts)}"

    def numerics(self) -> Iterator[tuple[bool | None, Numerics]]:
        """Export and run the program; yield whether each run is right, and its diagnosis. Some are
        not: XNNPACK's `avg_pool2d` of int8 in float (seed 114), norms that lose digits (109, 282).
        None of a run that other roundings change as much, so neither verdict is wrong: a mean of
        what was centred (385), a zero point at a tie in each row (407).
        """
        group: Group = GROUPS[self.arithmetic]
        with torch.no_grad():
            program, first = group.make(self.model, self.inputs[:1])
            exported = lowered(group, program, first)
            for one in self.inputs:
                given = (one.to(first[0].dtype),)
                outputs, found = ran(exported, exported.record, given)
                expected = tree_leaves(program.module()(*given))
                # Taps are outputs, too, after the model's own.
                is_right: bool | None = all(map(_is_near, expected, outputs))
                if not is_right and _is_rounding(program.module(), given, expected, outputs):
                    is_right = None
                yield is_right, found


def _is_near(expected: torch.Tensor, found: Any) -> bool:
    """Is the error less than a tenth? Both forms of int8 and of half differ by less."""
    error = expected.double() - torch.as_tensor(found).double()
    return bool(error.norm() <= 0.1 * expected.double().norm())


class _Rounded(torch.fx.Interpreter):
    """Rounds each result otherwise, one by one and all to one side: a scale of saturated numbers
    has its zero point at a tie."""

    def run_node(self, node: torch.fx.Node) -> Any:
        value = super().run_node(node)
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            return value
        if not value.is_floating_point() or not value.numel():
            return value
        epsilon = 4 * torch.finfo(value.dtype).eps
        side = 4 * value.abs().max() * (2 * torch.randint(2, ()).to(value) - 1)
        return value + epsilon * (value * torch.randn(value.shape).to(value) + side)


def _is_rounding(model: Any, given: Any, expected: list[torch.Tensor], outputs: Any) -> bool:
    """Do roundings move PyTorch's outputs about as far as the runtime's are?"""
    torch.manual_seed(0)
    runs = [tree_leaves(_Rounded(model).run(*given)) for _ in range(8)]

    def off(one: torch.Tensor, other: Any) -> float:
        return float((one.double() - torch.as_tensor(other).double()).norm())

    # More outputs of the program are taps.
    return all(
        _is_near(one, outputs[at])
        or off(one, outputs[at]) <= 5 * max(off(one, r[at]) for r in runs)
        for at, one in enumerate(expected)
    )


def sound(seed: int, arithmetic: str | None = None) -> Sound:
    """Draw a program."""
    chance = random.Random(seed)
    arithmetic = arithmetic or list(GROUPS)[seed % len(GROUPS)]
    is_image = chance.random() < (0.5 if "int8 by" in arithmetic else 0.25)
    if "da" in arithmetic or "dynamic" in arithmetic:
        is_image = False
    kinds = IMAGE if is_image else SEQUENCE
    width = chance.choice([16, 32] if is_image else [32, 64, 64, 128, 256])
    length = chance.choice([8, 16, 24] if is_image else [1, 7, 32, 128, 128, 200])
    torch.manual_seed(seed)
    drawn = [chance.choice(kinds) for _ in range(chance.randint(2, 5))]
    if not is_image and "da" in arithmetic:  # something is quantized
        drawn[0] = chance.choice([_feed_forward, _gated, _attention])
    model = Chain([kind(width, chance) for kind in drawn], chance.random() < 0.3).eval()
    shape = (RUNS, 1, width, length, length) if is_image else (RUNS, 1, length, width)
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    if chance.random() < 0.3:  # on a grid, of few bits
        numbers = (numbers * 8).round() / 8
    numbers = numbers * chance.choice([1.0, 1.0, 1.0, 10.0, 1e-3]) + chance.choice([0.0, 0.0, 2.0])
    names = tuple(kind.__name__.strip("_") for kind in drawn)
    return Sound(seed, arithmetic, names, model, tuple(numbers))


LARGE_CALLS = "8da4w, whole calls"


class _Block(nn.Module):
    """Attention and a feed-forward network beside each other, of one norm, as in Phi."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        query, key, value = self.query(normed), self.key(normed), self.value(normed)
        y = torch.softmax(query @ key.transpose(-1, -2) / 16, -1) @ value
        return x + self.out(y) + self.down(functional.gelu(self.up(normed)))


def large_calls() -> nn.Module:
    """A model whose calls have 250,000 quantized numbers at 128 tokens."""
    torch.manual_seed(0)
    return _Block(256, 512).eval()
