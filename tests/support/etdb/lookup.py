"""A model that looks words up, and fails on a word that it does not know."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from etscope.export import export

KNOWN, UNKNOWN = [1, 2, 9], [1, 2, 99]


class Lookup(nn.Module):
    """Names of words next to numbers; the lookup is the third instruction."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(6, 4)
        self.words = nn.Embedding(10, 4)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        scaled = self.scale(x)
        words = self.words(index)
        return torch.relu(scaled + words)


def write_lookup(folder: Path) -> None:
    """Export it to model.pte and model.etrecord; inputs with known words in known.npz, with an
    unknown one in unknown.npz."""
    torch.manual_seed(0)
    export(Lookup().eval(), (torch.randn(3, 6), torch.tensor([1, 2, 3]))).save(
        folder, "model", bundle=False
    )
    numbers = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)
    np.savez(folder / "known.npz", numbers, np.array(KNOWN))
    np.savez(folder / "unknown.npz", numbers, np.array(UNKNOWN))
