"""Attention of transformers' models by ExecuTorch's own operator, `llama::custom_sdpa`.

It reads only the filled part of the cache, so a token takes longer the more came before it;
attention in plain operators reads all of the cache each time. Its library,
`extension/llm/custom_ops`, is in the package of ExecuTorch; runners must have it linked in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from etscope.errors import UsageError

_NAME = "executorch_custom_sdpa"


def use_custom_attention(model: Any) -> None:
    """Let the layers of a causal model attend with `llama::custom_sdpa`, from now on.

    Raises `UsageError` for a model with attention that the operator does not compute: with a
    window, with a cap on its scores, or in another type than float32.
    """
    text = model.config.get_text_config(decoder=True)
    kinds = getattr(text, "layer_types", None) or ()
    windows = {"sliding_attention", "chunked_attention"}.intersection(kinds)
    for wrong, why in (
        (bool(windows), "some of its layers attend to a window"),
        (getattr(text, "attn_logit_softcapping", None) is not None, "its scores have a cap"),
        (model.dtype != torch.float32, f"it is {model.dtype}, and the operator takes float32"),
    ):
        if wrong:
            raise UsageError(
                f"cannot export this {text.model_type} with the custom sdpa: {why}",
                hint="take the plain one: sdpa='plain', or leave it out",
            )
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401 - registers the operator
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(_NAME, _attend)
    # No mask: the operator knows that attention is causal.
    AttentionMaskInterface.register(_NAME, lambda *_, **__: None)
    model.set_attn_implementation(_NAME)


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attend to the cache up to each token; as transformers calls it.

    query: [1, heads, n, size]; key, value: [1, key heads, context, size]; more: `position_ids`,
    int64 [1, n], and `scaling`. Returns [1, n, heads, size], and no weights.
    """
    start = more["position_ids"][0, 0].item()
    torch._check_is_size(start)
    torch._check(start < key.shape[2])
    query, key, value = (one.transpose(1, 2).contiguous() for one in (query, key, value))
    found: Tensor = torch.ops.llama.custom_sdpa(
        query, key, value, start, None, 0.0, True, more.get("scaling")
    )
    return found, None
