"""Faults in the weights of a language model's program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

Change = Callable[[np.ndarray], None]


def planted(program: bytes, weight: torch.Tensor, change: Change) -> bytes:
    """Return the bytes of a program in which a weight, float32, is changed: what a kernel or a
    converter that goes wrong makes of the model, while the record is of the right one."""
    right = weight.detach().numpy()
    assert program.count(right.tobytes()) == 1, "the weight is not in the program once"
    wrong = right.copy()
    change(wrong)
    assert not np.array_equal(right, wrong)
    return program.replace(right.tobytes(), wrong.tobytes())
