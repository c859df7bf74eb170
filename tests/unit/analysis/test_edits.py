"""Patches keep the meaning of a line, whatever its arguments are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etscope.analysis.insights import edits
from etscope.analysis.insights.edits import in_call
from etscope.model.graph import Node

NODE = Node("n", "call_function", "aten.add.Tensor", "aten.add.Tensor")


PADDED = "torch.nn.functional.pad((a + b), (1, 1, 1, 1))"


@pytest.mark.parametrize(
    ("make", "line", "changed"),
    [
        (edits._without_alpha, "torch.add(a, b + c, alpha=-k)", "(a + (-k) * (b + c))"),
        (
            edits._softmax,
            "F.softmax(a * b, 1)",
            "torch.softmax((a * b).transpose(1, -1), -1).transpose(1, -1)",
        ),
        (
            edits._rolled,
            "torch.roll(a + b, 1, 0)",
            "torch.cat([(rolled_0 := (a + b))[-1:], rolled_0[:-1]], 0)",
        ),
        (
            edits._padded_before,
            "F.avg_pool2d(a + b, 3, 2, 1)",
            f"torch.nn.functional.avg_pool2d({PADDED}, 3, 2)",
        ),
        (edits._padded_before, "F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", None),
        (edits._padded_before, "F.avg_pool2d(x, 3, 2, 1, True)", None),
        (edits._padded_before, "F.avg_pool2d(x, 3)", None),
    ],
)
def test_a_patch_has_whole_arguments(
    make: Callable[..., str | None], line: str, changed: str | None
) -> None:
    names = ("add", "softmax", "roll", "avg_pool2d")
    assert edits._changed(line, in_call(make, *names)(NODE)) == changed
