"""Read the samples of a dataset one after the other, from a folder, a file or an iterable."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from etscope.errors import EtscopeWarning, MismatchError, MissingDataError, UsageError
from etscope.formats.torch_files.tensor_files import (
    SUFFIXES,
    TensorFile,
    read_tensor_file,
    tensor_files_in,
)

# Converts the inputs of one sample, in any form that `run` takes, to the flat inputs of a method.
FitInputs = Callable[[Any], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The inputs of one run.

    number: the position in the dataset, from 0. name: a file name, a file name and an index, or
    "#" and an index. inputs: reads the inputs, flat, as the method takes them.
    """

    number: int
    name: str
    inputs: Callable[[], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Samples to iterate over once. count: their number; None if it is not known in advance."""

    samples: Iterator[Sample]
    count: int | None


def open_dataset(source: Any, fit: FitInputs, limit: int | None = None) -> Dataset:
    """Open a dataset, at most `limit` samples of it; each sample is read when it is needed.

    source:

    - a folder: each tensor file in it (.npz, .npy, .safetensors, .pt, .pth) is a sample, in the
      order of their names (numbers count by value); it has the inputs as a file for `run`
      has them;
    - a file of arrays (.npz, .npy, .safetensors, or .pt with a tensor or a dict): the first axis of
      each array counts the samples. Sample i is ``array[i]``, or ``array[i:i+1]`` where the method
      takes one more axis than that, of length 1;
    - a .pt file with a list or tuple: each item is a sample;
    - an array, or a mapping of names to arrays: as a file of these;
    - any other iterable: each item is a sample, as `run` takes inputs (a tuple of arguments, a
      mapping of names, a tensor, or the path of a file).

    fit: converts the inputs of a sample to the flat inputs of the method.

    Raises `MissingFileError`, `MissingDataError` for a dataset without samples, `UsageError` for
    other types, and what `read_tensor_file` raises.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        found = _folder_dataset(path, fit) if path.is_dir() else _file_dataset(path, fit)
    else:
        found = _object_dataset(source, fit, "#")
    count = found.count
    if limit is not None:
        found = Dataset(islice(found.samples, limit), limit if count is None else min(count, limit))
    if count == 0:
        raise MissingDataError("the dataset has no samples")
    return found


def _folder_dataset(folder: Path, fit: FitInputs) -> Dataset:
    files = tensor_files_in(folder)
    others = sorted(
        path.name
        for path in folder.iterdir()
        if path.is_file() and path.name[0] != "." and path.suffix.lower() not in SUFFIXES
    )
    if others:
        warnings.warn(
            f"{len(others)} files in {folder} are not samples ({', '.join(others[:3])})",
            EtscopeWarning,
            stacklevel=4,
        )

    def read(path: Path) -> Sequence[Any]:
        return fit(read_tensor_file(path))

    samples = (Sample(number, path.name, partial(read, path)) for number, path in enumerate(files))
    return Dataset(samples, len(files))


def _file_dataset(path: Path, fit: FitInputs) -> Dataset:
    file = read_tensor_file(path)
    if file.content is not None:
        return _object_dataset(file.content, fit, f"{path.name} ", path)
    if not file.values:
        raise MissingDataError(f"{path} has no samples: it has no arrays")
    if len(file.values) == 1 and file.names[0] is None:
        return _stacked_dataset([file.values[0]], tuple, fit, f"{path.name} ", path)
    names, ordered = file.names, file.ordered
    return _stacked_dataset(
        list(file.values),
        lambda values: TensorFile(tuple(values), names, ordered=ordered, path=file.path),
        fit,
        f"{path.name} ",
        path,
    )


def _object_dataset(source: Any, fit: FitInputs, prefix: str, path: Path | None = None) -> Dataset:
    if isinstance(source, Mapping):
        names, arrays = list(source), list(source.values())
        return _stacked_dataset(
            arrays, lambda values: dict(zip(names, values, strict=True)), fit, prefix, path
        )
    if hasattr(source, "__array__"):
        return _stacked_dataset([source], tuple, fit, prefix, path)
    if not isinstance(source, Iterable):
        raise UsageError(
            f"{type(source).__name__} is not a dataset",
            hint="give a folder, a file of tensors, arrays, or an iterable of samples",
        )

    def fitted(item: Any) -> Sequence[Any]:
        if item is None:
            raise UsageError("None is not a sample")
        return fit(item)

    samples = (
        Sample(number, f"{prefix}{number}", partial(fitted, item))
        for number, item in enumerate(source)
    )
    return Dataset(samples, len(source) if isinstance(source, Sized) else None)


def _stacked_dataset(
    arrays: list[Any],
    join: Callable[[list[Any]], Any],
    fit: FitInputs,
    prefix: str,
    path: Path | None,
) -> Dataset:
    """Make a dataset of arrays along their first axis. join: makes a sample of an item of each."""
    shapes = [np.shape(array) if hasattr(array, "__array__") else () for array in arrays]
    lengths = {shape[0] if shape else None for shape in shapes}
    if len(lengths) != 1 or None in lengths:
        listed = ", ".join(str(list(shape)) for shape in shapes[:6])
        raise MismatchError(
            f"{path or 'the dataset'}: the first axis of each array counts the samples, but the "
            f"arrays have the shapes {listed}",
            hint="to evaluate one sample of several inputs, put its file into a folder",
        )
    (count,) = lengths
    takes_axis: bool | None = None  # for `array[i:i+1]`; the first sample shows it

    def cut(number: int, keep_axis: bool) -> Sequence[Any]:
        nonlocal takes_axis
        part: Any = slice(number, number + 1) if keep_axis else number
        inputs = fit(join([array[part] for array in arrays]))
        takes_axis = keep_axis
        return inputs

    def read(number: int) -> Sequence[Any]:
        if takes_axis is not None:
            return cut(number, takes_axis)
        try:
            return cut(number, False)
        except MismatchError as error:
            try:
                return cut(number, True)
            except MismatchError:
                raise error from None

    samples = (
        Sample(number, f"{prefix}{number}", partial(read, number)) for number in range(count or 0)
    )
    return Dataset(samples, count)
