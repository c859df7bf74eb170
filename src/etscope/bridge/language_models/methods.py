"""The methods of a language model, and what its program says of itself.

Names of methods and constants, and the order of inputs, come from ExecuTorch's
`extension/llm/runner/constants.h`, `multimodal_prefiller.cpp` and `extension/asr/runner`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.export import Dim

from etscope.bridge.language_models.configs import check_encoder
from etscope.bridge.language_models.static_cache import (
    encoder,
    text_decoder,
    token_embedding,
    use_custom_attention,
    vision_encoder,
)
from etscope.bridge.lowering.export import Inputs, ModelMethods, ModuleMethod
from etscope.errors import UsageError

DYNAMIC, ONE_TOKEN = "dynamic", "one-token"
_LONGEST = 2048  # tokens of a cache by default: a longer one takes more memory than a phone gives
_EXAMPLE = 4  # tokens of the example input of a method that takes any number of them


class Choices(NamedTuple):
    """See `etscope.export.LanguageModel`."""

    context: int | None
    prompt: str | int | None
    all_logits: bool | None
    custom_sdpa: bool


def language_model_methods(model: Any, choices: Choices) -> ModelMethods:
    """Return the methods of a transformers model that generates text.

    Raises `UsageError` for a model that generates no text, or has a shorter context.
    """
    check_encoder(model.config)
    text = model.config.get_text_config(decoder=True)
    context = _context(choices.context, text)
    is_text = not (hasattr(model, "get_image_features") or model.config.is_encoder_decoder)
    if choices.custom_sdpa:
        if not is_text:
            raise UsageError(
                "a context of {1} tokens is too long: this {2} has {3} positions",
                hint="take the plain one: sdpa='plain', or leave it out",
            )
        use_custom_attention(model)
    if model._can_set_experts_implementation():
        # transformers' default for experts needs aten.histc, which ExecuTorch does not take.
        model.set_experts_implementation("batched_mm")
    if hasattr(model, "get_image_features"):
        return _vision_language(model, text, context, choices)
    if model.config.is_encoder_decoder:
        return _speech(model, text, context, choices)
    return _text(model, text, context, choices)


def _text(model: Any, text: Any, context: int, choices: Choices) -> ModelMethods:
    prompt = DYNAMIC if choices.prompt is None else choices.prompt
    if isinstance(prompt, int):
        if not 1 < prompt <= context:
            raise UsageError(
                f"a prompt of {prompt:,} tokens does not fit a context of {context:,}",
                hint="use at least 2 tokens, and at most the context",
            )
        if choices.all_logits is False:
            raise UsageError(
                "a method for prompts of a fixed length gives the logits of all tokens, as a "
                "shorter prompt is filled up after its last token",
                hint="leave the logits out, or give the prompt 'dynamic'",
            )
        decoder = text_decoder(model, "tokens", context, True)
        methods = {
            "prefill": ModuleMethod(decoder, Inputs((_tokens(text, prompt), _position()))),
            "decode": ModuleMethod(decoder, Inputs((_tokens(text, 1), _position()))),
        }
        constants = _constants(model, text, context, longest=prompt, dynamic=False)
        constants["use_sdpa_with_kv_cache"] = choices.custom_sdpa
        return ModelMethods(methods, constants, shared_state=True)
    decoder = text_decoder(model, "tokens", context, bool(choices.all_logits))
    if prompt == ONE_TOKEN:
        method = ModuleMethod(decoder, Inputs((_tokens(text, 1), _position())))
    else:
        inputs = Inputs((_tokens(text, min(_EXAMPLE, context)), _position()))
        method = ModuleMethod(decoder, inputs, ({1: _length(context)}, None))
    constants = _constants(model, text, context, longest=context, dynamic=prompt == DYNAMIC)
    constants["use_sdpa_with_kv_cache"] = choices.custom_sdpa
    return ModelMethods({"forward": method}, constants)


def _vision_language(model: Any, text: Any, context: int, choices: Choices) -> ModelMethods:
    if choices.prompt not in (None, DYNAMIC):
        raise UsageError(
            "a vision-language model takes prompts of any length: its image's embeddings come in "
            "one call",
            hint="leave the prompt out",
        )
    vision = model.config.vision_config
    size = vision.image_size
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    shape: tuple[int, ...] = (1, 3, height, width)
    if type(model).__name__.startswith(("Idefics", "SmolVLM")):
        shape = (1, *shape)  # [1, images, channels, height, width]
    pixels = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    embedding = token_embedding(model)
    tokens = _tokens(text, min(_EXAMPLE, context))
    with torch.no_grad():
        embeddings = embedding(tokens)
    length = _length(context)
    methods = {
        "vision_encoder": ModuleMethod(vision_encoder(model), Inputs((pixels,))),
        "token_embedding": ModuleMethod(embedding, Inputs((tokens,)), ({1: length},)),
        "text_decoder": ModuleMethod(
            text_decoder(model, "embeddings", context, bool(choices.all_logits)),
            Inputs((embeddings, _position())),
            ({1: length}, None),
        ),
    }
    constants = _constants(model, text, context, longest=context, dynamic=True)
    image_token = getattr(model.config, "image_token_id", None)
    if image_token is not None:
        constants["vision_token_id"] = image_token
    return ModelMethods(methods, constants)


def _speech(model: Any, text: Any, context: int, choices: Choices) -> ModelMethods:
    if choices.prompt not in (None, ONE_TOKEN):
        raise UsageError(
            "the text decoder of a speech model takes one token in a call",
            hint="leave the prompt out",
        )
    config = model.config
    frames = 2 * config.max_source_positions  # the encoder's second convolution halves them
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1, config.num_mel_bins, frames, generator=generator)
    encoding = encoder(model)
    with torch.no_grad():
        hidden = encoding(features)
    decoder = text_decoder(model, "encoder", context, bool(choices.all_logits))
    tokens = torch.tensor([[config.decoder_start_token_id or 0]])
    methods = {
        "encoder": ModuleMethod(encoding, Inputs((features,))),
        "text_decoder": ModuleMethod(decoder, Inputs((tokens, hidden, _position()))),
    }
    constants = _constants(model, text, context, longest=context, dynamic=False)
    if config.decoder_start_token_id is not None:
        constants["decoder_start_token_id"] = config.decoder_start_token_id
    return ModelMethods(methods, constants)


def _context(chosen: int | None, text: Any) -> int:
    longest = getattr(text, "max_position_embeddings", None)
    longest = longest or getattr(text, "max_target_positions", None)
    context = chosen or min(longest or _LONGEST, _LONGEST)
    if longest is not None and context > longest:
        raise UsageError(
            f"a context of {context:,} tokens is too long for a {text.model_type} with "
            f"{longest:,} positions",
            hint=f"give at most {longest:,}",
        )
    return context


def _tokens(text: Any, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, text.vocab_size, (1, count), generator=generator)


def _position() -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int64)


def _length(context: int) -> Any:
    return Dim("tokens", min=1, max=context)


def _constants(
    model: nn.Module, text: Any, context: int, *, longest: int, dynamic: bool
) -> dict[str, Any]:
    """Return the constant methods that describe a program to runners: integers, booleans, and the
    list of the ids that end a text."""
    generation: Any = getattr(model, "generation_config", None)
    found: dict[str, Any] = {
        "get_max_seq_len": longest,
        "get_max_context_len": context,
        "get_vocab_size": text.vocab_size,
        "get_n_layers": text.num_hidden_layers,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": dynamic,
    }
    begin, end = (
        getattr(generation, name, None) or getattr(text, name, None)
        for name in ("bos_token_id", "eos_token_id")
    )
    if isinstance(begin, int):
        found["get_bos_id"] = begin
    if end is not None:
        found["get_eos_ids"] = list(end) if isinstance(end, (list, tuple)) else [end]
    return found
