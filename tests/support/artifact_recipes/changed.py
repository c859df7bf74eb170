"""The small convolutional network with a change, for comparisons of programs."""

from __future__ import annotations

import torch
from torch import nn

from tests.support.artifact_recipes.cnn import DEBUG_BYTES, SmallCnn, picture, small_cnn
from tests.support.artifact_recipes.workbench import Call, Workbench, exported, portable, xnnpack


def _finetuned() -> SmallCnn:
    """One weight is another: 0.25 more."""
    model = small_cnn()
    with torch.no_grad():
        model.head.fc.weight[3, 5] += 0.25
    return model


def cnn_portable_finetuned(bench: Workbench) -> None:
    """``cnn_portable`` with one number changed."""
    model, call = _finetuned(), Call((picture(),))
    bench.save(portable(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES, timing=False)


def cnn_xnnpack_finetuned(bench: Workbench) -> None:
    """``cnn_xnnpack`` with one number changed."""
    model, call = _finetuned(), Call((picture(),))
    bench.save(xnnpack(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES, timing=False)


def cnn_portable_inserted(bench: Workbench) -> None:
    """``cnn_portable`` with a layer before the last stage, of a kernel that it does not need."""
    model, call = small_cnn(), Call((picture(),))
    first, second, third = model.stages
    model.stages = nn.Sequential(first, second, nn.Sigmoid(), third)
    bench.save(portable(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES, timing=False)
