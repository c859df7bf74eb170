"""Twelve equal transformer blocks: deep enough for views to fold them."""

from __future__ import annotations

import torch

from tests.support.artifact_recipes.transformer import Transformer, sentence
from tests.support.artifact_recipes.workbench import Call, Workbench, exported, xnnpack

DEPTH = 12


def deep_transformer(bench: Workbench) -> None:
    """A narrow network of many blocks on XNNPACK."""
    torch.manual_seed(0)
    model = Transformer(width=16, heads=2, depth=DEPTH).eval()
    call = Call((sentence(),), repeat=3)
    bench.save(xnnpack(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=8_000_000)
