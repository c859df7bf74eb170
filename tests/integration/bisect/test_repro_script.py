"""The script's own metrics are etscope's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from etscope.analysis.metrics import METRICS, measure
from etscope.search.bisect._probe import metric_check
from etscope.search.bisect._repro_script import METRICS as KNOWN
from etscope.search.bisect._repro_script import measured

INF = math.inf
PAIRS: dict[str, tuple[Any, Any]] = {
    "near": ([1.0, -2.0, 3.5, 0.25], [1.1, -2.0, 3.4, 0.25]),
    "equal": ([1.0, -2.0], [1.0, -2.0]),
    "both_zero": ([0.0, 0.0], [0.0, 0.0]),
    "reference_zero": ([0.0, 0.0], [0.0, 1.0]),
    "value_zero": ([1.0, 2.0], [0.0, 0.0]),
    "same_infinity": ([INF, 1.0, 2.0], [INF, 1.5, 2.0]),
    "other_infinity": ([INF, 1.0], [-INF, 1.0]),
    "infinite_error": ([1.0, 1.0], [INF, 1.0]),
    "signs": ([1.0, -1e-30], [-1.0, 1e-30]),
    "integers": ([[1, 2], [3, 4]], [[1, 2], [3, 7]]),
}


def test_every_builtin_metric_is_there() -> None:
    assert set(KNOWN) == set(METRICS)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("metric", KNOWN)
def test_a_number_is_that_of_etscope(metric: str, pair: str) -> None:
    for dtype in (np.float32, np.float64, np.float16) if pair != "integers" else (np.int64,):
        reference, value = (np.array(one, dtype) for one in PAIRS[pair])
        expected = measure(metric, reference, value)
        got = measured(metric, torch.from_numpy(reference), torch.from_numpy(value))
        assert expected is not None
        assert got == pytest.approx(expected, rel=1e-9, nan_ok=True), dtype


@pytest.mark.parametrize("metric", KNOWN)
def test_nan_where_the_other_has_none(metric: str) -> None:
    nan, one = np.array([math.nan, 1.0]), np.array([1.0, 1.0])
    check = metric_check(metric, 0.5)
    for first, second in ((nan, one), (one, nan), (one, one[:1])):
        assert math.isnan(check.number(first, second))
        assert check.is_wrong(check.number(first, second))
        assert math.isnan(measured(metric, torch.from_numpy(first), torch.from_numpy(second)))
    same = measured(metric, torch.from_numpy(nan), torch.from_numpy(nan))
    assert same == check.number(nan, nan) == METRICS[metric].perfect
