"""Sound programs are not accused, and a fault beside what makes them hard to judge is found."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("executorch.exir")
torch = pytest.importorskip("torch")

from benchmarks import planted_kinds as kinds  # noqa: E402
from benchmarks.planted_faults import GROUPS, Program, lowered, ran  # noqa: E402
from tests.support.faults.sound_programs import TWO_BLOCKS, sound, two_blocks  # noqa: E402

COUNT = int(os.environ.get("ETSCOPE_SOUND_PROGRAMS", "500"))
# One of each arithmetic in each run of the tests, of all kinds at night.
DAILY = range(3)


@pytest.mark.parametrize(
    "seed",
    [
        seed if seed in DAILY else pytest.param(seed, marks=pytest.mark.nightly)
        for seed in range(COUNT)
    ],
)
def test_a_sound_program_is_not_accused(seed: int) -> None:
    program = sound(seed)
    for found in program.numerics():
        assert found.is_fine, (str(program), found.verdict)


# Of these inputs, the numbers inside a call are so near to ties that the device rounds one of them
# to another step than PyTorch in float32.
AT_TIES = (3, 7, 9)


@pytest.fixture(scope="module")
def exported() -> Any:
    with torch.no_grad():
        program, inputs = GROUPS[TWO_BLOCKS].make(two_blocks(), inputs_of(0))
        return program, lowered(GROUPS[TWO_BLOCKS], program, inputs)


def inputs_of(seed: int) -> tuple[Any, ...]:
    return (torch.randn(1, 128, 256, generator=torch.Generator().manual_seed(seed)),)


def runs(exported: Any, record: Any) -> Iterator[Any]:
    for seed in AT_TIES:
        yield ran(exported, record, inputs_of(seed))[1]


def test_a_tie_inside_a_call_is_not_a_fault(exported: Any) -> None:
    _, right = exported
    for found in runs(right, right.record):
        assert found.is_fine, found.verdict
        # The device did round to another step, or the test shows nothing.
        assert min(row.local for row in found.rows if row.local is not None) < 100


def _row_in_pairs(weight: Any) -> Any:
    weight[9] = weight[9].unflatten(-1, (-1, 2)).flip(-1).flatten()
    return weight


def test_a_fault_behind_a_tie_is_found(exported: Any) -> None:
    program, right = exported
    wrong = copy.deepcopy(program)
    kinds.weights(4, _row_in_pairs)(Program(wrong))
    with torch.no_grad():
        faulty = lowered(GROUPS[TWO_BLOCKS], wrong, inputs_of(0))
    for found in runs(faulty, right.record):
        assert found.first is not None and found.first.pair.instruction == 9, found.verdict
