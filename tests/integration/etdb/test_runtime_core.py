"""Dumps of runs on the debugger's server, and statistics of what they wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from etscope import Inspector
from etscope.errors import MissingDataError
from etscope.etdb.protocol.messages import Core, Statistics, StopReason
from etscope.formats.program.scalar_type import ScalarType
from etscope.run import run as run_natively
from tests.support.artifacts import artifacts
from tests.support.etdb.native_runs import FALSE, artifact_run, counting, loaded, write_program
from tests.support.etdb.runtimes import inputs_of, method_of
from tests.support.run.echo import echo_program, typed


def opened(core: Core, folder: Path, name: str | None = None) -> Inspector:
    """With the record of an artefact."""
    (folder / "core.etdp").write_bytes(core.etdump)
    (folder / "core.bin").write_bytes(core.debug_buffer)
    record = artifacts(name).etrecord if name is not None else None
    return Inspector(
        etdump_path=folder / "core.etdp", debug_buffer_path=folder / "core.bin", etrecord=record
    )


def _logged(inspector: Inspector) -> list[tuple[Any, list[bytes]]]:
    """The events of the execution, without their times, and the bytes of what they wrote."""
    (block,) = (b for b in inspector.event_blocks if b.name == "Execute")
    return [
        (
            (event.name, event.instruction_id, event.delegate_debug_identifier),
            [value.numpy().tobytes() for value in event.debug_data],
        )
        for event in block.events
    ]


@pytest.mark.filterwarnings("ignore:an ETDump cannot hold")
@pytest.mark.parametrize(
    "name", ["cnn_portable", "cnn_xnnpack", "while_loop", "bf16_fp16", "written_state"]
)
def test_a_core_of_a_whole_run_is_the_dump_of_an_execution(name: str, tmp_path: Path) -> None:
    artifact = artifacts(name)
    with artifact_run(name) as run:
        assert run.go().why == StopReason.END
        again = run.runner.core()
        assert again.differences == ()
        run.runner.begin(traced=True)
        run.go()
        traced = run.runner.core()
    executed = run_natively(
        artifact.pte,
        inputs_of(name),
        method=method_of(artifact),
        debug_level="intermediate_outputs",
        iterations=1,
        warmup=0,
        separate=False,
        runner="native",
    )
    executed.save(tmp_path)
    expected = _logged(
        Inspector(
            etdump_path=tmp_path / "run.etdp",
            debug_buffer_path=tmp_path / "debug.bin",
            etrecord=artifact.etrecord,
        )
    )
    assert len(expected) > 1
    assert _logged(opened(again, tmp_path, name)) == expected
    assert _logged(opened(traced, tmp_path, name)) == expected


def test_a_core_holds_what_ran_so_far_and_what_was_written(tmp_path: Path) -> None:
    ones = np.ones(4, np.float32)
    with loaded(counting(tmp_path / "c.pte", 4), [0 * ones, ones]) as run:
        (block,) = opened(run.runner.core(), tmp_path).event_blocks
        assert [event.name for event in block.events] == ["Method::execute"]  # little to tell yet
        run.go(most=5)
        run.runner.write(0, 100 * ones)
        run.go(most=4)
        for traced in (False, True):
            if traced:
                run.runner.begin(traced=True)
                run.go(most=5)
                run.runner.write(0, 100 * ones)
                run.go(most=30)
                run.runner.go_to(7)  # what came after it is not part of it
                run.go(most=2)
            for _ in range(2):  # nothing has changed
                inspector = opened(run.runner.core(), tmp_path)
                (block,) = inspector.event_blocks
                written = [float(value.numpy()[0]) for e in block.events for value in e.debug_data]
                assert sorted(set(written)) == [1, 2, 100, 101, 102]  # 3 was written over
                assert [event.name for event in block.events].count("OPERATOR_CALL") == 5
            assert run.read(0)[0] == 102
            run.go(most=2)  # and it goes on
            assert run.read(0)[0] == 103
            run.runner.go_to(9)


def test_a_program_that_gives_back_what_it_gets_ends_at_once(tmp_path: Path) -> None:
    echo = echo_program(tmp_path / "echo.pte", [typed(ScalarType.FLOAT, 3)])
    with loaded(echo, [np.arange(3, dtype=np.float32)]) as run:
        stopped = run.go()
        assert (stopped.why, stopped.step) == (StopReason.END, 0)
        np.testing.assert_array_equal(run.read(0), [0, 1, 2])


# -- statistics


NUMBERS = [0.5, -3, 7, 0.25, np.nan, np.inf, -np.inf, np.inf, 100, -0.0]


def statistics_of(folder: Path, scalar_type: ScalarType, array: npt.NDArray[Any]) -> Statistics:
    echo = echo_program(folder / "echo.pte", [typed(scalar_type, *array.shape)])
    with loaded(echo, [array]) as run:
        return run.runner.statistics(0)


FLOATING = [(ScalarType.FLOAT, np.float32), (ScalarType.DOUBLE, np.float64),
            (ScalarType.HALF, np.float16), (ScalarType.BFLOAT16, ml_dtypes.bfloat16)]  # fmt: skip
WHOLE = [(ScalarType.BYTE, np.uint8), (ScalarType.CHAR, np.int8), (ScalarType.SHORT, np.int16),
         (ScalarType.INT, np.int32), (ScalarType.LONG, np.int64), (ScalarType.BOOL, np.bool_),
         (ScalarType.UINT16, np.uint16), (ScalarType.UINT32, np.uint32),
         (ScalarType.UINT64, np.uint64)]  # fmt: skip


@pytest.mark.parametrize(("scalar_type", "dtype"), [*FLOATING, *WHOLE])
def test_statistics(scalar_type: ScalarType, dtype: Any, tmp_path: Path) -> None:
    if (scalar_type, dtype) in FLOATING:
        array, special = np.array(NUMBERS * 999, dtype).reshape(-1, 3), (999, 1998, 999)
    else:
        limits = (0, 1) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        array, special = np.array([0, 1, 1, *limits], dtype), (0, 0, 0)
    found = statistics_of(tmp_path, scalar_type, array)
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    assert found.elements == array.size
    assert (found.nan, found.plus_inf, found.minus_inf) == special
    assert (found.least, found.greatest) == (finite.min(), finite.max())
    assert found.mean == pytest.approx(finite.mean(), rel=1e-12)
    assert found.deviation == pytest.approx(finite.std(), rel=1e-12)


def test_statistics_of_numbers_whose_squares_no_double_can_hold(tmp_path: Path) -> None:
    array = np.array([1e308, -1e308, 1e308, 1e307])
    found = statistics_of(tmp_path, ScalarType.DOUBLE, array)
    assert found.mean == pytest.approx(2.75e307, rel=1e-12)
    assert found.deviation == pytest.approx(np.std(array / 1e308) * 1e308, rel=1e-12)


@pytest.mark.parametrize("array", [np.zeros(0, np.float32), np.full(3, np.nan, np.float32)])
def test_statistics_of_nothing(array: npt.NDArray[Any], tmp_path: Path) -> None:
    found = statistics_of(tmp_path, ScalarType.FLOAT, array)
    assert found.elements == array.size
    assert np.isnan([found.least, found.greatest, found.mean, found.deviation]).all()


def test_values_without_statistics(tmp_path: Path) -> None:
    values = [typed(ScalarType.QINT8, 4), FALSE]
    path = write_program(tmp_path / "q.pte", values, [], [], inputs=(), outputs=(1,))
    reasons = "has no memory now", "value 1 is no tensor", "there is no value 2"
    with loaded(path, []) as run:
        for value, reason in enumerate(reasons):
            with pytest.raises(MissingDataError, match=reason):
                run.runner.statistics(value)
