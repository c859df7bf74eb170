"""Ties of quantization: numbers so near to the middle between two steps that the device may round
them to the other one.

The result in float64 shows what that does to later values, so it takes the step that the result
in float32 does not have. How near is near: the rounding of the number itself, and that of the terms
that it is the sum of. These may be much larger than it, so the bound is what the number differs by
between float32 and float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

# Of a number in steps: the rounding of the scales, of their product with it, and of itself.
ULPS = 4 * 2.0**-24
_OTHER_ORDER = 16.0  # as `analysis.numerics.limits.ROUNDING_FACTOR`
# Of a step. A larger difference comes from steps before that went to the other side, not from
# rounding, and moves as many numbers past a tie as on the device by itself.
_MOST = 2.0**-8


class Local(NamedTuple):
    """A node in the run with the device's values. args: those that its ties depend on; empty for an
    unknown call. value: its result."""

    args: tuple[Any, ...] = ()
    value: Any = None


def rounded_away(
    steps: torch.Tensor, from_steps: torch.Tensor, near: torch.Tensor | float
) -> torch.Tensor:
    """Round to whole steps, those within `near` of the middle to the other side than `from_steps`,
    which are whole."""
    found, below = torch.round(steps), steps.floor()
    is_near = (below + 0.5 - steps).abs() <= near
    is_near &= (from_steps == below) | (from_steps == below + 1)
    return torch.where(is_near, 2 * below + 1 - from_steps, found)


def nearness(steps: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """Return how near to a tie rounding may carry a number. local: the steps in float32."""
    noise = (steps - local).square()
    if noise.dim():
        noise = noise.mean(-1, keepdim=True)
    return ULPS * steps.abs() + (_OTHER_ORDER * noise.sqrt()).nan_to_num(0.0).clamp(max=_MOST)
