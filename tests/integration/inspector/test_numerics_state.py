"""Numerics of models that keep state, run after run; and NaN that only the device has."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope import Inspector  # noqa: E402
from etscope.analysis.numerics.rows import Numerics  # noqa: E402
from etscope.bundled_program import bundle_cases  # noqa: E402
from etscope.errors import EtscopeWarning, MismatchError, NumericGapError, UsageError  # noqa: E402
from etscope.run import Call, Run, run  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.run.stateful import cache_calls  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


SAMPLES = [torch.full((3,), value) for value in (1.0, 0.25, -2.0)]


def files(name: str) -> tuple[Path, Path]:
    """The program and the record of a model of `artifact_recipes/stateful.py`."""
    made = artifacts("stateful")
    return made.extra(f"{name}.pte"), made.extra(f"{name}.etrecord")


@cache
def ran(name: str = "sum", *, fresh: bool = False) -> Run:
    """Three runs in a row; or, as test cases, each of them twice after a load of its own."""
    program: Any
    program, record = files(name)[0], files("sum")[1]
    given: Any = [Call(None, (x,), iterations=1, warmup=0) for x in SAMPLES]
    if fresh:
        cases = [((x,), (x,)) for x in SAMPLES]
        program, given = bundle_cases(program.read_bytes(), {"forward": cases}), None
    return run(
        program, given, etrecord=record, verify=False, iterations=2, warmup=0,
        debug_level="intermediate_outputs", separate=False, isolate=False,
    )  # fmt: skip


def perfect(found: Numerics) -> bool:
    return all(row.total is not None and row.total > 130 for row in found.rows)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_state_comes_from_the_runs_before(number: int) -> None:
    opened = ran().inspector(verify=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EtscopeWarning)
        found = opened.diagnose_numerics(
            run=number, inputs=(SAMPLES[number],), previous=[(x,) for x in SAMPLES[:number]]
        )
    assert found.is_fine and perfect(found) and not found.doubts


def test_inputs_of_runs_before_that_are_not_known_are_said() -> None:
    opened = ran().inspector(calls=())
    with pytest.warns(EtscopeWarning, match="inputs of the runs before run 3 are unknown"):
        found = opened.diagnose_numerics(run=2, inputs=(SAMPLES[2],))
    # The device's own state was logged: no operator is blamed for the guess.
    assert found.is_fine and not perfect(found)
    assert any("are unknown" in doubt for doubt in found.doubts)
    with pytest.raises(UsageError, match="2 earlier runs, but previous= has the inputs of 1"):
        opened.diagnose_numerics(run=2, inputs=(SAMPLES[2],), previous=[SAMPLES[0]])


def test_a_run_on_other_inputs_is_not_judged_by_those_of_the_record() -> None:
    """Neither are given, nor are they noted beside the dump."""
    opened = ran().inspector(verify=True, calls=())
    assert opened.diagnose_numerics(run=0).is_fine
    with pytest.raises(MismatchError, match=r"run of 'forward' are unknown: .* reads them"):
        opened.diagnose_numerics(run=2)


def test_a_run_that_was_not_saved_knows_its_calls() -> None:
    opened = ran().inspector()
    with warnings.catch_warnings():
        warnings.simplefilter("error", EtscopeWarning)
        for number in range(3):
            found = opened.diagnose_numerics(run=number)
            assert found.is_fine and perfect(found) and not found.doubts


def test_an_error_in_the_state_is_inherited_by_the_next_run() -> None:
    opened = ran("sum_off").inspector(verify=True)
    found = opened.diagnose_numerics(run=1, inputs=(SAMPLES[1],), previous=[(SAMPLES[0],)])
    assert [row.label for row in found.wrong] == ["mul"]
    decay = found.rows[0]
    # The first operator reads the state only: what it makes of the device's is right.
    assert decay.label == "mul" and decay.local is not None and decay.local > 130
    assert decay.total is not None and 35 < decay.total < 45


def test_loading_starts_anew_and_test_cases_tell_their_inputs() -> None:
    done = ran(fresh=True)
    opened = done.inspector(verify=True)
    assert len(done.trace.blocks) > 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", EtscopeWarning)
        for number in range(6):
            found = opened.diagnose_numerics(run=number)
            assert found.is_fine and perfect(found), (number, found.notes)


def test_test_cases_without_their_bundle_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of two cases after one load, as other runtimes may log them."""
    from etscope.analysis.numerics.runs import Sequences, TracedMethod
    from etscope.diagnosis.reference import RunInputs

    method = TracedMethod(ran(fresh=True).inspector(calls=()).trace, "forward")
    runs = method.runs
    monkeypatch.setattr(TracedMethod, "sequences", Sequences((tuple(runs),)))
    with pytest.raises(NumericGapError, match="test case 0"):
        RunInputs(method, (SAMPLES[1],)).before(runs[2])
    found = RunInputs(method, (SAMPLES[0],)).before(runs[1])
    assert len(found.runs) == 1 and not found.doubts


def test_inputs_of_a_saved_run_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etscope.analysis.numerics import runs
    from etscope.analysis.profile.trace import Trace
    from etscope.diagnosis.numerics import RunToCompare, numerics_of
    from etscope.formats.etdump.debug_values import DebugBuffer
    from etscope.formats.etdump.reader import read_etdump
    from etscope.formats.torch_files import tensor_files

    done = ran()
    done.save(tmp_path)
    trace = Trace(
        read_etdump(tmp_path / "run.etdp"),
        record=done.trace.record,
        debug_buffer=DebugBuffer.open(tmp_path / "debug.bin"),
    )
    read, listed = [], []
    read_file, runs_of = tensor_files.read_tensor_file, runs.runs_of
    monkeypatch.setattr(
        tensor_files, "read_tensor_file", lambda path: read.append(path) or read_file(path)
    )
    monkeypatch.setattr(
        runs, "runs_of", lambda *of_method: listed.append(of_method) or runs_of(*of_method)
    )
    found = numerics_of(trace, RunToCompare(run=2))
    assert found.is_fine and perfect(found) and not found.doubts
    assert read == [tmp_path / "inputs.npz"]
    assert len(listed) == 2  # for the method that ran, and for its runs


@pytest.fixture(scope="module")
def shared() -> Run:
    """A prefill and three decodes that go on with the cache that it wrote."""
    program, record = files("shared_cache")
    calls = [
        Call(method, tuple(value.numpy() for value in values), iterations=1, warmup=1)
        for method, values, _ in cache_calls()
    ]
    return run(
        program, calls, etrecord=record,
        debug_level="intermediate_outputs",
    )  # fmt: skip


def test_a_method_goes_on_from_what_another_wrote(shared: Run, tmp_path: Path) -> None:
    shared.save(tmp_path)
    saved = Inspector(
        etdump_path=tmp_path / "values.etdp",
        debug_buffer_path=tmp_path / "debug.bin",
        etrecord=shared.opened.record,
    )
    for opened in (shared.inspector(), saved):
        for method, number in (("prefill", 0), ("decode", 0), ("decode", 1), ("decode", 2)):
            found = opened.diagnose_numerics(method=method, run=number)
            assert found.is_fine and not found.doubts
            assert all(row.total is not None and row.total > 100 for row in found.rows)
            gap = opened.numeric_gap(["sqnr"], method=method, run=number)
            assert gap.rows and all((row.metrics["sqnr"] or 0) > 100 for row in gap.rows)


def test_a_method_is_not_blamed_for_what_another_wrote(shared: Run) -> None:
    opened = shared.inspector(calls=())
    (_, inputs, _) = cache_calls()[1]
    with pytest.raises(NumericGapError, match="'decode' reads buffers that 'prefill' wrote"):
        opened.diagnose_numerics(method="decode", inputs=inputs)


def test_a_run_knows_what_it_warmed_up_with() -> None:
    program, record = files("sum")
    done = run(
        program, (SAMPLES[0],), etrecord=record, iterations=2, warmup=2,
        debug_level="intermediate_outputs", separate=False, isolate=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error", EtscopeWarning)
        for number in range(2):
            found = done.numerics(run=number)
            # The state before the first run of the dump is not logged: it is the reference's.
            assert found.is_fine and perfect(found)


def test_nan_that_only_the_device_has_is_a_finding_when_no_operator_is_wrong() -> None:
    x = torch.full((3,), 2.0)
    done = run(
        files("root_off")[0], (x,), etrecord=files("root")[1], verify=False,
        debug_level="intermediate_outputs", separate=False, isolate=False,
        iterations=1, warmup=0,
    )  # fmt: skip
    found = done.inspector().diagnose_numerics("max_abs", tolerance=1.0, inputs=(x,))
    assert not found.wrong and not found.is_fine
    stray = found.stray_nan
    assert stray is not None and stray.label == "sqrt"
    assert stray.non_finite is not None and stray.non_finite.new_nan == 3
    assert "3 NaN where the reference has numbers" in found.verdict
