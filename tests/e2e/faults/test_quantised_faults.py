"""Faults in quantised programs are named by their operator or call, and sound ones are the same to
the bit where the arithmetic is integers; `python -m benchmarks.planted_faults` has many more."""

from __future__ import annotations

import math
import warnings
from functools import cache

import pytest

pytest.importorskip("executorch.exir")

from benchmarks.planted_faults import FAULTS, GROUPS, KINDS, Right, planted, right_of

# Groups and faults; those of a group are of one model, which is exported once.
CASES = [
    ("int8 by channel", "depthwise channel x1.5"),
    ("int8 by channel, whole calls", "channel x1.5"),
    ("int8 by channel, whole calls", "weights one step lower"),
    ("int8 dynamic", "channel x1.01"),
    ("8da4w by 32", "scales of two groups exchanged"),
    ("8da4w by 32", "halves of bytes exchanged"),
    ("fp16", "channel x1.5"),
]


@cache
def right(group: str, model: str) -> Right:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return right_of(GROUPS[group], KINDS[model], 0)


@pytest.mark.parametrize(("group", "fault"), CASES)
def test_a_fault_of_a_quantised_program_is_named(group: str, fault: str) -> None:
    sound = right(group, FAULTS[fault][0])
    assert sound.numerics.is_fine, sound.numerics.verdict
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = planted(group, GROUPS[group], fault, sound)
    assert found.outcome == "first", found.detail


def test_sound_integers_are_the_same_to_the_bit() -> None:
    found = right("int8 by channel", "Convolutions").numerics
    integers = [row for row in found.rows if "mean" not in row.node]
    assert len(integers) > 5
    assert all(row.local == math.inf for row in integers if "quantize" in row.node)
