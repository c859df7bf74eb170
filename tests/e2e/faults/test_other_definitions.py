"""Operators that a backend computes by another definition: the cause, and the table of them."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etscope.analysis.faults.faults import possible_faults, program_faults
from tests.support.faults.diagnosed import diagnosed
from tests.support.faults.operator_cases import KINDS, tried
from tests.support.faults.operator_samples import DTYPES, cases_of, operators, unnamed_samples
from tests.support.faults.planted_programs import Model


def test_another_definition_is_the_cause_and_not_the_last_node_of_the_call(tmp_path: Path) -> None:
    def forward(self: Model, x: Any) -> Any:
        larger = nn.functional.interpolate(x, scale_factor=1.7, mode="bilinear")
        return torch.relu(self.conv(larger))

    model = Model(forward, conv=nn.Conv2d(3, 4, 3))
    found = diagnosed(model, (torch.randn(1, 3, 13, 11),), tmp_path, "xnnpack")
    (fault,) = found.faults
    assert fault.kind == "different-operator"
    assert fault.explanation.sites[0].name == "upsample_bilinear2d"


def test_a_remainder_with_signs_that_differ(tmp_path: Path) -> None:
    model = Model(lambda self, x: torch.remainder(x, -3))
    found = diagnosed(model, (torch.arange(-8, 8),), tmp_path, "portable")
    assert "sign of the dividend" in found.causes[0]
    sound = diagnosed(model, (-torch.arange(8),), tmp_path / "s", "portable")
    assert sound.is_fine and not sound.faults


@pytest.mark.filterwarnings("ignore")  # an ETDump holds half as float32
def test_a_product_of_half_with_nan(tmp_path: Path) -> None:
    x = torch.randn(2, 8).half()
    x[0, 3] = torch.nan
    model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()).half()
    found = diagnosed(model, (x,), tmp_path, "xnnpack")
    assert "gives -infinity for NaN in half" in found.causes[0]
    assert not any("sigmoid" in cause for cause in found.causes)  # right in half


def test_kernels_that_do_not_write_all_of_their_result() -> None:
    """As the samples of PyTorch's own tests showed."""
    inputs, cases = cases_of(operators()["max_pool2d_with_indices_backward"], torch.float32)
    (found,) = tried(inputs, {"0": cases["0"]}, xnnpack=False)
    assert found[2] and [fault.kind for fault in program_faults(found[1])] == ["different-operator"]
    empty = torch.ones(5, 0), torch.ones(0, 10)
    (found,) = tried(empty, {"mm": torch.mm}, xnnpack=False)
    (fault,) = program_faults(found[1])
    assert "inner dimension is 0" in fault.sentence
    (found,) = tried((torch.ones(5, 1), torch.ones(1, 10)), {"mm": torch.mm}, xnnpack=False)
    assert not program_faults(found[1])
    nan = torch.tensor([[torch.nan, 1.0, -1.0]]).half()
    bounds = {"relu": torch.relu, "relu6": nn.functional.relu6, "hardtanh": nn.functional.hardtanh}
    lowered = [*tried((nan,), bounds, xnnpack=True)]
    assert [name for name, _, differs in lowered if differs] == [*bounds]
    for _, made, _ in lowered:
        (fault,) = possible_faults(made)
        assert "for NaN in half" in fault.sentence


# PyTorch's vectorized kernels give NaN there, where C's functions and ExecuTorch give infinity.
OF_PYTORCH = {"gelu", "gelu none", "pow 0.5"}
HALF = {"sqrt"}  # XNNPACK's is one rounding off


def unnamed(kind: str, *, xnnpack: bool) -> set[str]:
    """The cases that differ on the runtime and are not in the table of different operators."""
    x, make = KINDS[kind]
    found = set()
    for name, made, differs in tried((x,), make(x), xnnpack=xnnpack):
        if differs and not possible_faults(made):
            found.add(name)
        certain = [fault for fault in program_faults(made) if fault.kind == "different-operator"]
        assert differs or not certain, name
    return found


def test_the_table_of_operators_is_right_for_whole_numbers_and_images() -> None:
    assert unnamed("int64", xnnpack=False) == set()
    assert unnamed("image", xnnpack=True) == set()


@pytest.mark.nightly
@pytest.mark.parametrize("xnnpack", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_no_operator_differs_that_is_not_in_the_table(kind: str, xnnpack: bool) -> None:
    known = {"edges": OF_PYTORCH | {"silu", "softplus", "softplus threshold"}, "half": HALF}
    assert unnamed(kind, xnnpack=xnnpack) <= known.get(kind, set())


# Results of these depend on the seed, or differ in rounding only: a product of many numbers.
OTHER_ROUNDINGS: frozenset[str] = frozenset()


@pytest.mark.nightly
@pytest.mark.parametrize("xnnpack", [False, True])
def test_a_part_of_all_operators_each_night(xnnpack: bool) -> None:
    """`python -m tests.support.faults.operator_samples` tries all of them."""
    part = datetime.now(timezone.utc).timetuple().tm_yday % 50
    for name in [*operators()][part::50]:
        if name not in OTHER_ROUNDINGS and DTYPES[0] in operators()[name].dtypes:
            assert unnamed_samples(name, DTYPES[0], xnnpack)["differ"] == {}, name
