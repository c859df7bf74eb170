"""The right classes of samples: of an array, or of a file of numbers or of lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from etscope.errors import FormatError, MismatchError, MissingFileError, UsageError
from etscope.evaluation._dataset import Sample
from etscope.formats.torch_files.tensor_files import read_tensor_file

_TEXT = (".txt", ".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class Labels:
    """By the sample's number, or by its name: one class, or one for each row of its scores."""

    by_number: Sequence[tuple[int, ...]] = ()
    by_name: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def of(self, sample: Sample) -> tuple[int, ...]:
        """Raises `MismatchError` for a sample without a label."""
        if self.by_name:
            for name in (sample.name, PurePath(sample.name).stem):
                if name in self.by_name:
                    return self.by_name[name]
        elif sample.number < len(self.by_number):
            return self.by_number[sample.number]
        raise MismatchError(
            "there is no label for it",
            hint="labels are in the order of the samples, or lines of name,label",
        )

    def check(self, count: int | None, limit: int | None) -> None:
        """Raise `MismatchError` for labels that are not as many as the samples."""
        if count is None or self.by_name:
            return
        if len(self.by_number) != count and limit is None:
            raise MismatchError(
                f"there are {len(self.by_number)} labels, and the dataset has {count} samples"
            )


def read_labels(source: Any) -> Labels:
    """Labels from a file or from numbers in memory.

    source: a path, or integers in the order of the samples: of shape [samples], or [samples, rows]
    where a sample has several rows of scores. Files of tensors (.npy, .npz, .pt, .safetensors) hold
    such an array; in text (.txt, .csv, .tsv) each line is a label, or a sample's name and its label
    with a comma, a semicolon or a tab between them. A first line without a number is a heading.

    Raises `MissingFileError`, `FormatError` for a broken file, `UsageError` for what are no labels.
    """
    if not isinstance(source, (str, os.PathLike)):
        return Labels(_rows(source, "the labels"))
    path = Path(source)
    if path.suffix.lower() in _TEXT:
        return _of_text(path)
    file = read_tensor_file(path)
    if len(file.values) != 1 and not _are_numbers(file.content):
        raise FormatError(f"labels are one array, and this file has {len(file.values)}", path=path)
    return Labels(_rows(file.values[0] if len(file.values) == 1 else file.content, str(path)))


def _are_numbers(content: Any) -> bool:
    return isinstance(content, (list, tuple)) and all(isinstance(one, int) for one in content)


def _rows(source: Any, what: str) -> list[tuple[int, ...]]:
    if isinstance(source, Iterable) and not hasattr(source, "__array__"):
        source = list(source)
    try:
        array = np.asarray(source)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} are not numbers: {error}") from error
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
        raise UsageError(
            f"{what} have the type {array.dtype} and the shape {list(array.shape)}",
            hint="labels are integers of shape [samples] or [samples, rows]",
        )
    return [tuple(row) for row in array.reshape(len(array), -1).tolist()]


def _of_text(path: Path) -> Labels:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise MissingFileError(f"labels file not found: {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"not a file of labels: {error}", path=path) from error
    cells = [(number, _cells(line)) for number, line in enumerate(lines, 1) if line.strip()]
    if cells and _number(cells[0][1][-1]) is None:
        cells = cells[1:]
    by_number: list[tuple[int, ...]] = []
    by_name: dict[str, tuple[int, ...]] = {}
    for number, (*names, last) in cells:
        label = _number(last)
        if label is None or len(names) > 1:
            raise FormatError(f"line {number} is neither a label nor a name and a label", path=path)
        if names and names[0] in by_name:
            raise FormatError(f"line {number}: {names[0]!r} has a label already", path=path)
        if names:
            by_name[names[0]] = (label,)
        else:
            by_number.append((label,))
    if by_name and by_number:
        raise FormatError("some lines have a name, and some have none", path=path)
    if not by_name and not by_number:
        raise FormatError("there are no labels in it", path=path)
    return Labels(by_number, by_name)


def _cells(line: str) -> list[str]:
    for mark in ("\t", ";", ","):
        if mark in line:
            return [cell.strip().strip('"') for cell in line.rsplit(mark, 1)]
    return [line.strip()]


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


__all__ = ["Labels", "read_labels"]
