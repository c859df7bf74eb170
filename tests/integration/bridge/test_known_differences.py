"""Known differences of kernels that no recorded run has: what the table tries of a call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers its operators

from etscope.analysis.metrics import find_metric
from etscope.analysis.numerics.explanations import (
    Explanation,
    Residual,
    Suspect,
    best_explanation,
)
from etscope.analysis.numerics.limits import Rules, judge
from etscope.bridge.reference.known_differences import RecordedCall, Reruns, candidates_of

SQNR = find_metric("sqnr")
X = torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(0))
IMAGE = (torch.ops.aten.upsample_bilinear2d.vec, "aten.upsample_bilinear2d.vec")
QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"


def told(target: Any, name: str, args: tuple[Any, ...], device: Any) -> Explanation | None:
    """What the table says of a call whose value on the device is another one."""
    result = target(*args)
    node = SimpleNamespace(op=name, arguments=(), inputs=())
    graph: Any = SimpleNamespace(calls={"node": node}, parameters={}, by_name={})
    local, wide = result.numpy(), result.numpy().astype(np.float64)
    rules = Rules(quantized="quantize" in name)
    assert judge(SQNR, local, device.numpy(), wide, rules).is_wrong
    residual = Residual(Suspect(device.numpy(), local, wide, SQNR, rules, None, 1))
    reruns = Reruns([RecordedCall("node", target, args, {}, result)], None)
    return best_explanation(residual, candidates_of(residual, reruns, graph))


@pytest.mark.parametrize(("corners", "words"), [(True, "align_corners off"), (False, "… on")])
def test_corners_of_resized_images(corners: bool, words: str) -> None:
    target, name = IMAGE
    device = target(X, [11, 9], not corners, None)
    found = told(target, name, (X, [11, 9], corners, None), device)
    assert found is not None and found.text == words.replace("…", "align_corners")


def test_another_way_to_resize_has_no_name() -> None:
    target, name = IMAGE
    device = torch.nn.functional.interpolate(X, (11, 9), mode="nearest")
    assert told(target, name, (X, [11, 9], False, None), device) is None


@pytest.mark.parametrize(
    ("rounding", "words"), [(torch.floor, "rounded down"), (torch.trunc, "cut off towards zero")]
)
def test_rounding_of_quantized_numbers(rounding: Any, words: str) -> None:
    target = torch.ops.quantized_decomposed.quantize_per_tensor.default
    args = (X, 0.05, 3, -128, 127, torch.int8)
    device = (rounding(X / 0.05) + 3).clamp(-128, 127).to(torch.int8)
    found = told(target, QUANTIZE, args, device)
    assert found is not None
    assert found.text == f"{words} in place of rounded to the nearest"
