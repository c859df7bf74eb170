"""Compare the classes of the device and the reference; count agreement and accuracy."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import (
    FormatError,
    MismatchError,
    MissingDataError,
    MissingFileError,
    UsageError,
)
from etscope.evaluation._dataset import Sample
from etscope.formats.torch_files.tensor_files import read_tensor_file
from etscope.support.shown import Shown

_Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prediction:
    """The classes of one row of scores, [classes].

    reference, device: the class with the best score, the first of equal ones; None if a score is
    NaN. in_top: True if the reference's class is among the device's K best. label: None if unknown.
    right, right_top: True if the label is the device's class, or among its K best; reference_right,
    reference_right_top: the same for the reference. reference_margin: the reference's score for its
    own class minus its score for the device's class. device_margin: the device's score for its own
    class minus its score for the reference's class. If the classes agree, the margins are the
    distance to the second best. floats: the class from the float graph, if the reference is a
    quantized model whose record has that graph. float_margin: the float graph's score for its own
    class minus its score for the reference's class. float_right, float_right_top: the same as for
    the reference.
    """

    sample: str
    row: int
    reference: int | None
    device: int | None
    in_top: bool
    reference_margin: float | None
    device_margin: float | None
    label: int | None = None
    right: bool = False
    right_top: bool = False
    reference_right: bool = False
    reference_right_top: bool = False
    floats: int | None = None
    float_margin: float | None = None
    float_right: bool = False
    float_right_top: bool = False

    @property
    def flipped(self) -> bool:
        """True if the device has another class than the reference, or none."""
        return self.reference is not None and self.device != self.reference

    @property
    def quantization_flipped(self) -> bool:
        """True if the reference has another class than the float graph, or none."""
        return self.floats is not None and self.reference != self.floats


def predictions(
    sample: str,
    reference: Any,
    device: Any,
    top: int,
    labels: tuple[int, ...] | None,
    floats: Any = None,
) -> list[Prediction]:
    """The prediction for each row of two outputs of shape [..., classes], and of the float
    graph's.

    Raises `MissingDataError` for an output that is not scores, `MismatchError` for outputs of
    different shapes, and for labels that are not classes, and if labels and rows differ in number.
    """
    expected, found = _rows(reference), _rows(device)
    if expected.shape != found.shape:
        raise MismatchError(
            f"the reference's scores have the shape {list(expected.shape)}, and the device's "
            f"{list(found.shape)}"
        )
    exact = None if floats is None else _rows(floats)
    if exact is not None and exact.shape != expected.shape:
        exact = None
    rows, classes = expected.shape
    if labels is not None and len(labels) != rows:
        raise MismatchError(f"the sample has {rows} rows of scores and {len(labels)} labels")
    if labels is not None and not all(0 <= label < classes for label in labels):
        raise MismatchError(
            f"the sample's label is not one of the {classes} classes: {list(labels)}"
        )
    results = []
    for row in range(rows):
        label = None if labels is None else labels[row]
        ranked, device_ranked = _ranked(expected[row], top), _ranked(found[row], top)
        float_ranked = [] if exact is None else _ranked(exact[row], top)
        one, other = next(iter(ranked), None), next(iter(device_ranked), None)
        first = next(iter(float_ranked), None)
        results.append(
            Prediction(
                sample=sample,
                row=row,
                reference=one,
                device=other,
                in_top=one is not None and one in device_ranked[:top],
                reference_margin=_margin(expected[row], ranked, other),
                device_margin=_margin(found[row], device_ranked, one),
                label=label,
                right=label is not None and label == other,
                right_top=label in device_ranked[:top],
                reference_right=label is not None and label == one,
                reference_right_top=label in ranked[:top],
                floats=first,
                float_margin=None if exact is None else _margin(exact[row], float_ranked, one),
                float_right=label is not None and label == first,
                float_right_top=label in float_ranked[:top],
            )
        )
    return results


def _rows(output: Any) -> _Scores:
    array = np.asarray(output)
    if array.ndim == 0 or array.shape[-1] < 2 or array.dtype.kind in "bO":
        raise MissingDataError(
            f"an output of the type {array.dtype} and the shape {list(array.shape)} has no scores "
            "of classes, [..., classes]",
            hint="name the output with the scores: output=, -X scores",
        )
    return array.reshape(-1, array.shape[-1]).astype(np.float64)


def _ranked(scores: _Scores, top: int) -> list[int]:
    """At least the `top` best classes and the second best; empty for NaN, which has no order."""
    if np.isnan(scores).any():
        return []
    best: list[int] = np.argsort(-scores, kind="stable")[: max(top, 2)].tolist()
    return best


def _margin(scores: _Scores, ranked: list[int], other: int | None) -> float | None:
    """Return the best score minus the other class's, or the second best if they are the same."""
    if not ranked:
        return None
    best = ranked[0]
    second = ranked[1] if other is None or other == best else other
    if scores[best] == scores[second]:
        return 0.0  # inf - inf would be NaN
    return float(scores[best] - scores[second])


# -- Labels of samples: an array, a file of numbers, or lines of text.

_TEXT = (".txt", ".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class Labels(Shown):
    """Labels by a sample's number, or by its name: one class for each row of its scores."""

    by_number: Sequence[tuple[int, ...]] = ()
    by_name: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def of(self, sample: Sample) -> tuple[int, ...]:
        """The labels of a sample. Raises `MismatchError` for one without."""
        if self.by_name:
            for name in (sample.name, PurePath(sample.name).stem):
                if name in self.by_name:
                    return self.by_name[name]
        elif sample.number < len(self.by_number):
            return self.by_number[sample.number]
        raise MismatchError(
            "the sample has no label",
            hint="labels are in the order of the samples, or lines of name,label",
        )

    def check(self, count: int | None, limit: int | None) -> None:
        """Raise `MismatchError` if labels and samples differ in number."""
        if count is None or self.by_name:
            return
        if len(self.by_number) != count and limit is None:
            raise MismatchError(
                f"there are {len(self.by_number)} labels, and the dataset has {count} samples"
            )

    @classmethod
    def of_text(cls, path: Path) -> Labels:
        """Read lines of `label` or `name,label`; see `read_labels`."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError as error:
            raise MissingFileError(f"labels file not found: {path}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise FormatError(f"not a file of labels: {error}", path=path) from error
        cells = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            separator = next((mark for mark in "\t;," if mark in line), None)
            if separator is None:
                cells.append((number, [line.strip()]))
            else:
                parts = line.rsplit(separator, 1)
                cells.append((number, [part.strip().strip('"') for part in parts]))
        if cells and _number(cells[0][1][-1]) is None:  # a heading
            del cells[0]
        by_number: list[tuple[int, ...]] = []
        by_name: dict[str, tuple[int, ...]] = {}
        for number, (*names, last) in cells:
            label = _number(last)
            if label is None or len(names) > 1:
                raise FormatError(
                    f"line {number} is neither a label nor a name and a label", path=path
                )
            if names and names[0] in by_name:
                raise FormatError(f"line {number}: {names[0]!r} has a label already", path=path)
            if names:
                by_name[names[0]] = (label,)
            else:
                by_number.append((label,))
        if by_name and by_number:
            raise FormatError("some lines have a name, and some have none", path=path)
        if not by_name and not by_number:
            raise FormatError("the file contains no labels", path=path)
        return cls(by_number, by_name)


def read_labels(source: Any) -> Labels:
    """Read labels from a file, or take integers in memory.

    source: a path, or integers in the order of the samples: of shape [samples], or [samples, rows]
    where a sample has several rows of scores. Files of tensors (.npy, .npz, .pt, .safetensors) hold
    such an array; in text (.txt, .csv, .tsv) each line is a label, or a sample's name and its label
    with a comma, a semicolon or a tab between them. A first line without a number is a heading.

    Raises `MissingFileError`, `FormatError` for a broken file, `UsageError` for other values.
    """
    what = "the labels"
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.suffix.lower() in _TEXT:
            return Labels.of_text(path)
        file, what = read_tensor_file(path), str(path)
        source = file.values[0] if len(file.values) == 1 else file.content
        is_list = isinstance(source, (list, tuple)) and all(isinstance(one, int) for one in source)
        if len(file.values) != 1 and not is_list:
            count = len(file.values)
            raise FormatError(f"labels are one array, and this file has {count}", path=path)
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
    return Labels([tuple(row) for row in array.reshape(len(array), -1).tolist()])


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


# -- Counts over the dataset.

MAX_FLIPS = 10_000  # kept with their margins: a segmentation may have millions
_RIGHT = (
    "right", "right_top", "reference_right", "reference_right_top",
    "float_right", "float_right_top",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task(Shown):
    """Counts over all rows of scores.

    rows: the rows with a class of the reference. agree: the device has the same class; agree_top:
    it is among the device's `top` best. undecided: rows without a class of the reference (NaN),
    which count nowhere else. labelled: rows with a label; right, right_top, reference_right and
    reference_right_top count among these. flips: rows with another class than the reference's, the
    largest margin of the reference first; at most `MAX_FLIPS` are kept, and `flipped` counts all.

    For a quantized model with the float graph in its record: float_rows: rows with a class of that
    graph; float_agree: the reference has the same; float_device_agree: the device has it;
    float_right, float_right_top as for the reference; float_flips: rows with another class of the
    reference than of the float graph.
    """

    top: int
    output: int
    rows: int = 0
    agree: int = 0
    agree_top: int = 0
    undecided: int = 0
    labelled: int = 0
    right: int = 0
    right_top: int = 0
    reference_right: int = 0
    reference_right_top: int = 0
    flips: tuple[Prediction, ...] = ()
    float_rows: int = 0
    float_agree: int = 0
    float_device_agree: int = 0
    float_right: int = 0
    float_right_top: int = 0
    float_flips: tuple[Prediction, ...] = ()

    @property
    def flipped(self) -> int:
        """The number of rows with another class than the reference's."""
        return self.rows - self.agree

    @property
    def agreement(self) -> float | None:
        return _share(self.agree, self.rows)

    @property
    def flip_share(self) -> float | None:
        """Share of rows with another class than the reference's."""
        return _share(self.flipped, self.rows)

    @property
    def accuracy(self) -> float | None:
        return _share(self.right, self.labelled)

    @property
    def reference_accuracy(self) -> float | None:
        return _share(self.reference_right, self.labelled)

    @property
    def float_accuracy(self) -> float | None:
        """Share of labelled rows that the float graph has right; None without one."""
        return _share(self.float_right, self.labelled) if self.float_rows else None

    @property
    def quantization_flips(self) -> int:
        """The number of rows with another class after quantization than in the float graph."""
        return self.float_rows - self.float_agree


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


class TaskCounts:
    def __init__(self, top: int, output: int) -> None:
        self._top, self._output = top, output
        self._counts: Counter[str] = Counter()
        self._flips: dict[str, list[Prediction]] = {"reference_margin": [], "float_margin": []}

    def add(self, prediction: Prediction) -> None:
        decided, has_float = prediction.reference is not None, prediction.floats is not None
        self._counts.update(
            rows=decided,
            agree=decided and not prediction.flipped,
            agree_top=prediction.in_top,
            undecided=not decided,
            labelled=prediction.label is not None,
            float_rows=has_float,
            float_agree=has_float and not prediction.quantization_flipped,
            float_device_agree=has_float and prediction.device == prediction.floats,
            **{name: getattr(prediction, name) for name in _RIGHT},
        )
        for margin, flipped in (
            ("reference_margin", prediction.flipped),
            ("float_margin", prediction.quantization_flipped),
        ):
            if flipped:
                self._flips[margin].append(prediction)
                if len(self._flips[margin]) > 2 * MAX_FLIPS:
                    self._flips[margin] = self._surest(margin)

    def _surest(self, margin: str) -> list[Prediction]:
        flips = self._flips[margin]
        return sorted(flips, key=lambda flip: -(getattr(flip, margin) or 0.0))[:MAX_FLIPS]

    def task(self) -> Task:
        return Task(
            self._top,
            self._output,
            flips=tuple(self._surest("reference_margin")),
            float_flips=tuple(self._surest("float_margin")),
            **self._counts,
        )
