"""What the target on the runtime is made of, without a runner."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from etscope.analysis.program.program import instructions
from etscope.errors import UsageError
from etscope.etdb.protocol.messages import TensorInfo, ValueInfo
from etscope.etdb.targets.runtime_execution import StopSequence
from etscope.etdb.targets.runtime_values import MemoryPlan, fit_value
from etscope.etdb.targets.target import Stop
from etscope.formats.program.pte import read_pte
from tests.support.artifacts import artifacts

# -- the line of stops

# Instructions 0, 1, 3, 4 and 6 of seven are stops; the loop is 1 to 5.
LOOP_STOPS = (0, 1, 3, 4, 6)


def line() -> StopSequence:
    return StopSequence(
        [Stop(0, number, f"op{number}", "op", "kernel") for number in LOOP_STOPS], 7
    )


def ran(*numbers: int) -> npt.NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


def told(of: StopSequence) -> list[tuple[int | None, int]]:
    return [(stop.instruction, stop.loop_pass) for stop in of]


def test_before_a_run_all_stops_are_foreseen() -> None:
    run = line()
    assert told(run) == [(number, 0) for number in LOOP_STOPS]
    assert [stop.position for stop in run] == [0, 1, 2, 3, 4]
    assert run.known == 0 and run.position_at(0) is None
    run.add(ran(0, 4))
    assert told(run) == [(0, 0), (4, 0), (6, 0)]
    run.end()  # a branch that was not taken is no stop
    assert told(run) == [(0, 0), (4, 0)]


def test_a_loop_that_goes_on_takes_the_place_of_what_was_foreseen() -> None:
    run = line()
    run.add(ran(0, 1, 2, 3, 4, 5, 1))
    assert told(run) == [(0, 0), (1, 0), (3, 0), (4, 0), (1, 1), (3, 1), (4, 1), (6, 0)]
    assert [run.step_of(at) for at in range(run.known)] == [1, 2, 4, 5, 7]
    assert [run.position_at(step) for step in range(8)] == [None, 0, 1, 1, 2, 3, 3, 4]
    run.add(ran(2, 3, 4, 5, 6))
    run.end()
    assert told(run)[4:] == [(1, 1), (3, 1), (4, 1), (6, 0)]
    assert list(run.passes_of(3, 12)) == [4, 9] and list(run.passes_of(3, 8)) == [4]


def test_what_came_after_a_step_is_forgotten() -> None:
    run = line()
    run.add(ran(0, 1, 2, 3, 4, 5, 1, 2, 3))
    run.timed(1, 70)
    run.timed(5, 90)
    run.end()
    run.forget_after(4)
    assert told(run) == [(0, 0), (1, 0), (3, 0), (4, 0), (6, 0)]
    assert [stop.ticks for stop in run] == [None, 70, None, None, None]
    run.add(ran(4, 5, 1))
    assert told(run)[3:5] == [(4, 0), (1, 1)]


def test_many_passes_at_once_count_as_one_by_one() -> None:
    numbers = np.tile(ran(1, 2, 3, 4, 5), 300)
    at_once, singly = line(), line()
    at_once.add(numbers)
    for number in numbers:
        singly.add(ran(number))
    assert told(at_once) == told(singly)
    assert at_once[-2].loop_pass == 299


# -- memory


def memory(name: str) -> MemoryPlan:
    program = read_pte(artifacts(name).pte)
    return MemoryPlan(program.methods[0], instructions(program, program.methods[0].name).records)


def test_a_value_is_gone_when_its_bytes_are_written() -> None:
    # cond: value 5 (the transposed weight) and value 12 (the sum) are both at offset 96.
    run = ran(0, 1, 2, 3)
    assert memory("cond").overwritten(5, 1, 2, run) is None
    assert memory("cond").overwritten(5, 1, 4, run) == 2
    assert memory("cond").overwritten(9, 2, 4, run) is None


def test_a_moved_value_is_where_what_was_moved_is() -> None:
    # cond: the branches move 20 (at offset 0) or 23 (at 0 too) to 18, whose own place is 128.
    run = ran(0, 1, 2, 3, 4, 9, 10, 11, 12)
    assert memory("cond").overwritten(18, 9, 9, run) is None
    of_other_branch = ran(0, 1, 2, 3, 4, 5, 6, 7, 5, 6)
    assert memory("cond").overwritten(18, 8, 10, of_other_branch) == 6


def test_in_a_loop_a_value_lives_until_its_next_pass() -> None:
    run = ran(0, 1, 2, 3, 4, 5, 6, 7, 1, 2)
    loop = memory("while_loop")
    assert loop.overwritten(6, 2, 8, run) is None
    assert loop.overwritten(6, 2, 9, run) == 1
    assert loop.overwritten(2, 6, 10, run) is None
    assert loop.overwritten(2, 6, 14, ran(*run, 3, 4, 5, 6)) == 5


# -- what a person sets


def tensor(dtype: Any, *shape: int) -> ValueInfo:
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=int)) * kind.itemsize
    return ValueInfo(tensor=TensorInfo(kind, shape, tuple(range(len(shape))), size))


def test_numbers_are_broadcast_and_cast() -> None:
    made = fit_value("x", tensor(np.float32, 2, 3), [1.0, 2.0, 3.0])
    assert made.dtype == np.float32 and made.tolist() == [[1, 2, 3], [1, 2, 3]]
    made = fit_value("x", tensor(ml_dtypes.bfloat16, 2), 0.5)
    assert made.dtype == ml_dtypes.bfloat16 and made.tolist() == [0.5, 0.5]
    assert fit_value("x", tensor(np.int64), np.float32(3)).shape == ()
    assert fit_value("n", ValueInfo(scalar=2), np.float64(5)) == 5
    assert fit_value("b", ValueInfo(scalar=True), 0) is False
    assert fit_value("d", ValueInfo(scalar=0.5), 1) == 1.0


@pytest.mark.parametrize(
    ("old", "value", "words"),
    [
        (tensor(np.float32, 2, 3), np.zeros((3, 2)), "shape [2, 3], but the value has [3, 2]"),
        (tensor(np.float32, 2), np.zeros((1, 2)), "has the shape [2], but the value has [1, 2]"),
        (tensor(np.float32, 2), "text", "takes numbers"),
        (tensor(np.float32, 2), 1j, "takes numbers"),
        (tensor(np.float32, 2), None, "takes numbers"),
        (tensor(np.float32, 2), [[1], [1, 2]], "takes numbers"),
        (tensor(np.int8, 2), 300, "cannot hold"),
        (tensor(np.int64, 2), 0.5, "cannot hold"),
        (tensor(np.int64, 2), np.nan, "cannot hold"),
        (tensor(np.bool_, 2), 2, "cannot hold"),
        (ValueInfo(scalar=2), 2.5, "is of int"),
        (ValueInfo(scalar=True), 2, "is of bool"),
        (ValueInfo(scalar=2), [1, 2], "is a number"),
        (ValueInfo(items=[]), 1, "is a list"),
        (ValueInfo(), 1, "cannot be set"),
    ],
)
def test_what_does_not_fit_is_refused(old: ValueInfo, value: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        fit_value("x", old, value)
    assert words in str(caught.value)
