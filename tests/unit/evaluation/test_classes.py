"""Classes of the reference and of the device: agreement, margins, labels, and what is none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from etscope.errors import MismatchError, MissingDataError
from etscope.evaluation._classification import Prediction, TaskCounts, predictions
from etscope.evaluation._results import Spread

from etscope.analysis.metrics import METRICS  # isort: skip

NAN = math.nan


def one(reference: Any, device: Any, top: int = 2, label: int | None = None) -> Prediction:
    (found,) = predictions("s", [reference], [device], top, None if label is None else (label,))
    return found


def test_classes_and_their_margins() -> None:
    found = one([0.0, 3.0, 1.0], [0.0, 2.5, 1.0], label=1)
    assert (found.reference, found.device, found.flipped, found.in_top) == (1, 1, False, True)
    assert (found.reference_margin, found.device_margin) == (2.0, 1.5)
    assert found.right and found.reference_right and found.right_top

    found = one([0.0, 3.0, 2.75], [0.0, 2.0, 4.0], label=1)
    assert (found.reference, found.device, found.flipped, found.in_top) == (1, 2, True, True)
    assert (found.reference_margin, found.device_margin) == (0.25, 2.0)
    assert not found.right and found.right_top and found.reference_right
    assert not one([9.0, 3.0, 2.0], [0.0, 2.0, 4.0]).in_top

    found = one([1.0, 1.0, 0.0], [1.0, 1.0, 0.0])
    assert (found.reference, found.device, found.reference_margin) == (0, 0, 0.0)
    assert one([math.inf, math.inf], [math.inf, 0.0]).reference_margin == 0.0


def test_nan_has_no_class() -> None:
    flipped = one([0.0, 1.0], [0.0, NAN])
    assert flipped.flipped and flipped.device is None and not flipped.in_top
    assert flipped.device_margin is None and flipped.reference_margin == 1.0
    undecided = one([NAN, 1.0], [NAN, 1.0], label=1)
    assert undecided.reference is None and not undecided.flipped and not undecided.right


def test_counts() -> None:
    counts = TaskCounts(top=1, output=0)
    for reference, device, label in (
        ([0.0, 1.0], [0.0, 1.0], 1),
        ([0.0, 1.0], [2.0, 1.0], 1),
        ([0.0, 5.0], [2.0, NAN], 0),
        ([NAN, 1.0], [NAN, 1.0], 0),
    ):
        counts.add(one(reference, device, 1, label))
    task = counts.task()
    assert (task.rows, task.agree, task.flipped, task.undecided) == (3, 1, 2, 1)
    assert task.flip_share == pytest.approx(2 / 3) and task.agreement == pytest.approx(1 / 3)
    assert (task.labelled, task.right, task.reference_right) == (4, 1, 2)
    assert [flip.reference_margin for flip in task.flips] == [5.0, 1.0]  # the surest first
    assert TaskCounts(1, 0).task().agreement is None


def test_the_float_graph_has_a_class_too() -> None:
    scores = [[[0.0, 2.0]], [[3.0, 1.0]], [[3.0, 2.5]]]
    expected, reference, device = (np.array(one) for one in scores)
    (found,) = predictions("s", reference, device, 1, (1,), expected)
    assert (found.floats, found.float_margin, found.quantization_flipped) == (1, 2.0, True)
    assert found.float_right and not found.reference_right and not found.flipped
    (kept,) = predictions("s", expected, device, 1, (1,), expected)
    assert kept.flipped and not kept.quantization_flipped
    counts = TaskCounts(1, 0)
    for one_row in (found, kept):
        counts.add(one_row)
    task = counts.task()
    assert (task.float_rows, task.float_agree, task.float_device_agree) == (2, 1, 0)
    assert (task.float_accuracy, task.quantization_flips) == (1.0, 1)
    assert task.float_flips == (found,)
    (other,) = predictions("s", reference, device, 1, None, np.zeros((1, 3)))
    assert other.floats is None  # of another shape: not the same model's scores


def test_several_rows() -> None:
    scores = np.array([[[0.0, 1.0], [1.0, 0.0]]])
    assert [a.reference for a in predictions("s", scores, scores, 1, (1, 0))] == [1, 0]
    with pytest.raises(MismatchError, match="2 rows of scores and 1 labels"):
        predictions("s", scores, scores, 1, (1,))
    with pytest.raises(MismatchError, match="not one of the 2 classes"):
        predictions("s", scores, scores, 1, (1, 2))
    for output in (np.zeros(()), np.zeros((3, 1)), np.zeros(3, bool)):
        with pytest.raises(MissingDataError, match="no scores"):
            predictions("s", output, output, 1, None)
    with pytest.raises(MismatchError, match="shape"):
        predictions("s", np.zeros((1, 2)), np.zeros((1, 3)), 1, None)


def test_spread() -> None:
    sqnr, mse = METRICS["sqnr"], METRICS["mse"]
    found = Spread.of([10.0, math.inf, 30.0], sqnr)
    assert (found.count, found.mean, found.median, found.worst) == (3, 20.0, 30.0, 10.0)
    found = Spread.of([1.0, 4.0, 2.0, NAN], mse)
    assert found.median == 3.0 and math.isnan(found.worst or 0)
    assert Spread.of([math.inf, math.inf], sqnr).mean is None
    assert Spread.of([math.inf, math.inf], sqnr).median == math.inf
    assert Spread.of([], mse) == Spread(0, None, None, None)
