"""Weights of 4 bits with a scale for each group: what XNNPACK rounds by design is not an error, and
another scale is one."""

from __future__ import annotations

import pytest

pytest.importorskip("executorch.exir")

from etscope.errors import EtscopeWarning, FormatError
from tests.support.faults.recorded import found, opened


# Groups of 32, and of whole rows.
@pytest.mark.parametrize("name", ["groups_32", "groups_of_rows"])
def test_scales_that_the_backend_rounds_are_no_error(name: str) -> None:
    numerics = found(name)
    assert numerics.is_fine
    delegates = [row for row in numerics.rows if row.is_delegate]
    assert delegates
    for row in delegates:
        assert row.verdict == "by design"
        assert row.total is not None
        assert row.local is not None
        assert row.total < 70 < 100 < row.local, "decibels: the scales are rounded to 8 bits"
    assert any("bfloat16" in note for note in numerics.notes)


def test_a_scale_that_is_another_is_one() -> None:
    numerics = found("groups_32", "swapped")
    assert numerics.first is not None
    assert numerics.first is next(row for row in numerics.rows if row.is_delegate)
    assert numerics.first.local is not None
    assert numerics.first.local < 60
    (part,) = {row.verdict for row in numerics.rows if row.is_delegate}
    assert part == "wrong"


def test_zero_points_between_two_steps_are_no_error() -> None:
    numerics = found("groups_between_steps")
    assert numerics.is_fine
    assert [row.verdict for row in numerics.rows] == ["fine"]


def test_weights_of_a_tensor_subclass_are_compared_in_the_edge_program() -> None:
    inspector = opened("groups_of_torchao")
    with pytest.warns(EtscopeWarning, match="with the edge program and not the exported one"):
        gap = inspector.calculate_numeric_gap("MSE")
    assert len(gap) > 5
    with pytest.raises(FormatError, match="a subclass of torch's tensors"):
        inspector.diagnose_numerics(reference_graph="exported_program")
