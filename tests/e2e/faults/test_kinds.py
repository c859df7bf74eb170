"""What a fault is: each kind that is planted is told, and an error of no kind has no name."""

from __future__ import annotations

import pytest

pytest.importorskip("executorch.exir")

from etscope.analysis.numerics.explanations import Explanation
from etscope.analysis.numerics.rows import Numerics
from tests.support.artifacts import FAMILIES, artifacts
from tests.support.faults.recorded import found

PARTS = [name for name, module in FAMILIES.items() if module == "fault_kinds"]
# By the fault: the kind that it is to be named by, and words of the explanation.
KINDS = {
    "weight transposed": ("transposed", "0 and 1 transposed"),
    "weight of another layer": ("other weight", "third.weight in place of second.weight"),
    "bias of another layer": ("other weight", "second.bias in place of first.bias"),
    "bias missing": ("left out", "first.bias left out"),
    "bias of a convolution missing": ("left out", "conv.bias left out"),
    "bias with another sign": ("argument scale", "second.bias with the sign turned"),
    "bias times 3": ("argument scale", "first.bias times 3"),
    "weight times 1.5": ("scale", "times 1.5"),
    "weight of a convolution times 2": ("argument scale", "conv.weight times 2"),
    "one channel times 1.5": ("argument scale", "conv.weight times 1.5 in channel 3"),
    "one channel of a depthwise convolution": ("scale", "times 0.7 in channel 2"),
    "channels swapped": ("permuted argument", "each.weight with channels 2 and 5 swapped"),
    "channels rolled": ("rolled argument", "each.weight rolled by one in dimension 0"),
    "kernel transposed": ("transposed argument", "conv.weight transposed in dimensions (2, 3)"),
    "kernel's channels transposed": (
        "transposed argument",
        "conv.weight transposed in dimensions (0, 1)",
    ),
    "kernel turned around": ("reversed argument", "turned around"),
    "one weight": ("weight element", "element [3, 2, 1, 1] of conv.weight"),
    "input channel of a kernel": (
        "weight part",
        "conv.weight times 0.5 in its index 4 of dimension 1",
    ),
    "one row of a table": (
        "scale",
        "times 1.2 in index 1 of dimension 0 and index 3 of dimension 1",
    ),
    "weights as bfloat16": ("rounded", "rounded to bfloat16"),
    "kernel as bfloat16": ("rounded argument", "conv.weight rounded to bfloat16"),
    "kernel as float16": ("rounded argument", "conv.weight rounded to float16"),
    "scale of a norm missing": ("left out", "norm.weight left out (1 everywhere)"),
    "bias of a norm missing": ("left out", "norm.bias left out"),
    "mean of a batch norm missing": ("left out", "batch.running_mean left out"),
    "eps of a layer norm": ("eps", "eps of 1e-05 in place of 0.001"),
    "eps of a batch norm": ("eps", "eps of 0.02 in place of 1e-05"),
    "added eps": ("number", "its other 0.003 in place of 0.01"),
    "factor of attention": ("number", "its other 0.125 in place of 0.25"),
    "gelu by tanh": ("activation", "gelu by tanh in place of gelu"),
    "relu for gelu": ("activation", "relu in place of gelu"),
    "sigmoid for tanh": ("activation", "sigmoid in place of tanh"),
    "abs for relu": ("activation", "abs in place of relu"),
    "softmax over rows": ("dimension", "over dimension 0 in place of 1"),
    "mask inverted": ("inverted argument", "its condition inverted"),
    "logical or for and": ("operands", "logical_or in place of logical_and"),
    "operands swapped": ("operands", "b - a in place of a - b"),
    "multiplied and not divided": ("operands", "a * b in place of a / b"),
    "added and not subtracted": ("operands", "a + b in place of a - b"),
    "alpha": ("argument scale", "its other times 2"),
    "clamped too early": ("clamped", "cut off above at 0.8"),
    "not clamped below": ("left out", "without its min"),
    "slice one later": ("number", "from 3 in place of 2"),
    "padding not counted": ("option", "count_include_pad off"),
    "another constant": ("offset", "plus -14"),
    "concatenated the other way": ("operands", "its tensors in reversed order"),
    "zero point off by one": ("number", "its zero_point 4 in place of 3"),
    "scale doubled": ("number", "its scale 0.1 in place of 0.05"),
}
# Inside of a delegate's call.
INSIDE = {
    "missing": ("left out", "up.bias left out in linear"),
    "times": ("argument scale", "down.bias times 3 in linear"),
    "rounded": ("rounded argument", "rounded to float16"),
}


def of(fault: str) -> Numerics:
    """What is found in the run with a fault."""
    part = next(name for name in PARTS if fault in artifacts(name).meta["planted"])
    return found(part, fault)


def check(fault: str, kind: str, words: str) -> Explanation:
    numerics = of(fault)
    assert numerics.first is not None, numerics.notes
    explanation = numerics.first.explanation
    assert explanation is not None, numerics.notes
    assert explanation.fits, str(explanation)
    told = [explanation, *explanation.alternatives]
    assert any(one.kind == kind and words in one.text for one in told), str(explanation)
    assert f"what it is: {explanation}" in numerics.notes
    return explanation


def test_a_model_without_fault_has_no_explanation() -> None:
    clean = found(PARTS[0])
    assert clean.is_fine, clean.verdict
    assert not any(row.explanation for row in clean.rows)


@pytest.mark.parametrize("fault", KINDS)
def test_a_planted_kind_is_told(fault: str) -> None:
    check(fault, *KINDS[fault])


@pytest.mark.parametrize("name", ["second.weight", "conv.weight", "table.weight", "norm.weight"])
def test_a_random_change_has_no_name(name: str) -> None:
    for seed in range(3):
        numerics = of(f"{name} at random, {seed}")
        assert numerics.first is not None
        explanation = numerics.first.explanation
        if name == "norm.weight":  # what it is, without a reason: factors by channel
            assert explanation is not None and explanation.kind == "argument scales"
        else:
            assert explanation is None, str(explanation)


@pytest.mark.parametrize("fault", [*INSIDE, "random"])
def test_a_kind_is_told_inside_of_a_delegates_call(fault: str) -> None:
    first = of(fault).first
    assert first is not None and len(first.nodes) > 2
    if fault in INSIDE:
        assert "small.py:" in check(fault, *INSIDE[fault]).text
    else:
        assert first.explanation is None, str(first.explanation)
