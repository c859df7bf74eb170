"""The peaks that the times of a calibration's methods tell."""

from __future__ import annotations

import pytest

from etscope.analysis.calibration import (
    PRODUCTS,
    ROWS,
    WORKING_SETS,
    Execution,
    executions_of,
    peaks_of,
)

MIB = 1 << 20
METHODS = ("gemm_8da4w_64", "adds_2", "adds_10", "kernels_4", "kernels_36", "delegates_2", "other")


def timed(**rounds: list[float]) -> dict[Execution, list[float]]:
    """Executions of these methods, of additions those of 1 MiB, with their times, ns."""
    found = {}
    for one in executions_of(rounds):
        if one.group != "adds" or one.working_set_bytes == MIB:
            found[one] = rounds[one.method]
    return found


def test_what_is_timed_of_a_program() -> None:
    found = executions_of(METHODS)
    assert {one.method for one in found} == set(METHODS) - {"other"}
    assert [one.working_set_bytes for one in found if one.method == "adds_2"] == list(WORKING_SETS)
    small = executions_of(METHODS, most_bytes=MIB)
    assert max(one.working_set_bytes for one in small if one.group == "adds") == MIB
    (product,) = [one for one in found if one.group == "gemm 8da4w"]
    assert (product.rows, product.columns, product.dtype) == (ROWS, 64, "8da4w")


def test_rates_are_of_the_operators_alone() -> None:
    flop = 2 * ROWS * 64 * 64 * PRODUCTS
    times = timed(
        gemm_float32_64=[flop / 10, flop / 9, flop / 11],
        adds_2=[5000.0, 5000.0, 5000.0],
        adds_10=[5000.0 + 8 * us * 1e3 for us in (100, 90, 110)],
        kernels_4=[900.0] * 3,
        kernels_36=[900.0 + 32 * 70] * 3,
        delegates_2=[1e3] * 3,
        delegates_10=[1e3 + 8 * 400.0] * 3,
    )
    peaks = peaks_of(2, times)
    assert peaks.threads == 2
    assert peaks.peak_flops("float32") == pytest.approx(10e9)
    # Two arrays of half a MiB are read, one is written, in 100 us.
    (memory,) = peaks.memory
    assert memory.working_set_bytes == MIB
    assert memory.bytes_per_s.median == pytest.approx(1.5 * MIB / 100e-6)
    assert memory.bytes_per_s.low < memory.bytes_per_s.median < memory.bytes_per_s.high
    assert memory.bytes_per_s.rounds == 3
    assert (peaks.dispatch_ns, peaks.delegate_call_ns) == (pytest.approx(70), pytest.approx(400))


def test_a_long_chain_that_takes_no_longer_tells_nothing() -> None:
    peaks = peaks_of(
        1, timed(adds_2=[5000.0] * 3, adds_10=[4000.0, 4900.0, 9000.0], kernels_4=[10.0] * 3)
    )
    assert (peaks.memory, peaks.dispatch, peaks.delegate_call) == ((), None, None)
