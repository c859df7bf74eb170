"""How far a run's output is from its reference: one number for a pair of arrays.

All are taken in float64, over all elements. NaN in either array makes a metric NaN: a broken
output never scores as a good one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError

Array = npt.NDArray[Any]


def _snr(reference: Array, value: Array) -> float:
    """Signal-to-noise ratio in dB: ``10 log10(mean(ref^2) / mean((ref - value)^2))``.

    Infinite for equal arrays, NaN when the reference is all zero and equal.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.mean(reference**2) / np.mean((reference - value) ** 2)
        return float(10 * np.log10(ratio))


def _mse(reference: Array, value: Array) -> float:
    """Mean squared error: ``mean((ref - value)^2)``."""
    return float(np.mean((reference - value) ** 2))


def _cosine_similarity(reference: Array, value: Array) -> float:
    """``sum(ref * value) / (|ref| |value|)``; NaN when one of them is all zero."""
    norms = np.linalg.norm(reference) * np.linalg.norm(value)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.sum(reference * value) / norms)


METRICS: Mapping[str, Callable[[Array, Array], float]] = {
    "snr": _snr,
    "mse": _mse,
    "cosine_similarity": _cosine_similarity,
}


def measure(metric: str, reference: Any, value: Any) -> float | None:
    """A metric of `METRICS` for two arrays, tensors or numbers; None unless both are numeric.

    Raises `UsageError` for an unknown metric and for shapes that differ.
    """
    if metric not in METRICS:
        raise UsageError(f"unknown metric {metric!r}", hint="metrics are: " + ", ".join(METRICS))
    first, second = _as_float(reference), _as_float(value)
    if first is None or second is None:
        return None
    if first.shape != second.shape:
        raise UsageError(
            f"Input tensors must have the same shape: the reference has {list(first.shape)}, "
            f"the run's output {list(second.shape)}"
        )
    return METRICS[metric](first, second)


def _as_float(value: Any) -> npt.NDArray[np.float64] | None:
    if value is None or isinstance(value, (str, bytes, list, tuple, dict)):
        return None
    if hasattr(value, "detach"):  # a torch tensor; double first: numpy has no bfloat16
        value = value.detach().cpu().double().numpy()
    return np.asarray(value).astype(np.float64)
