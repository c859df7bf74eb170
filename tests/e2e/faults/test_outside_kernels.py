"""Faults of a program outside of its kernels: named before anything runs, and as the cause."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etscope.analysis.faults.faults import possible_faults, program_faults
from etscope.errors import RuntimeFailure
from etscope.export import export
from etscope.inspector import Inspector
from etscope.run import run
from tests.support.faults.operator_cases import KINDS, tried
from tests.support.faults.planted_programs import FAMILIES, Model, Planted, planted_programs


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
    check(range(len(FAMILIES)))


@pytest.mark.nightly
def test_a_hundred_programs_of_new_seeds() -> None:
    first = int(time.time()) // 86_400 * 1_000  # other models each night; the seed is in a failure
    check(range(first, first + 100))


def diagnosed(model: nn.Module, inputs: tuple[Any, ...], folder: Path, backend: str) -> Any:
    made = export(model.eval(), inputs, backend=backend)
    program, record, *_ = made.save(folder)
    ran = run(program, inputs, etrecord=record, debug_level="intermediate_outputs", iterations=2)
    dump, *_ = ran.save(folder / "ran")
    return Inspector(str(dump), etrecord=str(record)).diagnose_numerics(inputs=inputs)


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


def test_another_definition_is_the_cause_and_not_the_last_node_of_the_call(tmp_path: Path) -> None:
    def forward(self: Model, x: Any) -> Any:
        larger = nn.functional.interpolate(x, scale_factor=1.7, mode="bilinear")
        return torch.relu(self.conv(larger))

    model = Model(forward, conv=nn.Conv2d(3, 4, 3))
    found = diagnosed(model, (torch.randn(1, 3, 13, 11),), tmp_path, "xnnpack")
    (fault,) = found.faults
    assert fault.kind == "different-operator"
    assert fault.explanation.sites[0].name == "upsample_bilinear2d"


@pytest.mark.parametrize("divisor", [-3, 3])
def test_a_remainder_with_signs_that_differ(tmp_path: Path, divisor: int) -> None:
    model = Model(lambda self, x: torch.remainder(x, divisor))
    found = diagnosed(model, (torch.arange(-8, 8),), tmp_path, "portable")
    assert "sign of the dividend" in found.causes[0]
    sound = diagnosed(
        model, (torch.arange(8) * (1 if divisor > 0 else -1),), tmp_path / "s", "portable"
    )
    assert sound.is_fine and not sound.faults


def test_a_program_that_does_not_run_says_why() -> None:
    image = torch.randn(1, 1, 7, 5).to(memory_format=torch.channels_last)
    made = export(nn.Conv2d(1, 5, 1).eval(), (image,), backend="xnnpack")
    with pytest.raises(RuntimeFailure, match="the cause: The call of XnnpackBackend") as caught:
        run(made.program_bytes(), (image,), iterations=1)
    assert "torch.contiguous_format" in str(caught.value)


# PyTorch's vectorized kernels give NaN there, where C's functions and ExecuTorch give infinity.
OF_PYTORCH = {"gelu", "gelu none", "pow 0.5"}
HALF = {"sqrt"}  # XNNPACK's is one rounding off


def unnamed(kind: str, *, xnnpack: bool) -> set[str]:
    """The cases that differ on the runtime and are not in the table of different operators."""
    x, make = KINDS[kind]
    found = set()
    for name, made, differs in tried(x, make(x), xnnpack=xnnpack):
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
