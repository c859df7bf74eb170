"""Faults that are planted into what a device runs: the diagnosis names the line of each, and has
nothing to say of models without."""

from __future__ import annotations

import pytest

from tests.support.faults.planted import Case, cases, diagnosed

HOW_MANY = 48  # each fault of each block once
ALWAYS = (0, 9, 23, 31, 40)  # of images and of sequences, of numbers, weights and NaN
WITH_DELEGATES = 20
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
