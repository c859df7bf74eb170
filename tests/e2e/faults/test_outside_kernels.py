"""Faults of a program outside of its kernels: named before anything runs, and as the cause."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etscope.analysis.faults.faults import program_faults
from etscope.analysis.numerics.rows import why_not_narrowed
from etscope.errors import RuntimeFailure
from etscope.export import export
from etscope.inspector import Inspector
from etscope.run import run
from tests.support.faults.diagnosed import diagnosed
from tests.support.faults.planted_programs import (
    FAMILIES,
    Model,
    Planted,
    planted_programs,
    storage,
)


def kinds(planted: Planted) -> set[str]:
    return {fault.kind for fault in program_faults(planted.export)}


def is_real(planted: Planted) -> bool:
    """Does the runtime agree that the program is wrong, or sound?"""
    return planted.off is None or (planted.off > 1e-4) == (planted.kind is not None)


def check(seeds: range) -> None:
    for wrong, sound in planted_programs(seeds):
        assert is_real(sound), sound
        # A planner may give bytes twice that nothing reads again: no fault, and none is named.
        assert kinds(wrong) == ({wrong.kind} if is_real(wrong) else set()), wrong
        assert kinds(sound) == set(), sound.family


def test_each_family_is_named_and_its_twin_is_not() -> None:
    first = 56  # draws branches inside a branch, and a method that only reads state
    check(range(first, first + len(FAMILIES)))


@pytest.mark.nightly
def test_a_hundred_programs_of_new_seeds() -> None:
    first = int(time.time()) // 86_400 * 1_000  # other models each night; the seed is in a failure
    check(range(first, first + 100))


def test_one_layer_with_quantized_weights_alone() -> None:
    """The other layer's bias has the size of the scales that are lost."""
    for seed in range(4):  # one layer or both, one row or two
        torch.manual_seed(seed)
        assert kinds(storage(random.Random(seed), sound=False)) == {"lost-operator"}


def test_branches_that_share_bytes_are_the_cause(tmp_path: Path) -> None:
    def forward(self: Model, flag: Any, a: Any, b: Any) -> Any:
        first = torch.cond(flag, lambda a: 2 * a, lambda a: a - 1, (a,))
        second = torch.cond(flag, lambda b: 10 * b + 1, lambda b: b + 5, (b,))
        return first + second, first * 1.0

    inputs = torch.tensor(True), torch.tensor([1.0]), torch.tensor([3.0])
    found = diagnosed(Model(forward), inputs, tmp_path, "portable")
    assert [fault.kind for fault in found.faults] == ["overwritten-value"]
    cause, remedy = found.causes
    assert cause.startswith("the cause: The result of ") and " is overwritten by " in cause
    assert remedy == "to do: Copy the result at once: `torch.cond(...).clone()`"
    assert not any("inputs that ran" in note for note in found.notes)
    assert why_not_narrowed(found).endswith("a fault of the program explains the wrong values")


def test_a_program_that_does_not_run_says_why() -> None:
    image = torch.randn(1, 1, 7, 5).to(memory_format=torch.channels_last)
    made = export(nn.Conv2d(1, 5, 1).eval(), (image,), backend="xnnpack")
    with pytest.raises(RuntimeFailure, match="the cause: The call of XnnpackBackend") as caught:
        run(made.program_bytes(), (image,), iterations=1)
    assert "torch.contiguous_format" in str(caught.value)


def test_another_weight_inside_a_call_is_the_cause_and_the_call_has_all_its_places(
    tmp_path: Path,
) -> None:
    torch.manual_seed(5)
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(24, 40), nn.SiLU(), nn.Linear(40, 24)) for _ in range(3))
    ).eval()
    inputs = (torch.randn(2, 24),)
    _, record, *_ = export(model, inputs, backend="xnnpack").save(tmp_path / "right")
    with torch.no_grad():
        model[1][2].weight[3] *= 1.5
    program, *_ = export(model, inputs, backend="xnnpack").save(tmp_path / "wrong")
    ran = run(program, inputs, debug_level="intermediate_outputs", iterations=1)
    dump, *_ = ran.save(tmp_path / "ran")
    inspector = Inspector(str(dump), etrecord=str(record), program=str(program))
    found = inspector.diagnose_numerics(inputs=inputs)
    # The call has a sigmoid, too, which XNNPACK computes otherwise for numbers that are not here.
    assert [fault.kind for fault in found.faults] == ["other-weights"]
    assert "1.2.weight" in found.causes[0]
    assert found.first is not None and found.first.module == ""
    assert "module" not in found.verdict
    (row,) = inspector.numeric_gap(inputs=inputs).rows
    assert row.module == ""
