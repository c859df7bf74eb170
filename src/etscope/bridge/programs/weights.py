"""Weights that stay in the file of a record, and are read when a node uses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from etscope.bridge.tensors import tensor_from_numpy, tensor_sharing


class StoredWeights(Mapping[str, torch.Tensor]):
    """Tensors by name over arrays of a mapped file; each look-up makes one, of its own memory."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> torch.Tensor:
        return tensor_from_numpy(self._arrays[name])

    def shared(self, name: str) -> torch.Tensor:
        """A tensor over the file's own memory, where that is possible: not to be written to."""
        return tensor_sharing(self._arrays[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def stand_ins(self) -> dict[str, torch.Tensor]:
        """Tensors of the same types and shapes, each with memory for one element."""
        return {
            name: tensor_from_numpy(np.zeros((), array.dtype)).expand(array.shape)
            for name, array in self._arrays.items()
        }


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """One of them, not read yet. shared: whether nothing will write to it, so that it can stay in
    the file's memory."""

    weights: StoredWeights
    name: str
    shared: bool = False

    def read(self) -> torch.Tensor:
        """The tensor."""
        return self.weights.shared(self.name) if self.shared else self.weights[self.name]
