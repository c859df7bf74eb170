"""Faults that are planted into what a device runs: the diagnosis names the line of each, and has
nothing to say of models without. Runs are recorded: see `artifact_recipes/planted_faults.py`."""

from __future__ import annotations

import pytest

pytest.importorskip("executorch.exir")

from tests.support.artifacts import FAMILIES, artifacts
from tests.support.faults.recorded import found, is_named, planted

# On portable kernels, each fault of each block once.
PORTABLE, XNNPACK, TAPS = (
    [name for name in FAMILIES if name.startswith(f"fault_{target}_")]
    for target in ("portable", "xnnpack", "taps")
)


@pytest.mark.parametrize("names", [PORTABLE, XNNPACK, TAPS], ids=["portable", "xnnpack", "taps"])
def test_most_cases_have_a_fault(names: list[str]) -> None:
    """The others leave other operators to the backend, or no output shows them."""
    assert sum(planted(name) is not None for name in names) >= 0.6 * len(names) > 7


@pytest.mark.parametrize("name", [*PORTABLE, *XNNPACK, *TAPS])
def test_a_planted_fault_is_named_by_its_line(name: str) -> None:
    clean, fault = found(name), planted(name)
    assert clean.is_fine, clean.verdict
    if fault is None:
        return
    faulty = found(name, "wrong")
    assert is_named(faulty.first, fault), (fault, faulty.notes)
    assert f":{fault['line']}" in faulty.verdict
    if name in TAPS:  # of the call's lines, the one alone
        assert faulty.first is not None and len(faulty.first.lines) == 1


@pytest.mark.parametrize(
    ("fault", "part"),
    [("deep-nan", "channel 4 of 8"), ("gain", "channel 4 of 8"), ("head-nan", "element [4, 2]")],
)
def test_a_fault_in_one_part_is_named_by_the_part(fault: str, part: str) -> None:
    name = next(name for name in PORTABLE if artifacts(name).meta["planted"] == fault)
    assert f"; {part} has all of the error" in found(name, "wrong").verdict
    clean = [row.values.local.concentration for row in found(name).rows if row.values is not None]
    assert clean and not any(clean)


def test_a_wrong_call_has_the_module_of_all_its_lines() -> None:
    (call,) = (row for row in found("fault_xnnpack_6").rows if len(row.lines) == 9)
    assert call.is_delegate and call.module == "parts"


def test_a_difference_for_other_values_is_not_the_cause() -> None:
    """A sigmoid of the wrong call gives NaN for numbers as large as 1e30: the call has none."""
    causes = found("fault_xnnpack_0", "wrong").causes
    assert causes[0].startswith("the cause: The program's weights are not the record's: ")
    assert not any("1e30" in cause for cause in causes)
