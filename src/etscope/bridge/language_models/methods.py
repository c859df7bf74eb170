"""The methods of a language model, and what its program says of itself.

Names of methods and constants, and the order of inputs, come from ExecuTorch's
`extension/llm/runner/constants.h`, `multimodal_prefiller.cpp` and `extension/asr/runner`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn
from torch.export import Dim
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    EncoderDecoderCache,
    StaticCache,
    StaticLayer,
    StaticSlidingWindowLayer,
)
from transformers.configuration_utils import get_head_shapes
from transformers.models.auto import modeling_auto

from etscope.bridge.failures import innermost
from etscope.bridge.lowering.export import Inputs, ModelMethods, ModuleMethod
from etscope.errors import UsageError

# -- Models of transformers with a `forward` that is a method of a program, and a KV cache in
# buffers.
#
# The cache comes from `transformers.integrations.executorch`: one buffer for the keys and one for
# the values of each layer, of the length of the context. Layers with a sliding window get the whole
# context too, and their mask keeps to the window: a cache that rolls has control flow on its
# length.
#
# The modules are copies of the model with another `forward`, so that its parameters and modules
# keep their names in the program and its record ("model.layers.0.self_attn.q_proj").
#
# Attention may be by ExecuTorch's own operator, `llama::custom_sdpa`. It reads only the filled part
# of the cache, so a token takes longer the more came before it; attention in plain operators reads
# all of the cache each time. Its library, `extension/llm/custom_ops`, is in the package of
# ExecuTorch; runners must have it linked in.


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
    """Return a method that maps tokens, int64 [1, n], to embeddings [1, n, hidden]."""
    method: nn.Module = _as_method(model, _TokenEmbedding)
    return method


def vision_encoder(model: nn.Module) -> nn.Module:
    """Return a method that maps pixels [1, 3, height, width] to embeddings [1, n, hidden]."""
    method: nn.Module = _as_method(model, _VisionEncoder)
    return method


def encoder(model: nn.Module) -> nn.Module:
    """Return a method that maps features [1, bins, frames] to hidden states [1, n, hidden]."""
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
                hint="use plain attention: sdpa='plain', or leave sdpa out",
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
                "only causal models of text can be exported with the custom sdpa",
                hint="use plain attention: sdpa='plain', or leave sdpa out",
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
                hint="use a prompt of at least 2 tokens, and at most the context length",
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


# -- Models of transformers from a folder with a config.json, with its weights or random ones.


WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_NAMES = 3  # of weights, in a message


def model_of_config(config_file: Path, seed: int | None) -> Any:
    """Return the language model of a config.json, in float32: with the weights in safetensors files
    next to it, else with random ones of that seed.

    No code that the folder may hold is run, and nothing is downloaded. Raises `UsageError` if the
    config is not a language model's, and for weights that are damaged or of another model.
    """
    folder = config_file.parent
    with _blaming(f"cannot read the config {config_file}"):
        config = transformers.AutoConfig.from_pretrained(
            config_file, local_files_only=True, trust_remote_code=False
        )
    loader = _loader(config, config_file)
    if any((folder / name).is_file() for name in WEIGHTS):
        with _blaming(f"cannot load the weights in {folder}"):
            model, loading = loader.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
        missing = sorted(loading["missing_keys"])
        if missing:
            raise UsageError(
                f"the weights in {folder} lack {len(missing):,} of the model's, such as "
                f"{', '.join(missing[:_NAMES])}",
                hint=f"the weights are of another model than {config_file}, or a file is missing",
            )
        return model.eval()
    if seed is not None:
        torch.manual_seed(seed)
    with _blaming(f"transformers cannot make the model of {config_file}"):
        return loader.from_config(config, dtype=torch.float32).eval()


def _loader(config: Any, config_file: Path) -> Any:
    """Return the class of transformers that makes the language model of a config."""
    kind = config.model_type
    check_encoder(config)
    if kind in modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES:
        return transformers.AutoModelForSpeechSeq2Seq
    if kind in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return transformers.AutoModelForImageTextToText
    # transformers also lists models that fill gaps in a text as causal, as they can be made so.
    fills_gaps = kind in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if kind in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and (
        not fills_gaps or getattr(config, "is_decoder", False)
    ):
        return transformers.AutoModelForCausalLM
    raise UsageError(
        f"{config_file} describes a model of the type {kind!r}, which does not generate text",
        hint="give file.py:function, which returns the model and example inputs",
    )


def check_encoder(config: Any) -> None:
    """Raise `UsageError` for an encoder-decoder, unless it reads spectrograms as Whisper does."""
    text = config.get_text_config(decoder=True)
    is_speech = hasattr(config, "num_mel_bins") and hasattr(text, "max_source_positions")
    if config.is_encoder_decoder and not is_speech:
        raise UsageError(
            f"cannot export a {config.model_type} as a language model: it is an encoder-decoder, "
            "and only those that read spectrograms can be exported, such as Whisper",
            hint="export the encoder and the decoder with example inputs: file.py:function",
        )


@contextmanager
def _blaming(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise UsageError(f"{what}: {innermost(error)}") from error
