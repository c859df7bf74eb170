"""Operators whose terms may cancel: their rounding is as large as the terms, not as the result.

PyTorch's result may be exact by chance, as of a mean of what was centred before, or come from
another algorithm than a kernel's. So its own rounding shows nothing, and the result in float64 is
moved by what a sum in turn may lose. Only where terms cancel: above that the tolerance of the type
is larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

# Moves a result in float64: from the operator, its arguments, the result, and the type's epsilon.
Moved = Callable[[Any, tuple[Any, ...], Mapping[str, Any], Any, float], Any]

_CANCELLED = 1e-3  # of the sum of the sizes of terms
# Of a variance. A rounding may be `ROUNDING_FACTOR` times this: a norm is wrong if a tenth off.
_MOST_LOST = 0.0125
_FAR = 10.0  # the square of a mean over the variance; below it a variance has nearly all its digits


def _sum(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any, epsilon: float
) -> Any:
    """A sum of n terms in turn is off by about the epsilon of the type times the sum of their
    sizes: partial sums are as large as a term times sqrt(n)."""
    return _moved_sum(value, target(args[0].abs(), *args[1:], **kwargs), epsilon)


def _moved_sum(value: torch.Tensor, size: torch.Tensor, epsilon: float) -> torch.Tensor:
    return torch.where(value.abs() < _CANCELLED * size, value + epsilon * size, value)


def _lost(mean: torch.Tensor, variance: torch.Tensor, count: float, epsilon: float) -> torch.Tensor:
    """The share of a variance that is lost where it is the mean square less the square of the mean,
    as in the norms of ExecuTorch's kernels. Partial sums of squares grow to n
    terms: their rounding adds up to sqrt(n) of one."""
    ratio = mean.square() / variance
    return torch.where(ratio > _FAR, epsilon / 2 * math.sqrt(count) * ratio, 0.0).clamp(
        max=_MOST_LOST
    )


def _variance(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any, epsilon: float
) -> Any:
    keeps = bool(kwargs.get("keepdim", False))
    mean = torch.mean(args[0], args[1] if len(args) > 1 else None, keepdim=keeps)
    return value * (1 + _lost(mean, value, args[0].numel() / max(value.numel(), 1), epsilon))


def _norm(bias: int) -> Moved:
    """bias: its position among the arguments."""

    def moved(
        target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any, epsilon: float
    ) -> Any:
        found, mean, reciprocal = value
        scaled = target(*args[:bias], None, *args[bias + 1 :], **kwargs)[0]
        rows = scaled.reshape(reciprocal.numel(), -1)
        less = 0.5 * _lost(mean, reciprocal.square().reciprocal(), rows.shape[1], epsilon)
        move = (rows * less.reshape(-1, 1)).reshape(found.shape)
        size = args[0].abs().reshape(rows.shape).mean(1).reshape(mean.shape)
        return found - move, _moved_sum(mean, size, epsilon), reciprocal * (1 - less)

    return moved


CANCELLING: Mapping[str, Moved] = {
    **dict.fromkeys(
        ("aten.mean.default", "aten.mean.dim", "aten.sum.default", "aten.sum.dim_IntList"), _sum
    ),
    **dict.fromkeys(("aten.var.correction", "aten.var.dim"), _variance),
    "aten.native_group_norm.default": _norm(2),
    "aten.native_layer_norm.default": _norm(3),
}
