"""What a classifier says: the class of each row of scores, of the reference and of the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import MismatchError, MissingDataError

_Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one row of scores, [classes].

    reference, device: the class with the best score, the first of equal ones; None where a score is
    NaN. in_top: whether the reference's class is among the device's K best. label: None if not
    known. right, right_top: whether the label is the device's class, or among its K best;
    reference_right, reference_right_top: the same of the reference. reference_margin: how much
    better the reference scores its own class than the device's; device_margin: the other way round.
    Of classes that agree, they are the distance to the second best.
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

    @property
    def flipped(self) -> bool:
        """Whether the device has another class than the reference, or none."""
        return self.reference is not None and self.device != self.reference


def answers(
    sample: str,
    reference: Any,
    device: Any,
    top: int,
    labels: tuple[int, ...] | None,
) -> list[Answer]:
    """One for each row of two outputs of shape [..., classes].

    Raises `MissingDataError` for an output that is not scores, `MismatchError` for outputs of
    different shapes, and for labels that are not as many as the rows or no class.
    """
    expected, found = _rows(reference), _rows(device)
    if expected.shape != found.shape:
        raise MismatchError(
            f"the reference's scores have the shape {list(expected.shape)}, and the device's "
            f"{list(found.shape)}"
        )
    rows, classes = expected.shape
    if labels is not None and len(labels) != rows:
        raise MismatchError(f"it has {rows} rows of scores and {len(labels)} labels")
    if labels is not None and not all(0 <= label < classes for label in labels):
        raise MismatchError(f"its label is none of {classes} classes: {list(labels)}")
    return [
        _answer(
            sample, row, expected[row], found[row], top, None if labels is None else labels[row]
        )
        for row in range(rows)
    ]


def _rows(output: Any) -> _Scores:
    array = np.asarray(output)
    if array.ndim == 0 or array.shape[-1] < 2 or array.dtype.kind in "bO":
        raise MissingDataError(
            f"an output of the type {array.dtype} and the shape {list(array.shape)} has no scores "
            "of classes, [..., classes]",
            hint="name the output that has: output=, --scores",
        )
    return array.reshape(-1, array.shape[-1]).astype(np.float64)


def _answer(
    sample: str, row: int, reference: _Scores, device: _Scores, top: int, label: int | None
) -> Answer:
    expected, found = _ranked(reference), _ranked(device)
    one = None if expected is None else int(expected[0])
    other = None if found is None else int(found[0])
    best = [] if found is None else found[:top].tolist()
    reference_best = [] if expected is None else expected[:top].tolist()
    return Answer(
        sample=sample,
        row=row,
        reference=one,
        device=other,
        in_top=one is not None and one in best,
        reference_margin=_margin(reference, expected, other),
        device_margin=_margin(device, found, one),
        label=label,
        right=label is not None and label == other,
        right_top=label in best,
        reference_right=label is not None and label == one,
        reference_right_top=label in reference_best,
    )


def _ranked(scores: _Scores) -> npt.NDArray[np.intp] | None:
    """The classes by score, the best first; None if a score is NaN: then there is no order."""
    return None if np.isnan(scores).any() else np.argsort(-scores, kind="stable")


def _margin(
    scores: _Scores, ranked: npt.NDArray[np.intp] | None, other: int | None
) -> float | None:
    if ranked is None:
        return None
    best = int(ranked[0])
    second = int(ranked[1]) if other is None or other == best else other
    if scores[best] == scores[second]:
        return 0.0  # of infinities, too
    return float(scores[best] - scores[second])


__all__ = ["Answer", "answers"]
