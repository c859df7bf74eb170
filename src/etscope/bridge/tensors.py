"""Conversions between numpy arrays and torch tensors, and weights that stay in a mapped file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch

from etscope.formats.program.scalar_type import as_numpy

# numpy lacks these types, and torch does not read ml_dtypes': the bits go through integers.
_BITS: dict[str, tuple[type[np.generic], torch.dtype]] = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e5m2": (np.uint8, torch.float8_e5m2),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e5m2fnuz": (np.uint8, torch.float8_e5m2fnuz),
    "float8_e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
}
# Matrix products add up in another order where memory is aligned otherwise. numpy and torch give at
# least this much.
_ALIGNMENT = 16


def tensor_from_numpy(array: npt.NDArray[Any]) -> torch.Tensor:
    """Copy an array to a tensor with its values, shape, strides and dtype."""

    def copied(one: npt.NDArray[Any]) -> torch.Tensor:
        if one.size == 0:  # numpy's strides for these are not torch's
            return torch.from_numpy(np.empty(0, one.dtype)).reshape(one.shape)
        # "K" keeps the order of dimensions, so a channels-last tensor stays one.
        return torch.from_numpy(one.copy(order="K"))

    return _converted(array, copied)


def tensor_over(array: npt.NDArray[Any]) -> torch.Tensor:
    """Return a tensor over a writable array's memory, with its shape, strides and dtype."""
    return _converted(array, torch.from_numpy)


def tensor_sharing(array: npt.NDArray[Any]) -> torch.Tensor:
    """Return a tensor over an array's memory if torch can take that and computes the same from it,
    else a copy. Nothing may write to it: the memory may be a file's."""
    if array.size == 0 or array.ctypes.data % _ALIGNMENT:
        return tensor_from_numpy(array)
    return _converted(array, lambda one: torch.from_numpy(np.asarray(_Writable(one))))


@cache  # a dtype computes its name anew at each call
def _bits_of(dtype: np.dtype[Any]) -> tuple[type[np.generic], torch.dtype] | None:
    return _BITS.get(dtype.name)


def _converted(
    array: npt.NDArray[Any], convert: Callable[[npt.NDArray[Any]], torch.Tensor]
) -> torch.Tensor:
    bits = _bits_of(array.dtype)
    return convert(array) if bits is None else convert(array.view(bits[0])).view(bits[1])


class _Writable:
    """An array's memory declared writable, as torch has no read-only tensors."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def numpy_from_tensor(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return an array with the tensor's values, shape, strides and dtype; it may share the
    memory."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if str(plain.dtype).removeprefix("torch.") in _BITS:
        return as_numpy(plain)
    return np.asarray(plain)


def torch_values(values: Sequence[Any]) -> list[Any]:
    """Convert numpy arrays to torch tensors; return other values unchanged."""
    return [torch_value(value) for value in values]


def torch_value(value: Any) -> Any:
    """Convert a numpy array to a torch tensor with separate memory; return other values
    unchanged."""
    return tensor_from_numpy(value) if isinstance(value, np.ndarray) else value


def numpy_value(value: Any) -> Any:
    """Convert a torch tensor to a numpy array with separate memory; return other values
    unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    return np.array(numpy_from_tensor(value), order="K")


class StoredWeights(Mapping[str, torch.Tensor]):
    """Tensors by name, from the arrays of a mapped file. Each look-up makes one with separate
    memory.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._arrays = arrays
        self._shared: WeakValueDictionary[str, torch.Tensor] = WeakValueDictionary()

    def __getitem__(self, name: str) -> torch.Tensor:
        return tensor_from_numpy(self._arrays[name])

    def shared(self, name: str) -> torch.Tensor:
        """Return a tensor over the file's own memory, if torch can take that and computes the same
        from it. Writing to it would crash the process. While one is in use, another look-up returns
        the same tensor.
        """
        found = self._shared.get(name)
        if found is None:
            self._shared[name] = found = tensor_sharing(self._arrays[name])
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without making it."""
        return tuple(self._arrays[name].shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def stand_ins(self) -> dict[str, torch.Tensor]:
        """Make tensors of the same types and shapes, each with memory for one element."""
        return {
            name: tensor_from_numpy(np.zeros((), array.dtype)).expand(array.shape)
            for name, array in self._arrays.items()
        }


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A weight of `StoredWeights` that has not been read yet. shared: True if nothing will write to
    it, so it can stay in the memory-mapped file.
    """

    weights: StoredWeights
    name: str
    shared: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return self.weights.shape(self.name)

    def read(self) -> torch.Tensor:
        """Make the tensor."""
        return self.weights.shared(self.name) if self.shared else self.weights[self.name]
