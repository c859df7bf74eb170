"""Faults that are planted into what a device runs: the diagnosis names the line of each, and has
nothing to say of models without."""

from __future__ import annotations

from functools import cache

import pytest

from tests.support.faults import planted
from tests.support.faults.planted import Case, cases

diagnosed = cache(planted.diagnosed)  # some cases are looked at twice

HOW_MANY = 48  # each fault of each block once
ALWAYS = (0, 9, 23, 31, 40)  # of images and of sequences, of numbers, weights and NaN
WITH_DELEGATES = 12
HIT_RATE = 0.9


def _case(index: int) -> Case:
    return list(cases(index + 1))[index]


@pytest.mark.parametrize("index", ALWAYS)
def test_a_planted_fault_is_named_by_its_line(index: int) -> None:
    case = _case(index)
    both = diagnosed(case)
    assert both is not None
    clean, faulty = both
    assert clean.is_fine, clean.verdict
    assert case.is_named(faulty.first), (str(case), faulty.notes)
    assert f"{case.line}" in faulty.verdict


@pytest.mark.parametrize(
    ("fault", "part"),
    [("deep-nan", "channel 4 of 8"), ("gain", "channel 4 of 8"), ("head-nan", "element [4, 2]")],
)
def test_a_fault_in_one_part_is_named_by_the_part(fault: str, part: str) -> None:
    case = next(case for case in cases(HOW_MANY) if case.fault.name == fault)
    both = diagnosed(case)
    assert both is not None
    clean, faulty = both
    assert f"; {part} has all of the error" in faulty.verdict
    found = [row.values.local.concentration for row in clean.rows if row.values is not None]
    assert found and not any(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "count"), [("portable", HOW_MANY), ("xnnpack", WITH_DELEGATES)]
)
def test_planted_faults_are_named_by_their_lines(
    backend: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    missed, alarms = [], []
    planted = 0
    for case in cases(count):
        both = diagnosed(case, backend)
        if both is None:
            continue
        clean, faulty = both
        planted += 1
        if not clean.is_fine:
            alarms.append(f"{case}: {clean.verdict}")
        if not case.is_named(faulty.first):
            missed.append(f"{case}: {faulty.verdict}")
    with capsys.disabled():
        found = planted - len(missed)
        print(f"\n{backend}: {found} of {planted} planted faults named, {len(alarms)} false alarms")
    assert not alarms
    assert planted >= 0.6 * count  # the others are no faults there
    assert 1 - len(missed) / planted >= HIT_RATE, "\n".join(missed)
