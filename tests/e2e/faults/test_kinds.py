"""What a fault is: each kind that is planted is told, and an error of no kind has no name."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope.analysis.numerics.explanations import Explanation  # noqa: E402
from etscope.analysis.numerics.rows import Numerics  # noqa: E402
from etscope.export import Exported, export  # noqa: E402
from tests.e2e.faults import test_small_faults as small  # noqa: E402
from tests.support.faults import kinds  # noqa: E402


def check(found: Numerics, kind: str, words: str) -> Explanation:
    assert found.first is not None, found.notes
    explanation = found.first.explanation
    assert explanation is not None, found.notes
    assert explanation.fits, str(explanation)
    told = [explanation, *explanation.alternatives]
    assert any(one.kind == kind and words in one.text for one in told), str(explanation)
    assert f"what it is: {explanation}" in found.notes
    return explanation


def test_a_model_without_fault_has_no_explanation() -> None:
    found = kinds.planted(lambda program: None)
    assert found.is_fine, found.verdict
    assert not any(row.explanation for row in found.rows)


@pytest.mark.parametrize("fault", kinds.FAULTS, ids=lambda fault: fault.name)
def test_a_planted_kind_is_told(fault: kinds.Planted) -> None:
    check(kinds.planted(fault.plant), fault.kind, fault.words)


@pytest.mark.parametrize("name", ["second.weight", "conv.weight", "table.weight", "norm.weight"])
def test_a_random_change_has_no_name(name: str) -> None:
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)

        def moved(value: Any, generator: Any = generator) -> Any:
            return value + 0.1 * torch.randn(value.shape, generator=generator)

        found = kinds.planted(kinds.weight(name, moved))
        assert found.first is not None
        explanation = found.first.explanation
        if name == "norm.weight":  # what it is, without a reason: factors by channel
            assert explanation is not None and explanation.kind == "argument scales"
        else:
            assert explanation is None, str(explanation)


# The parameter of a feed-forward layer, what is done to it, and what is to be said of it.
INSIDE: list[tuple[str, Any, str, str]] = [
    ("up.bias", lambda one: one * 0, "left out", "up.bias left out in linear"),
    ("up.weight", lambda one: one * 1.5, "argument scale", "up.weight times 1.5 in linear"),
    ("down.weight", lambda one: one.half().float(), "rounded argument", "rounded to float16"),
    ("up.weight", lambda one: one + 0.1 * small.numbers(8, 256, 64), "", ""),
]


@pytest.mark.parametrize(
    ("name", "change", "kind", "words"), INSIDE, ids=["missing", "times", "rounded", "random"]
)
def test_a_kind_is_told_inside_of_a_delegates_call(
    name: str, change: Any, kind: str, words: str
) -> None:
    model = small.model_of(small.FeedForward)
    with torch.no_grad():
        model.get_parameter(name).copy_(change(model.get_parameter(name)))
    given = small.INPUTS[small.FeedForward]
    wrong = export(model, given, backend="xnnpack")
    found = kinds.diagnosed(wrong.program, right_call().record, given)
    assert found.first is not None and len(found.first.nodes) > 2
    if not kind:
        assert found.first.explanation is None, str(found.first.explanation)
        return
    explanation = check(found, kind, words)
    assert "test_small_faults.py:" in explanation.text


@cache
def right_call() -> Exported:
    """The model without fault."""
    return export(
        small.model_of(small.FeedForward), small.INPUTS[small.FeedForward], backend="xnnpack"
    )
