"""Faults in quantized programs are named by their operator or call, and sound ones are the same to
the bit where the arithmetic is integers; `python -m benchmarks.planted_faults` has many more."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("executorch.exir")

from tests.support.artifacts import FAMILIES, artifacts
from tests.support.faults.recorded import found

NAMES = [name for name, module in FAMILIES.items() if module == "quantised_faults"]


@pytest.mark.parametrize("name", NAMES)
def test_faults_of_a_quantized_program_are_named(name: str) -> None:
    sound, notes = found(name), artifacts(name).meta
    assert sound.is_fine, sound.verdict
    assert notes["changed"] and not notes["no_fault"]
    for fault, changed in notes["changed"].items():
        wrong = found(name, fault)
        assert wrong.first is not None, (fault, wrong.notes)
        assert not set(changed).isdisjoint(wrong.first.nodes), (fault, wrong.verdict, changed)


def test_sound_integers_are_the_same_to_the_bit() -> None:
    integers = [row for row in found("fault_int8").rows if "mean" not in row.node]
    assert len(integers) > 5
    assert all(row.local == math.inf for row in integers if "quantize" in row.node)
