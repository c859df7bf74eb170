"""Models of transformers with a `forward` that is a method of a program, and a KV cache in buffers.

The cache comes from `transformers.integrations.executorch`: one buffer for the keys and one for the
values of each layer, of the length of the context. Layers with a sliding window get the whole
context too, and their mask keeps to the window: a cache that rolls has control flow on its length.

The modules are copies of the model with another `forward`, so that its parameters and modules keep
their names in the program and its record ("model.layers.0.self_attn.q_proj").

Attention may be by ExecuTorch's own operator, `llama::custom_sdpa`. It reads only the filled part
of the cache, so a token takes longer the more came before it; attention in plain operators reads
all of the cache each time. Its library, `extension/llm/custom_ops`, is in the package of
ExecuTorch; runners must have it linked in.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    EncoderDecoderCache,
    StaticCache,
    StaticLayer,
    StaticSlidingWindowLayer,
)
from transformers.configuration_utils import get_head_shapes

from etscope.errors import UsageError


class _Cached:
    """The part that methods with a cache share; mixed into the class of a model."""

    context: int
    cached_layers: int
    all_logits: bool

    def _cache(self, position: Tensor) -> Cache:
        """Return the cache in the buffers, filled up to a position, int64 [1]."""
        layers: list[Any] = []
        for index in range(self.cached_layers):
            layer = StaticLayer(self.context)
            layer.keys = getattr(self, f"key_cache_{index}")
            layer.values = getattr(self, f"value_cache_{index}")
            layer.dtype, layer.device = layer.keys.dtype, layer.keys.device
            layer.cumulative_length = position[0].clone()  # the layer adds to it
            layer.is_initialized = True
            layers.append(layer)
        return Cache(layers=layers)

    def _logits(self, position: Tensor, **inputs: Any) -> Tensor:
        kept = 0 if self.all_logits else 1
        model: Any = super()
        found: Tensor = model.forward(
            past_key_values=self._cache(position), use_cache=True, logits_to_keep=kept, **inputs
        ).logits
        return found


class _OfTokens(_Cached):
    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        return self._logits(position, input_ids=tokens)


class _OfEmbeddings(_Cached):
    def forward(self, embeddings: Tensor, position: Tensor) -> Tensor:
        return self._logits(position, inputs_embeds=embeddings)


class _OfEncoder(_Cached):
    def forward(self, tokens: Tensor, encoder_output: Tensor, position: Tensor) -> Tensor:
        model: Any = super()
        found: Tensor = model.forward(
            decoder_input_ids=tokens,
            encoder_outputs=(encoder_output,),
            past_key_values=EncoderDecoderCache(self._cache(position), DynamicCache()),
            use_cache=True,
        ).logits
        return found if self.all_logits else found[:, -1:]


class _TokenEmbedding:
    def forward(self, tokens: Tensor) -> Tensor:
        model: Any = self
        found: Tensor = model.get_input_embeddings()(tokens)
        return found


class _VisionEncoder:
    def forward(self, pixel_values: Tensor) -> Tensor:
        model: Any = self
        found = model.get_image_features(pixel_values=pixel_values)
        found = getattr(found, "pooler_output", found)
        if isinstance(found, (tuple, list)):  # one for each image
            found = torch.cat([*found])
        # [1, n, hidden], as the text decoder takes them, from [n, hidden] too.
        embeddings: Tensor = found.reshape(1, -1, found.shape[-1])
        return embeddings


class _Encoder:
    def forward(self, features: Tensor) -> Tensor:
        model: Any = self
        found: Tensor = model.get_encoder()(features).last_hidden_state
        return found


def _as_method(model: nn.Module, mixin: type) -> Any:
    """Return a copy of a model that shares its children and has the `forward` of a mixin."""
    method = copy.copy(model)
    method._buffers = dict(model._buffers)
    method._non_persistent_buffers_set = set(model._non_persistent_buffers_set)
    method.__class__ = type(type(model).__name__, (mixin, type(model)), {})
    return method.eval()


def token_embedding(model: nn.Module) -> nn.Module:
    """Return the method tokens, int64 [1, n], to embeddings [1, n, hidden]."""
    method: nn.Module = _as_method(model, _TokenEmbedding)
    return method


def vision_encoder(model: nn.Module) -> nn.Module:
    """Return the method pixels [1, 3, height, width] to embeddings [1, n, hidden]."""
    method: nn.Module = _as_method(model, _VisionEncoder)
    return method


def encoder(model: nn.Module) -> nn.Module:
    """Return the method features [1, bins, frames] to hidden states [1, n, hidden]."""
    method: nn.Module = _as_method(model, _Encoder)
    return method


def text_decoder(model: nn.Module, inputs: str, context: int, all_logits: bool) -> nn.Module:
    """Return the method that gives logits, float [1, n, vocabulary], or [1, 1, vocabulary] of the
    last token without `all_logits`.

    inputs: "tokens", "embeddings" or "encoder"; before the position, int64 [1], of the first token
        in the context.
    context: length of the cache, in tokens.

    Raises `UsageError` for a model with another state than a cache of keys and values.
    """
    mixin = {"tokens": _OfTokens, "embeddings": _OfEmbeddings, "encoder": _OfEncoder}[inputs]
    method = _as_method(model, mixin)
    layers = _static_layers(model, context)
    method.context, method.cached_layers, method.all_logits = context, len(layers), all_logits
    for index, layer in enumerate(layers):
        method.register_buffer(f"key_cache_{index}", layer.keys, persistent=False)
        method.register_buffer(f"value_cache_{index}", layer.values, persistent=False)
    found: nn.Module = method
    return found


def _static_layers(model: Any, context: int) -> list[StaticLayer]:
    config = model.config.get_text_config(decoder=True)
    cache: Any = StaticCache(config=config, max_cache_len=context)
    for index, layer in enumerate(cache.layers):
        if isinstance(layer, StaticSlidingWindowLayer):
            cache.layers[index] = StaticLayer(context)
        elif type(layer) is not StaticLayer:
            raise UsageError(
                f"cannot export a {model.config.model_type} as a language model: layer {index} "
                f"keeps its state in a {type(layer).__name__}, not in a cache of keys and values",
                hint="export your own module with its state in buffers: file.py:attribute",
            )
    heads, size = get_head_shapes(config)
    cache.early_initialization(1, heads, size, model.dtype, model.device)
    layers: list[StaticLayer] = list(cache.layers)
    return layers


# -- attention by ExecuTorch's operator

_CUSTOM_SDPA = "executorch_custom_sdpa"


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

    AttentionInterface.register(_CUSTOM_SDPA, _attend)
    # No mask: the operator knows that attention is causal.
    AttentionMaskInterface.register(_CUSTOM_SDPA, lambda *_, **__: None)
    model.set_attn_implementation(_CUSTOM_SDPA)


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
