"""Runs on the debugger's server: forth, back, again, and what is written on the way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from etscope.errors import EtscopeError, MismatchError
from etscope.etdb.protocol.messages import Condition, NumberTest, StopReason
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.scalar_type import ScalarType
from tests.support.etdb.native_runs import (
    FALSE,
    ONE,
    Run,
    artifact_run,
    counting,
    loaded,
    write_program,
)
from tests.support.run.echo import typed

SIZE = 1 << 16


@pytest.fixture
def count(tmp_path: Path) -> Iterator[Run]:
    """A program whose tensor 0 is the number of passes of its endless loop."""
    inputs = [np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32)]
    with loaded(counting(tmp_path / "counting.pte", SIZE), inputs) as run:
        yield run


def _is_full_of(run: Run, number: float) -> bool:
    return bool(np.all(run.read(0) == number))


# -- forth and back


@pytest.mark.parametrize(
    "name",
    ["cnn_portable", "while_loop", "cond", "dynamic_shape", "bf16_fp16", "rewritten_state"],
)
def test_wherever_it_goes_everything_is_as_it_was(name: str) -> None:
    with artifact_run(name) as run:
        seen: list[tuple[int | None, list[npt.NDArray[Any]]]] = [(None, [])]
        while (stopped := run.go(most=1)).why == StopReason.MOST_STEPS:
            assert stopped.step == len(seen)
            seen.append((stopped.instruction, run.written_by(stopped.instruction)))
        assert stopped.why == StopReason.END
        shuffled = random.Random(0)
        for _ in range(40):
            step = shuffled.randrange(len(seen))
            stopped = run.runner.go_to(step)
            assert (stopped.why, stopped.step) == (StopReason.REACHED, step)
            assert stopped.differences == ()
            instruction, tensors = seen[step]
            assert stopped.instruction == instruction
            for now, then in zip(run.written_by(instruction), tensors, strict=True):
                assert (now.dtype, now.shape) == (then.dtype, then.shape)
                assert now.tobytes() == then.tobytes()


@pytest.mark.parametrize("name", ["written_state", "rewritten_state"])
def test_every_run_begins_with_the_state_of_the_program(name: str) -> None:
    found = []
    with artifact_run(name) as run:
        for _ in range(3):
            assert run.go().why == StopReason.END
            found.append([run.written_by(i) for i in range(len(run.outputs))])
            run.runner.begin()
    for again in found[1:]:
        for before, after in zip(found[0], again, strict=True):
            for one, other in zip(before, after, strict=True):
                np.testing.assert_array_equal(one, other)


def _run_a_while(run: Run) -> int:
    """Run for a part of a second, and return the steps: states are kept each tenth of a second,
    however far it gets in that."""
    total_ns = 0
    while total_ns < 4e8:
        stopped = run.go(most=2000)
        assert stopped.why == StopReason.MOST_STEPS
        total_ns = stopped.total_ns
    return stopped.step


def test_a_state_that_was_kept_is_the_state(count: Run) -> None:
    steps = _run_a_while(count)
    assert _is_full_of(count, steps / 2)
    assert count.runner.go_to(steps - 1).total_ns > 0
    assert _is_full_of(count, steps / 2)
    middle = steps // 2 + 1
    for step in (0, steps * 3 // 4, 17, steps - 1, middle):
        stopped = count.runner.go_to(step)
        assert (stopped.step, stopped.differences) == (step, ())
        assert _is_full_of(count, (step + 1) // 2)
    ahead = count.runner.go_to(steps)
    assert list(ahead.ran[:3]) == [1, 0, 1]
    assert len(ahead.ran) == steps - middle


def test_a_state_that_was_kept_spares_the_way(tmp_path: Path) -> None:
    """What runs again gives other numbers: they begin behind the state that was kept."""
    sizes = pte.ListValue(pte.ValueKind.INT_LIST, (0,))
    values = [pte.ScalarValue(pte.ValueKind.INT, SIZE), sizes, typed(ScalarType.FLOAT, SIZE), FALSE]
    calls = [pte.KernelCall(0, (1, 2, 2)), pte.JumpFalseCall(3, 0)]
    path = write_program(
        tmp_path / "noise.pte", values, calls, ["aten::rand.out"], inputs=(2,), outputs=(2,)
    )
    with loaded(path, [np.zeros(SIZE, np.float32)]) as run:
        steps = _run_a_while(run)
        first = run.runner.go_to(steps - 1).differences[0].step
        assert 1 < first < steps
        assert run.runner.go_to(1).differences[0].step == 1


def test_times_add_up(count: Run) -> None:
    first = count.go(most=1)
    assert first.total_ns == first.last_ns > 0
    second = count.go(most=1)
    assert second.total_ns == first.total_ns + second.last_ns
    back = count.runner.go_to(1)
    assert back.total_ns == back.last_ns  # measured again


# -- what is written


def test_what_is_written_is_written_again_on_the_way(count: Run) -> None:
    count.go(most=100)
    count.runner.go_to(51)
    count.runner.write(0, np.full(SIZE, 1000, np.float32))
    assert count.go(most=10).why == StopReason.MOST_STEPS  # 61: five more passes
    assert _is_full_of(count, 1005)
    count.runner.go_to(50)
    assert _is_full_of(count, 25)
    stopped = count.runner.go_to(61)
    assert stopped.differences == ()
    assert _is_full_of(count, 1005)
    count.runner.begin()
    count.go(most=61)
    assert _is_full_of(count, 31)


def test_the_last_that_is_written_counts_and_ends_what_came_after(count: Run) -> None:
    count.go(most=31)
    count.runner.write(0, np.full(SIZE, 100, np.float32))
    count.go(most=10)
    count.runner.write(0, np.full(SIZE, 200, np.float32))  # at 41
    count.runner.go_to(31)
    assert _is_full_of(count, 100)
    count.runner.write(0, np.full(SIZE, 50, np.float32))
    stopped = count.runner.go_to(41)
    assert stopped.differences == ()
    assert _is_full_of(count, 55)  # what was written at 41 is forgotten


def test_a_constant_is_what_it_was_before_it_was_written() -> None:
    with artifact_run("cnn_portable") as run:
        run.go()
        (answer,) = run.written_by(len(run.outputs) - 1)
        run.runner.go_to(2)
        weight = _constant_of_the_last_linear(run)
        original = run.read(weight)
        run.runner.write(weight, np.zeros_like(original))
        run.go()
        (other,) = run.written_by(len(run.outputs) - 1)
        assert not np.allclose(answer, other)
        run.runner.go_to(1)
        np.testing.assert_array_equal(run.read(weight), original)
        run.runner.go_to(3)
        assert not run.read(weight).any()
        run.runner.begin()
        np.testing.assert_array_equal(run.read(weight), original)
        run.go()
        np.testing.assert_array_equal(run.written_by(len(run.outputs) - 1)[0], answer)


def _constant_of_the_last_linear(run: Run) -> int:
    return max(
        index
        for index, value in enumerate(run.method.values)
        if isinstance(value, pte.TensorValue) and value.allocation is None and len(value.sizes) == 2
    )


def test_inputs_are_those_of_the_next_run(count: Run) -> None:
    count.go(most=21)
    ones = np.ones(SIZE, np.float32)
    for wrong in ([ones], [ones, np.ones(SIZE + 1, np.float32)], [ones, 1]):
        with pytest.raises(MismatchError):
            count.runner.set_inputs(wrong)
    assert _is_full_of(count, 11)
    count.runner.set_inputs([100 * ones, ones])
    assert _is_full_of(count, 11)
    count.runner.go_to(0)
    assert _is_full_of(count, 0)
    count.runner.begin()
    assert _is_full_of(count, 100)


# -- what runs again and gives something else


def _random_program(path: Path) -> Path:
    """Two instructions: random numbers, and twice as many."""
    eight = pte.ScalarValue(pte.ValueKind.INT, 8)
    sizes = pte.ListValue(pte.ValueKind.INT_LIST, (0, 0))
    tensor = typed(ScalarType.FLOAT, 8, 8)
    values = [eight, ONE, tensor, tensor, FALSE, sizes]
    calls = [pte.KernelCall(0, (5, 2, 2)), pte.KernelCall(1, (2, 2, 1, 3, 3))]
    operators = ["aten::rand.out", "aten::add.out"]
    return write_program(path, values, calls, operators, inputs=(2, 3), outputs=(3,))


def test_what_gives_something_else_is_told(tmp_path: Path) -> None:
    nothing = np.zeros((8, 8), np.float32)
    path = _random_program(tmp_path / "random.pte")
    with loaded(path, [nothing, nothing]) as run:
        assert run.go().differences == ()
        first = run.read(3)
        assert first.any()
        assert run.runner.go_to(0).differences == ()
        stopped = run.go()
        told = [(one.step, one.instruction, one.value) for one in stopped.differences]
        assert told == [(1, 0, 2), (2, 1, 3)]
        second = run.read(3)
        assert not np.array_equal(first, second)
        core = run.runner.core()
        assert [one.step for one in core.differences] == [1, 2]
        np.testing.assert_array_equal(run.read(3), second)  # it stays


def _deciding(path: Path) -> Path:
    """A program that tosses a coin, and jumps over its fourth instruction if it is below a half."""
    half = pte.ScalarValue(pte.ValueKind.DOUBLE, 0.5)
    sizes = pte.ListValue(pte.ValueKind.INT_LIST, (1,))
    coin = typed(ScalarType.FLOAT, 1)
    heads = typed(ScalarType.BOOL, 1)
    values = [coin, ONE, sizes, half, heads]
    calls = [
        pte.KernelCall(0, (2, 0, 0)), pte.KernelCall(1, (0, 3, 4, 4)), pte.JumpFalseCall(4, 4),
        pte.KernelCall(2, (0, 0, 1, 0, 0)), pte.KernelCall(2, (0, 0, 1, 0, 0)),
    ]  # fmt: skip
    operators = ["aten::rand.out", "aten::ge.Scalar_out", "aten::add.out"]
    return write_program(path, values, calls, operators, inputs=(0, 4))


def test_another_way_through_the_program_is_told(tmp_path: Path) -> None:
    inputs = [np.zeros(1, np.float32), np.zeros(1, bool)]
    with loaded(_deciding(tmp_path / "coin.pte"), inputs) as run:
        before = run.go()
        for _ in range(100):
            run.runner.go_to(0)
            core = run.runner.core()  # may go either way, and changes nothing
            assert len(core.etdump) > 100
            now = run.go()
            other = [one for one in now.differences if one.value is None]
            assert bool(other) == (now.step != before.step)
            if other:
                break
            before = now
        (told,) = other  # what comes behind it is new
        assert told.step == 4
        assert told.instruction == (4 if now.step == 4 else 3)
        back = run.runner.go_to(3)
        assert back.step == 3
        again = run.runner.go_to(now.step)
        assert again.why in (StopReason.REACHED, StopReason.END)


# -- what fails


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Run]:
    """A program whose second instruction writes to a tensor that is too small."""
    values = [typed(ScalarType.FLOAT, 4), typed(ScalarType.FLOAT, 3), ONE, FALSE]
    calls = [pte.KernelCall(0, (0, 0, 2, 0, 0)), pte.KernelCall(0, (0, 0, 2, 1, 1))]
    path = write_program(
        tmp_path / "failing.pte", values, calls, ["aten::add.out"], inputs=(0, 1), outputs=(1,)
    )
    inputs = [np.ones(4, np.float32), np.ones(3, np.float32)]
    with loaded(path, inputs) as run:
        yield run


def test_an_instruction_that_fails_tells_why(failing: Run) -> None:
    stopped = failing.go()
    assert (stopped.why, stopped.step, stopped.instruction) == (StopReason.FAILED, 1, 1)
    assert stopped.error.startswith("Error::InvalidArgument (18)")
    assert "KernelCall failed at instruction 0:1 in operator aten::add.out" in stopped.error
    with pytest.raises(EtscopeError, match="only go back"):
        failing.go()
    with pytest.raises(EtscopeError, match="only go back"):
        failing.runner.go_to(2)
    np.testing.assert_array_equal(failing.read(0), np.full(4, 2, np.float32))
    core = failing.runner.core()
    assert b"OPERATOR_CALL" in core.etdump
    assert failing.runner.go_to(0).why == StopReason.REACHED
    np.testing.assert_array_equal(failing.read(0), np.ones(4, np.float32))
    assert failing.go().why == StopReason.FAILED
    failing.runner.write(0, np.full(4, 9, np.float32))  # is before the instruction again
    again = failing.go()
    assert (again.why, again.step) == (StopReason.FAILED, 1)
    np.testing.assert_array_equal(failing.read(0), np.full(4, 9, np.float32))


# -- tests of numbers


def test_a_test_stops_where_it_holds(count: Run) -> None:
    tests = [
        NumberTest(Condition.NAN, count.at(0)),
        NumberTest(Condition.ABOVE, count.at(1), 3),  # a jump writes nothing
        NumberTest(Condition.ABOVE, count.at(0), 41.5),
    ]
    stopped = count.runner.go(count.nowhere, tests)
    assert (stopped.why, stopped.step, stopped.instruction) == (StopReason.TEST, 83, 0)
    assert (stopped.test, stopped.value, stopped.count) == (2, 0, SIZE)
    poisoned = count.read(0)
    poisoned[[3, 77]] = np.nan, -np.inf
    count.runner.write(0, poisoned)
    stopped = count.runner.go(count.nowhere, tests)
    assert (stopped.why, stopped.step, stopped.test, stopped.count) == (StopReason.TEST, 85, 0, 1)
    infinite = [NumberTest(Condition.INF, count.at(0))]
    stopped = count.runner.go(count.nowhere, infinite)
    assert (stopped.step, stopped.test, stopped.count) == (87, 0, 1)
    below = [NumberTest(Condition.BELOW, count.at(0), -1e300)]
    assert count.runner.go(count.nowhere, below).count == 1
    never = [NumberTest(Condition.BELOW, count.at(0), float("nan"))]
    assert count.runner.go(count.nowhere, never, most=5).why == StopReason.MOST_STEPS


@pytest.mark.parametrize("condition", [Condition.BELOW, Condition.ABOVE])
def test_bounds_are_compared_as_doubles(count: Run, condition: Condition) -> None:
    numbers = np.array(
        [0.1, 0, -0.1, np.inf, -np.inf, np.nan, 16777216, 16777218, 3e38], np.float32
    )
    held = np.zeros(SIZE, np.float32)
    held[: len(numbers)] = numbers
    wide = held.astype(np.float64)
    count.runner.set_inputs([held, np.zeros(SIZE, np.float32)])
    for bound in (0.1, float(np.float32(0.1)), 1e300, -1e300, 16777217.0):
        count.runner.begin()
        stopped = count.runner.go(count.nowhere, [NumberTest(condition, count.at(0), bound)])
        holds = wide < bound if condition == Condition.BELOW else wide > bound
        assert stopped.count == np.count_nonzero(holds)


# -- not now


def test_an_execution_has_the_limit_of_the_runtime(tmp_path: Path) -> None:
    jump = [pte.JumpFalseCall(0, 0)]
    path = write_program(tmp_path / "idle.pte", [FALSE], jump, [], inputs=(), outputs=())
    with loaded(path, []) as run:
        stopped = run.go()
        assert (stopped.why, stopped.step) == (StopReason.FAILED, 10_000_000)
        assert "more than the runtime allows" in stopped.error
        assert run.runner.go_to(5).step == 5
