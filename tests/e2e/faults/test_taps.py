"""Faults inside of XNNPACK: with taps, the diagnosis names one operator, and its line."""

from __future__ import annotations

from functools import cache

import pytest

from tests.support.faults import planted
from tests.support.faults.planted import Case, cases, diagnosed

TAPS = "op:*"
ALWAYS = (0, 9)
HOW_MANY = 12


@cache
def _found(case: Case) -> bool | None:
    """Whether the fault is named by its line alone; None if it is no fault on XNNPACK."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planted, "TAPS", (TAPS,))
        both = diagnosed(case, "xnnpack")
    if both is None:
        return None
    clean, faulty = both
    assert clean.is_fine, clean.verdict
    first = faulty.first
    return (
        first is not None and case.is_named(first) and [x.line for x in first.lines] == [case.line]
    )


@pytest.mark.parametrize("index", ALWAYS)
def test_a_fault_inside_of_a_delegate_is_one_line(index: int) -> None:
    assert _found(list(cases(index + 1))[index])


@pytest.mark.slow
def test_faults_inside_of_delegates_are_single_lines(capsys: pytest.CaptureFixture[str]) -> None:
    found = [_found(case) for case in cases(HOW_MANY)]
    hits = [hit for hit in found if hit is not None]
    with capsys.disabled():
        print(f"\nxnnpack with taps: {sum(hits)} of {len(hits)} planted faults are single lines")
    assert len(hits) >= 0.6 * HOW_MANY
    assert sum(hits) >= 0.9 * len(hits)
