"""Generated models, and faults that are planted into what a device runs of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.support.faults.blocks import IMAGE, SEQUENCE, Block, Embedded, ImageHead, SequenceHead

WIDTH, SIZE = 8, 8  # both of images and of sequences: what is square can be transposed unseen


class Chain(nn.Module):
    """Blocks one after the other."""

    def __init__(self, parts: list[Block]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


@dataclass(frozen=True)
class Fault:
    """A fault: in which block of the chain, and which of its faults."""

    block: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} in block {self.block}"


@dataclass(frozen=True)
class Case:
    """A generated graph, with the fault that is planted into it."""

    seed: int
    kinds: tuple[type[Block], ...]
    fault: Fault

    def __str__(self) -> str:
        names = "-".join(kind.__name__ for kind in self.kinds)
        return f"{self.seed}-{names}-{self.fault.block}-{self.fault.name}"

    def model(self) -> Chain:
        """The model without fault; the same each time."""
        torch.manual_seed(self.seed)
        parts = [Embedded(WIDTH, SIZE) if kind is Embedded else kind(WIDTH) for kind in self.kinds]
        model = Chain(parts).eval()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean, -0.5, 0.5)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
        return model

    def faulty(self) -> Chain:
        """The model with the fault."""
        model = self.model()
        part: Any = model.parts[self.fault.block]
        part.FAULTS[self.fault.name](part)
        return model

    def inputs(self) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(self.seed)
        if self.kinds[-1] is ImageHead:
            return (torch.randn(1, WIDTH, SIZE, SIZE, generator=generator),)
        if self.kinds[0] is Embedded:
            return (torch.randperm(SIZE, generator=generator).unsqueeze(0),)
        return (torch.randn(1, SIZE, WIDTH, generator=generator),)

    @property
    def line(self) -> int:
        """The line of Python that the fault is in."""
        return self.kinds[self.fault.block].line(self.fault.name)


def cases(count: int) -> Iterator[Case]:
    """Seeded cases, in which each fault of each block has its turn."""
    turns = [(kind, name) for kind in (*IMAGE, *SEQUENCE) for name in kind.FAULTS]
    turns += [(kind, name) for kind in (Embedded, ImageHead, SequenceHead) for name in kind.FAULTS]
    random.Random(0).shuffle(turns)
    for seed in range(count):
        chance = random.Random(seed)
        kind, name = turns[seed % len(turns)]
        is_image = kind in IMAGE or kind is ImageHead
        inner = [
            chance.choice(IMAGE if is_image else SEQUENCE) for _ in range(chance.randint(1, 3))
        ]
        kinds: list[type[Block]] = [*inner, ImageHead if is_image else SequenceHead]
        if kind is Embedded or (not is_image and chance.random() < 0.5):
            kinds.insert(0, Embedded)
        places = [at for at, other in enumerate(kinds) if other is kind]
        if not places:
            places = [chance.randrange(1 if kinds[0] is Embedded else 0, len(kinds))]
            kinds.insert(places[0], kind)
        yield Case(seed, tuple(kinds), Fault(chance.choice(places), name))
