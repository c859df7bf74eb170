"""The choice of the next token from logits, exactly as the native runner makes it.

At temperature 0 it is the first of the largest logits; NaN is never the largest. Else the
probabilities are the softmax, in double, of logits / temperature. With top_k or top_p the tokens
are sorted by falling logit, equal logits by rising id; the first top_k are kept, and of
these the fewest that have top_p of their probability together. One is drawn where the running sum
of the probabilities, in that order (without top_k and top_p the order of ids), first exceeds a
random number times their sum. That number in [0, 1) has the upper 53 bits of SplitMix64's
output function (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) of
(mix(seed) + step * 0x9E3779B97F4A7C15); the step is the number of tokens chosen before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.formats.generation import Sampler

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def choose(logits: npt.NDArray[Any], sampler: Sampler, step: int) -> int:
    """Return the next token for logits [vocabulary]."""
    if not sampler.temperature > 0:
        best = int(logits.argmax())
        if logits[best] == logits[best]:
            return best
        return int(np.where(np.isnan(logits), -np.inf, logits).argmax())
    values = np.nan_to_num(logits.astype(np.float64), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    order = None
    if sampler.top_k is not None or sampler.top_p is not None:
        order = np.argsort(-values, kind="stable")[: sampler.top_k]
        values = values[order]
    largest = values.max()
    if not np.isfinite(largest):
        at = int(values.argmax())
    else:
        sums = np.cumsum(np.exp((values - largest) / sampler.temperature))
        if sampler.top_p is not None:
            kept = int(np.searchsorted(sums, sampler.top_p * sums[-1])) + 1
            sums = sums[:kept]
        drawn = uniform(sampler.seed, step) * sums[-1]
        at = min(int(np.searchsorted(sums, drawn, side="right")), len(sums) - 1)
    return at if order is None else int(order[at])


def uniform(seed: int, step: int) -> float:
    """Return the random number in [0, 1) of a step."""
    return (_mix(_mix(seed) + step * _GOLDEN) >> 11) * 2.0**-53


def _mix(value: int) -> int:
    """Compute the output function of SplitMix64."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
