"""Calls of a model that keeps state: each is compared with the reference in the same state."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope.etdb import Session  # noqa: E402
from etscope.export import export  # noqa: E402
from etscope.run import Call, run  # noqa: E402
from tests.support.etdb.runtime_sessions import OPEN, target_of  # noqa: E402
from tests.support.etdb.sessions import refused, said  # noqa: E402
from tests.support.run.stateful import Cache  # noqa: E402

COUNT = 6
LAST = "aten_view_copy_default_7"


def inputs(call: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(call)
    return torch.randn(1, 1, 8, generator=generator), torch.tensor([call])


@pytest.fixture(scope="module")
def expected() -> list[np.ndarray]:
    """What the eager model gives, call after call."""
    model = Cache()
    return [model(*inputs(call)).numpy() for call in range(COUNT)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decode that was recorded for six tokens."""
    found = tmp_path_factory.mktemp("decode")
    exported = export(Cache(), inputs(0))
    exported.save(found, "model", bundle=False)
    calls = [Call(inputs=inputs(call), iterations=1, warmup=0) for call in range(COUNT)]
    done = run(
        exported.program, calls, etrecord=found / "model.etrecord",
        debug_level="intermediate_outputs",
    )  # fmt: skip
    done.save(found / "ran")
    return found


class WrongAxis(Cache):
    def _attend(self, query: torch.Tensor) -> torch.Tensor:
        return torch.softmax(query @ self.cache.transpose(1, 2), 1) @ self.cache


@pytest.fixture(scope="module")
def wrong(folder: Path) -> Path:
    """A program whose softmax is over another axis, and its runs, with the record of the right
    one."""
    exported = export(WrongAxis(), inputs(0))
    exported.save(folder, "device", bundle=False)
    calls = [Call(inputs=inputs(call), iterations=1, warmup=0) for call in range(COUNT)]
    done = run(exported.program, calls, debug_level="intermediate_outputs")
    done.save(folder / "wrong")
    return folder


def recorded(folder: Path) -> Session:
    ran = folder / "ran"
    return Session(folder / "model.etrecord", ran / "run.etdp", ran / "debug.bin")


def live(folder: Path, kind: str = "runtime", options: str | None = None) -> Session:
    one = Session(folder / "model.etrecord", folder / "model.pte")
    OPEN.append(one)
    options = f"--inputs {folder / 'ran' / 'inputs.npz'}" if options is None else options
    said(one, "set times off", f"target {kind} {options}")
    return one


def gap_of_last(one: Session) -> float:
    """dB of the output of the run, which is over."""
    return float(said(one, f"print gap(sqnr, {LAST})"))


def test_a_recorded_run_is_compared_with_its_own_call(
    folder: Path, expected: list[np.ndarray]
) -> None:
    one = recorded(folder)
    numbers = [info.number for info in one.debugger.some_target().runs]
    assert len(numbers) == COUNT
    for number, value in zip(numbers, expected, strict=True):
        said(one, f"run {number}")
        np.testing.assert_allclose(one.value(LAST), value, atol=1e-5)
        np.testing.assert_allclose(one.value(f"ref({LAST})"), value, atol=1e-5)
        assert "no operator goes wrong" in said(one, "gap")
        result = one.execute("blame")
        assert result.exit_code == 0 and "no operator goes wrong" in result.text
    assert "no run can be added" in refused(one, "run --keep")


def test_a_recorded_run_takes_the_sets_that_are_given(folder: Path) -> None:
    (folder / "bare").mkdir()
    for name in ("values.etdp", "debug.bin"):
        shutil.copy(folder / "ran" / name, folder / "bare" / name)
    files = folder / "model.etrecord", folder / "bare/values.etdp", folder / "bare/debug.bin"
    from etscope.etdb.targets.reference import Calls

    sets = [[value.numpy() for value in inputs(call)] for call in range(COUNT - 1)]
    one = Session(*files, inputs=Calls(sets))
    said(one, f"run {COUNT - 1}")
    assert gap_of_last(one) > 90
    assert "no operator goes wrong" in said(one, "gap")
    said(one, f"run {COUNT}")
    assert "there are inputs for only 5" in refused(one, f"print gap(sqnr, {LAST})")


@pytest.mark.parametrize("kind", ["runtime", "live"])
def test_each_call_goes_on_from_the_state_that_the_one_before_left(
    kind: str, folder: Path, expected: list[np.ndarray]
) -> None:
    one = live(folder, kind)
    why = "nothing has run yet" if kind == "runtime" else "a live run is PyTorch itself"
    assert why in refused(one, "blame")
    text = said(one, "run")
    for call, value in enumerate(expected):
        assert f"run {call} is over" in text
        np.testing.assert_allclose(one.value(LAST), value, atol=1e-5)
        if kind == "runtime":
            assert gap_of_last(one) > 90
            assert "no operator goes wrong" in said(one, "blame")
            assert "unknown metric" in refused(one, "blame nothing").lower()
        text = said(one, "continue") if call + 1 < COUNT else ""
    assert "run --keep goes on" in refused_hint(one, "continue")
    # Begun at a later call, the earlier ones run first.
    said(one, "run 4")
    np.testing.assert_allclose(one.value(LAST), expected[4], atol=1e-5)
    said(one, "run 0")
    np.testing.assert_allclose(one.value(LAST), expected[0], atol=1e-5)
    assert "runs are 0 to 5" in refused_hint(one, "run 6")


def refused_hint(one: Session, line: str) -> str:
    error = one.execute(line).error
    assert error is not None
    return f"{error.message}\n{error.hint}"


@pytest.mark.parametrize("kind", ["recorded", "runtime", "live"])
def test_a_condition_on_the_call_stops_in_that_call(kind: str, folder: Path) -> None:
    one = recorded(folder) if kind == "recorded" else live(folder, kind)
    wanted = one.debugger.some_target().runs[3].number
    said(one, f"break op:softmax if call == {wanted}")
    text = said(one, f"run {one.debugger.some_target().runs[0].number}")
    assert text.startswith(f"run {wanted}\nbreakpoint 1, op:softmax if call")
    assert said(one, "print call") == f"{wanted}\n"
    assert (one.value("$")[0, 0] > 0).all()
    assert "is over" in said(one, "continue")


def test_a_run_is_repeated_with_its_state_on_the_same_inputs(folder: Path) -> None:
    one = live(folder, options="")
    said(one, "run")
    first = one.value(LAST)
    assert "run 1 is over" in said(one, "run --keep")
    model = Cache()
    twice = [model(*inputs(0)).numpy() for _ in range(2)]
    np.testing.assert_allclose(first, twice[0], atol=1e-5)
    np.testing.assert_allclose(one.value(LAST), twice[1], atol=1e-5)
    np.savez(folder / "next.npz", *[value.numpy() for value in inputs(1)])
    said(one, f"run --keep {folder / 'next.npz'}")
    np.testing.assert_allclose(one.value(LAST), model(*inputs(1)).numpy(), atol=1e-5)
    assert gap_of_last(one) > 90
    assert len(one.debugger.some_target().runs) == 3


@pytest.mark.parametrize("kind", ["runtime", "live"])
def test_a_value_that_was_set_is_in_the_state_of_later_calls(kind: str, folder: Path) -> None:
    one = live(folder, kind)
    said(one, "start", "until op:addmm", "set $ = 7", "continue", "continue")
    changed = one.value("aten_index_put_default")
    np.testing.assert_array_equal(changed[0, 0], np.full(8, 7, np.float32))
    assert gap_of_last(one) < 60 if kind == "runtime" else True
    if kind == "runtime":  # the connection is lost: all calls are repeated, with what was set
        target_of(one)._execution.close()
        np.testing.assert_array_equal(one.value("aten_index_put_default"), changed)
    said(one, "run 1")  # anew, without it
    assert one.value("aten_index_put_default")[0, 0].max() < 7


def test_one_blame_for_recorded_runs_and_for_the_runtime(wrong: Path) -> None:
    ran = wrong / "wrong"
    one = Session(wrong / "model.etrecord", ran / "run.etdp", ran / "debug.bin")
    other = Session(wrong / "model.etrecord", wrong / "device.pte")
    OPEN.append(other)
    said(other, f"target runtime --inputs {ran / 'inputs.npz'}")
    recorded_runs = one.debugger.some_target().runs
    for call in (0, 3):
        said(one, f"run {recorded_runs[call].number}")
        said(other, f"run {call}")
        position = other.debugger.position
        results = [session.execute("blame") for session in (one, other)]
        for result in results:
            assert result.exit_code == 1
            assert "aten__softmax_default" in result.text.splitlines()[0]
            assert "is the first that goes wrong" in result.text
            assert "torch.softmax" in result.text.splitlines()[-1]
        # Only the recorded runs hold the values of the run before, which explain the error, too.
        texts = [re.sub(r"at it is: .*", "at it is", result.text) for result in results]
        assert texts[0] == texts[1]
        assert other.debugger.position == position


def test_blame_is_of_the_run_and_not_of_the_state_that_it_found(folder: Path) -> None:
    one = live(folder)
    said(one, "start", "until op:addmm", "set $ = 7")
    result = one.execute("blame")
    assert result.exit_code == 1 and "aten_addmm_default" in result.text
    said(one, "continue", "continue")
    result = one.execute("blame")
    assert result.exit_code == 0
    assert "run 1 began in a state that is not the reference's (cache)" in result.text


def test_a_live_call_is_compared_with_its_recorded_run(
    folder: Path, expected: list[np.ndarray]
) -> None:
    one = recorded(folder)
    said(one, "target live")
    assert len(one.debugger.some_target().runs) == COUNT  # the recorded inputs
    for call in (3, 1):
        said(one, f"run {call}")
        np.testing.assert_allclose(one.value(f"device({LAST})"), expected[call], atol=1e-5)
        np.testing.assert_allclose(one.value(f"ref({LAST})"), expected[call], atol=1e-5)
        assert "SQNR" in said(one, f"print {LAST}")
    said(one, "start", "until op:addmm", "set $ = 7", "continue", "continue")
    # The reference is the plain one, in the state that its own calls left.
    np.testing.assert_allclose(one.value(f"ref({LAST})"), expected[2], atol=1e-5)
    assert np.abs(one.value(LAST) - expected[2]).max() > 0.1
    worst = said(one, "gap").splitlines()[3:]
    assert "inf" not in worst[0]
    said(one, "run --keep", "run --keep", "run --keep", "run --keep")
    assert "none of call 6" in refused(one, f"print device({LAST})")


@pytest.mark.parametrize("kind", ["runtime", "live"])
def test_a_checkpoint_is_a_state_with_what_was_set_before_it(kind: str, folder: Path) -> None:
    one = live(folder, kind)
    assert "has not begun" in refused(one, "checkpoint")
    said(one, "start", "until op:addmm")
    first = one.value("$")
    assert said(one, "checkpoint").startswith("checkpoint 1: run 0, [")
    position = one.debugger.position
    said(one, "set $ = 7", "checkpoint", "continue", "continue")
    third = one.value(LAST)
    assert "the end, after" in said(one, "checkpoint")
    said(one, "set $x = 1", "run 4")

    text = said(one, "restart 1")
    assert text.startswith("run 0\n[") and one.debugger.position == position
    np.testing.assert_array_equal(one.value("$"), first)
    said(one, "restart 3")
    np.testing.assert_array_equal(one.value(LAST), third)
    said(one, "restart 2")
    assert (one.value("$") == 7).all()
    # The run goes on from there.
    said(one, "continue", "continue")
    np.testing.assert_array_equal(one.value(LAST), third)
    said(one, "restart 3")
    assert "run 2 is over" in said(one, "continue")


def test_checkpoints_are_listed_and_removed(folder: Path) -> None:
    one = recorded(folder)
    runs = [info.number for info in one.debugger.some_target().runs]
    assert said(one, "info checkpoints") == "no checkpoints\n"
    assert "checkpoint makes one" in refused_hint(one, "restart 1")
    said(one, f"run {runs[1]}", "start", "until op:softmax", "checkpoint", f"run {runs[2]}")
    said(one, "checkpoint")
    assert "softmax" in said(one, "info checkpoints")
    said(one, "restart 1")
    assert one.debugger.some_target().run == runs[1]
    assert one.debugger.here().path == "aten__softmax_default"
    said(one, "delete checkpoint 1")
    assert "checkpoint 1 does not exist" in refused(one, "restart 1")
    assert "name a checkpoint" in refused(one, "delete checkpoint")
    said(one, "target live")
    assert "checkpoint 2 does not exist" in refused(one, "restart 2")
