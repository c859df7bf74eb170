"""numpy arrays to torch tensors, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

# Tensors over memory that is somebody else's: of a mapped file, without a copy.


# numpy's names of types that torch reads by their bits only.
_BITS: dict[str, tuple[type[np.generic], torch.dtype]] = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e5m2": (np.uint8, torch.float8_e5m2),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e5m2fnuz": (np.uint8, torch.float8_e5m2fnuz),
    "float8_e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
}


def tensor_over(array: npt.NDArray[Any]) -> torch.Tensor:
    """The tensor that shares a writable array's memory, with its shape, strides and dtype."""
    bits = _BITS.get(array.dtype.name)
    if bits is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(bits[0])).view(bits[1])


# Matrix products add up in another order where memory is aligned otherwise. numpy and torch give at
# least this much.
_ALIGNMENT = 16

# numpy has no such types, and torch reads none of ml_dtypes': the bits go through integers.
_AS_BITS = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e5m2": (np.uint8, torch.float8_e5m2),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e5m2fnuz": (np.uint8, torch.float8_e5m2fnuz),
    "float8_e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
}


def tensor_from_numpy(array: npt.NDArray[Any]) -> torch.Tensor:
    """A tensor of its own memory with the array's values, shape, strides and dtype."""
    bits = _AS_BITS.get(array.dtype.name)
    if bits is not None:
        return tensor_from_numpy(array.view(bits[0])).view(bits[1])
    if array.size == 0:  # numpy's strides for these are not torch's
        return torch.from_numpy(np.empty(0, array.dtype)).reshape(array.shape)
    # "K" keeps the order of dimensions, so a channels-last tensor stays one.
    return torch.from_numpy(array.copy(order="K"))


class _Writable:
    """Says of an array's memory that it can be written to, as tensors are never read-only."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def tensor_sharing(array: npt.NDArray[Any]) -> torch.Tensor:
    """As `tensor_from_numpy`, but over the array's own memory if torch can take that and computes
    the same from it: whatever is written to the tensor is written there, and ends the process if it
    is a read-only file."""
    bits = _AS_BITS.get(array.dtype.name)
    if bits is not None:
        return tensor_sharing(array.view(bits[0])).view(bits[1])
    if array.size == 0 or array.ctypes.data % _ALIGNMENT:
        return tensor_from_numpy(array)
    return torch.from_numpy(np.asarray(_Writable(array)))


def numpy_from_tensor(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """An array with the tensor's values, shape, strides and dtype; it may share the memory."""
    import ml_dtypes

    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    name = str(plain.dtype).removeprefix("torch.")
    if name in _AS_BITS:
        bits = torch.int16 if plain.element_size() == 2 else torch.uint8
        array: npt.NDArray[Any] = plain.view(bits).numpy()
        return array.view(getattr(ml_dtypes, name))
    return np.asarray(plain)


def torch_values(values: Sequence[Any]) -> list[Any]:
    """Numpy arrays as torch tensors, the rest as it is."""
    return [tensor_from_numpy(v) if isinstance(v, np.ndarray) else v for v in values]


def numpy_value(value: Any) -> Any:
    """A torch tensor as a numpy array of its own memory, the rest as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return np.array(numpy_from_tensor(value), order="K")


# Weights that stay in the file of a record, and are read when a node uses them.


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
