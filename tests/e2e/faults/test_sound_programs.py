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
from etscope.bridge.reference import xnnpack_int8  # noqa: E402
from etscope.errors import RuntimeFailure  # noqa: E402
from tests.support.faults.sound_programs import LARGE_CALLS, large_calls, sound  # noqa: E402

COUNT = int(os.environ.get("ETSCOPE_SOUND_PROGRAMS", "500"))
DAILY = range(2, 3)  # the others at night


@pytest.mark.filterwarnings("ignore")  # of values that are one with another in int8
@pytest.mark.parametrize(
    "seed",
    [
        seed if seed in DAILY else pytest.param(seed, marks=pytest.mark.nightly)
        for seed in range(COUNT)
    ],
)
def test_a_sound_program_is_not_accused(seed: int) -> None:
    program = sound(seed)
    try:
        for is_right, found in program.numerics():
            if is_right is not None:
                assert found.is_fine is is_right, (str(program), found.verdict)
    except RuntimeFailure as error:  # a mixed layout: seed 138
        assert "the cause: " in str(error)


# Of these inputs, the numbers inside a call are so near to ties that the device rounds one of them
# to another step than PyTorch in float32.
AT_TIES = (3, 7, 15)


@pytest.fixture(scope="module")
def exported() -> Any:
    with torch.no_grad():
        program, inputs = GROUPS[LARGE_CALLS].make(large_calls(), inputs_of(0))
        return program, lowered(GROUPS[LARGE_CALLS], program, inputs)


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


def test_one_code_that_is_off_by_one_has_no_name(
    exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any change of a weight, however small, moves a number at a tie: none of them is the cause."""
    # Without ties that go to the other side, these runs are accused.
    monkeypatch.setattr(xnnpack_int8, "rounded_away", lambda steps, from_steps, near: from_steps)
    _, right = exported
    for found in runs(right, right.record):
        assert not found.is_fine and found.what_it_is is None, found.what_it_is


def _row_in_pairs(weight: Any) -> Any:
    weight[9] = weight[9].unflatten(-1, (-1, 2)).flip(-1).flatten()
    return weight


def test_a_fault_behind_a_tie_is_found(exported: Any) -> None:
    program, right = exported
    wrong = copy.deepcopy(program)
    kinds.weights(4, _row_in_pairs)(Program(wrong))
    with torch.no_grad():
        faulty = lowered(GROUPS[LARGE_CALLS], wrong, inputs_of(0))
    for found in runs(faulty, right.record):
        assert found.first is not None and found.first.pair.instruction == 8, found.verdict
