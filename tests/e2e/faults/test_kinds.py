"""What a fault is: patterns and known differences are told, and nothing else has a name."""

from __future__ import annotations

import pytest

pytest.importorskip("executorch.exir")

from etscope.analysis.numerics.explanations import Explanation
from etscope.analysis.numerics.rows import Numerics
from etscope.model.graph import stem
from tests.support.artifacts import FAMILIES, artifacts
from tests.support.faults.recorded import found

PARTS = [name for name, module in FAMILIES.items() if module == "fault_kinds"]
# By the fault: the kind that it is named by, and words of the explanation. It is a pattern of the
# value, or a difference of `bridge.reference.known_differences`.
KINDS = {
    "weight transposed": ("transposed", "0 and 1 transposed"),
    "bias of another layer": ("offsets", "plus a different constant in every channel"),
    "bias missing": ("left out", "first.bias left out"),
    "bias of a convolution missing": ("left out", "conv.bias left out"),
    "bias with another sign": ("weight scale", "second.bias times -1"),
    "bias times 3": ("weight scale", "first.bias times 3"),
    "weight times 1.5": ("scale", "times 1.5"),
    "weight of a convolution times 2": ("weight scale", "conv.weight times 2"),
    "one channel times 1.5": ("weight scale", "conv.weight times 1.5 in channel 3"),
    "one channel of a depthwise convolution": ("scale", "times 0.7 in channel 2"),
    "kernel transposed": ("transposed weight", "conv.weight transposed in dimensions (2, 3)"),
    "kernel's channels transposed": (
        "transposed weight",
        "conv.weight transposed in dimensions (0, 1)",
    ),
    "kernel turned around": ("reversed weight", "turned around"),
    "one row of a table": (
        "scale",
        "times 1.2 in index 1 of dimension 0 and index 3 of dimension 1",
    ),
    "weights as bfloat16": ("rounded", "rounded to bfloat16"),
    "kernel as bfloat16": ("rounded weight", "conv.weight rounded to bfloat16"),
    "kernel as float16": ("rounded weight", "conv.weight rounded to float16"),
    "bias of a norm missing": ("left out", "norm.bias left out"),
    "mean of a batch norm missing": ("left out", "batch.running_mean left out"),
    "eps of a layer norm": ("eps", "eps of 1e-05 in place of 0.001"),
    "added eps": ("offset", "plus -0.007"),
    "factor of attention": ("scale", "times 0.5"),
    "gelu by tanh": ("approximation", "gelu by tanh"),
    "operands swapped": ("negated", "with the sign turned"),
    "clamped too early": ("clamped", "cut off above at 0.8"),
    "slice one later": ("shifted", "shifted by one down in dimension 1"),
    "padding not counted": ("option", "count_include_pad off"),
    "another constant": ("offset", "plus -14"),
    "concatenated the other way": ("rolled", "rolled by half of its size in dimension 1"),
    "logical or for and": ("constant", "1 everywhere in 120 of 256 elements"),
    "zero point off by one": ("offset", "plus -0.05"),
}
# By the fault: the operator that is accused. Its value shows no pattern, and no kernel in the field
# is known to compute so: nothing is said of what it computes.
WITHOUT_NAME = {
    "weight of another layer": "permute",
    "channels swapped": "convolution",
    "channels rolled": "convolution",
    "one weight": "convolution",
    "input channel of a kernel": "convolution",
    "scale of a norm missing": "native_layer_norm",
    "eps of a batch norm": "native_batch_norm_legit_no_training",
    "relu for gelu": "gelu",
    "sigmoid for tanh": "tanh",
    "abs for relu": "relu",
    "softmax over rows": "softmax",
    "mask inverted": "where",
    "multiplied and not divided": "div",
    "added and not subtracted": "sub",
    "alpha": "sub",
    "not clamped below": "clamp",
    "scale doubled": "quantize_per_tensor",
    **{
        f"{name} at random, {seed}": operator
        for seed in range(3)
        for name, operator in (
            ("second.weight", "permute"),
            ("conv.weight", "convolution"),
            ("table.weight", "embedding"),
            ("norm.weight", "native_layer_norm"),
        )
    },
}
# Inside of a delegate's call.
INSIDE = {
    "missing": ("left out", "up.bias left out in linear"),
    "times": ("weight scale", "down.bias times 3 in linear"),
    "rounded": ("rounded weight", "rounded to float16"),
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


@pytest.mark.parametrize("fault", WITHOUT_NAME)
def test_what_nothing_explains_is_found_and_has_no_name(fault: str) -> None:
    first = of(fault).first
    assert first is not None and stem(first.op) == WITHOUT_NAME[fault]
    assert first.lines
    assert first.explanation is None, str(first.explanation)


@pytest.mark.parametrize("fault", [*INSIDE, "random"])
def test_a_kind_is_told_inside_of_a_delegates_call(fault: str) -> None:
    first = of(fault).first
    assert first is not None and len(first.nodes) > 2
    if fault in INSIDE:
        assert "small.py:" in check(fault, *INSIDE[fault]).text
    else:
        assert first.explanation is None, str(first.explanation)
