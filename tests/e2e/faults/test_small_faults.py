"""Faults in one channel, row, weight or element are told, and named where they are."""

from __future__ import annotations

import pytest

pytest.importorskip("executorch.exir")

from tests.support.artifacts import SMALL_FAULTS
from tests.support.faults.recorded import found
from tests.support.faults.small import FAULTS, Small

BACKENDS = ("portable", "xnnpack")
# Of 262,144 elements: too large for git, and slow to make.
NIGHTLY = {"Large": pytest.mark.nightly}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "model", [pytest.param(one, marks=NIGHTLY.get(one, ())) for one in SMALL_FAULTS]
)
def test_sound_models_have_no_wrong_part(model: str, backend: str) -> None:
    clean = found(f"fault_small_{model}_{backend}")
    assert clean.is_fine, clean.verdict


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=NIGHTLY.get(fault.kind.__name__, ()), id=f"{fault}")
        for fault in FAULTS
    ],
)
def test_a_small_fault_is_told(fault: Small, backend: str) -> None:
    faulty = found(f"fault_small_{fault.kind.__name__}_{backend}", str(fault))
    assert faulty.first is not None, faulty.notes
    if backend == "xnnpack":
        assert faulty.first.op.split(".")[1] == fault.operator, faulty.verdict
