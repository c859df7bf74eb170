"""Memory that is planned for inputs far larger than the example."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from torch import nn  # noqa: E402
from torch.export import Dim, export  # noqa: E402

from etscope.explain import explain  # noqa: E402
from etscope.export import export as etscope_export  # noqa: E402
from etscope.run import run  # noqa: E402


def findings(largest: int) -> list[Any]:
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU()).eval()
    sizes = {2: Dim("h", max=largest), 3: Dim("w", max=largest)}
    program = export(model, (torch.randn(1, 1, 32, 32),), dynamic_shapes=(sizes,))
    made = etscope_export(program, backend="portable")
    ran = run(made.record, iterations=3)
    (method,) = explain(ran.trace)
    return [one for one in method.findings if one.kind == "large-bounds"]


def test_a_bound_that_is_far_above_the_example_input() -> None:
    (found,) = findings(1024)
    assert "the example input, 1x1x32x32, has 0.1% of its elements, and needs" in found.sentence
    assert "Dim(max=...)" in found.explanation.remedies[0].text


def test_a_small_plan_is_not_reported() -> None:
    assert not findings(64)
