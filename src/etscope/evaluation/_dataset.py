"""Many samples of inputs, one after the other: a folder, a file, or what can be gone through."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from etscope.errors import (
    EtscopeError,
    EtscopeWarning,
    FormatError,
    MismatchError,
    MissingDataError,
    MissingFileError,
    NumericGapError,
    UsageError,
)
from etscope.formats.torch_files.tensor_files import TensorFile, read_tensor_file

SUFFIXES = (".npz", ".npy", ".pt", ".pth", ".safetensors")

# What fits the inputs of one sample, in any form that `run` takes, to the method: flat.
Fit = Callable[[Any], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The inputs of one run. number: its place in the dataset, from 0. name: for people: a file,
    or a file and an index. inputs: reads them, flat, as the method takes them."""

    number: int
    name: str
    inputs: Callable[[], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Samples to go through once. count: how many there are, None if that shows at the end."""

    samples: Iterator[Sample]
    count: int | None


def open_dataset(source: Any, fit: Fit, limit: int | None = None) -> Dataset:
    """The samples of a dataset, at most `limit`; none is read before its turn.

    source:

    - a folder: each file of tensors in it (`SUFFIXES`) is a sample, in the order of their names,
      numbers in these by value; it has the inputs as a file for `run` has them;
    - a file of arrays (.npz, .npy, .safetensors, or .pt with a tensor or a dict): the first axis of
      each array counts the samples. Sample i is ``array[i]``, or ``array[i:i+1]`` where the method
      takes one more axis than that, of length 1;
    - a .pt file with a list or tuple: each item is a sample;
    - an array, or a mapping of names to arrays: as a file of these;
    - anything else that can be gone through: each item is a sample, as `run` takes inputs (a tuple
      of arguments, a mapping of names, a tensor, or the path of a file).

    Raises `MissingFileError`, `MissingDataError` for a dataset without samples, `UsageError` for
    what is none, and what `read_tensor_file` raises.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        found = _of_folder(path, fit) if path.is_dir() else _of_file(path, fit)
    else:
        found = _of_object(source, fit, "#")
    count = found.count
    if limit is not None:
        found = Dataset(islice(found.samples, limit), limit if count is None else min(count, limit))
    if count == 0:
        raise MissingDataError("the dataset has no samples")
    return found


def named(sample: str, error: EtscopeError) -> EtscopeError:
    """The error with the sample's name in front."""
    kind = type(error) if type(error) in _REMADE else MismatchError
    text = str(error).partition("\n  hint: ")[0]
    return kind(f"sample {sample}: {text}", hint=error.hint)


_REMADE = (
    UsageError,
    FormatError,
    MismatchError,
    MissingDataError,
    MissingFileError,
    NumericGapError,
)


# -- folders and files


def _of_folder(folder: Path, fit: Fit) -> Dataset:
    files = [path for path in folder.iterdir() if path.is_file() and path.name[0] != "."]
    samples = sorted((path for path in files if path.suffix.lower() in SUFFIXES), key=_by_number)
    if not samples:
        raise MissingDataError(
            f"the folder {folder} has no samples", hint=f"samples are files: {', '.join(SUFFIXES)}"
        )
    others = sorted(path.name for path in files if path.suffix.lower() not in SUFFIXES)
    if others:
        warnings.warn(
            f"{len(others)} files in {folder} are no samples ({', '.join(others[:3])})",
            EtscopeWarning,
            stacklevel=4,
        )
    made = (
        Sample(number, path.name, partial(_fitted, partial(_whole, path), fit))
        for number, path in enumerate(samples)
    )
    return Dataset(made, len(samples))


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Names with their numbers by value: 2 before 10."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _whole(path: Path) -> Any:
    return read_tensor_file(path)


def _of_file(path: Path, fit: Fit) -> Dataset:
    file = read_tensor_file(path)
    if file.content is not None:
        return _of_object(file.content, fit, f"{path.name} ", path)
    if not file.values:
        raise MissingDataError(f"{path} has no samples: it has no arrays")
    if len(file.values) == 1 and file.names[0] is None:
        return _stacked([file.values[0]], lambda one: (one[0],), fit, f"{path.name} ", path)

    def given(values: list[Any]) -> TensorFile:
        return TensorFile(tuple(values), file.names, ordered=file.ordered, path=file.path)

    return _stacked(list(file.values), given, fit, f"{path.name} ", path)


# -- what is in memory


def _of_object(source: Any, fit: Fit, prefix: str, path: Path | None = None) -> Dataset:
    if isinstance(source, Mapping):
        names = list(source)

        def given(values: list[Any]) -> dict[Any, Any]:
            return dict(zip(names, values, strict=True))

        return _stacked(list(source.values()), given, fit, prefix, path)
    if hasattr(source, "__array__"):
        return _stacked([source], lambda one: (one[0],), fit, prefix, path)
    if not isinstance(source, Iterable):
        raise UsageError(
            f"a {type(source).__name__} is no dataset",
            hint="give a folder, a file of tensors, arrays, or what samples can be taken from",
        )
    made = (
        Sample(number, f"{prefix}{number}", partial(_fitted, partial(_same, item), fit))
        for number, item in enumerate(source)
    )
    return Dataset(made, len(source) if isinstance(source, Sized) else None)


def _same(item: Any) -> Any:
    return item


def _stacked(
    arrays: list[Any], given: Callable[[list[Any]], Any], fit: Fit, prefix: str, path: Path | None
) -> Dataset:
    """Arrays whose first axis counts the samples."""
    shapes = [np.shape(array) if hasattr(array, "__array__") else () for array in arrays]
    lengths = {shape[0] if shape else None for shape in shapes}
    if len(lengths) != 1 or None in lengths:
        listed = ", ".join(str(list(shape)) for shape in shapes[:6])
        raise MismatchError(
            f"{path or 'the dataset'}: the first axis of each array counts the samples, and the "
            f"arrays here have the shapes {listed}",
            hint="to evaluate one sample of several inputs, put its file into a folder",
        )
    (count,) = lengths
    cut = _Cut(arrays, given, fit)
    made = (
        Sample(number, f"{prefix}{number}", partial(cut, number)) for number in range(count or 0)
    )
    return Dataset(made, count)


class _Cut:
    """Takes samples out of arrays. Whether the first axis stays, with a length of 1, is known when
    the first sample fits."""

    def __init__(self, arrays: list[Any], given: Callable[[list[Any]], Any], fit: Fit) -> None:
        self._arrays, self._given, self._fit = arrays, given, fit
        self._keeps_axis: bool | None = None

    def __call__(self, number: int) -> Sequence[Any]:
        if self._keeps_axis is not None:
            return self._fit(self._taken(number, self._keeps_axis))
        try:
            found = self._fit(self._taken(number, False))
        except MismatchError as error:
            try:
                found = self._fit(self._taken(number, True))
            except MismatchError:
                raise error from None
            self._keeps_axis = True
        else:
            self._keeps_axis = False
        return found

    def _taken(self, number: int, keeps_axis: bool) -> Any:
        part: Any = slice(number, number + 1) if keeps_axis else number
        return self._given([array[part] for array in self._arrays])


def _fitted(read: Callable[[], Any], fit: Fit) -> Sequence[Any]:
    given = read()
    if given is None:
        raise UsageError("None is no sample")
    return fit(given)


__all__ = ["SUFFIXES", "Dataset", "Fit", "Sample", "named", "open_dataset"]
