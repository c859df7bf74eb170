"""`LanguageModel`: a transformers model that generates text, and what its program is to be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.errors import FormatError, UsageError
from etscope.support.optional import require

if TYPE_CHECKING:
    from etscope.bridge.lowering.export import ModelMethods

CONFIG = "config.json"  # as transformers calls it
DYNAMIC, ONE_TOKEN = "dynamic", "one-token"
SDPA = ("plain", "custom")


@dataclass(frozen=True, slots=True, eq=False)
class LanguageModel:
    """A transformers model that generates text, for `export`: its program has a cache of keys and
    values, and is called by ExecuTorch's runners.

    A causal model has the method `forward(tokens, position)`, tokens int64 [1, n] and position
    int64 [1], of the first of them in the context, which returns logits [1, n or 1, vocabulary]. A
    vision-language one has `vision_encoder(pixels)`, `token_embedding(tokens)` and
    `text_decoder(embeddings, position)`, a speech one `encoder(features)` and
    `text_decoder(tokens, encoder_output, position)`.

    Args:
        model: a `transformers.PreTrainedModel` for causal language modelling, image and text to
            text, or speech to text.
        context: length of the cache in tokens; by default the model's, at most 2,048.
        prompt: tokens that a call takes: "dynamic", any number; "one-token"; or a number N: the
            methods are then `prefill`, of N tokens, and `decode`, of one, with one cache. By
            default "dynamic", and "one-token" for speech.
        logits: "last", of the last token of a call, or "all". By default "all" for prompts of a
            fixed length, which a shorter one does not fill, else "last".
        sdpa: "plain" attention, in operators of ATen over the whole cache, or "custom":
            ExecuTorch's `llama::custom_sdpa`, which reads only the filled part, for causal models
            without windows. The model keeps it.

    Raises `UsageError` for values that are none of these, and in `export` for a model that
    generates no text.
    """

    model: Any
    context: int | None = None
    prompt: str | int | None = None
    logits: str | None = None
    sdpa: str = "plain"

    def __post_init__(self) -> None:
        if self.context is not None and self.context < 2:
            raise UsageError(
                f"a context of {self.context} tokens: nothing can be generated in it",
                hint="give at least 2",
            )
        if isinstance(self.prompt, str) and self.prompt not in (DYNAMIC, ONE_TOKEN):
            raise UsageError(
                f"unknown prompt {self.prompt!r}",
                hint=f"give {DYNAMIC}, {ONE_TOKEN} or a number of tokens",
            )
        if self.logits not in (None, "last", "all"):
            raise UsageError(f"unknown logits {self.logits!r}", hint="give last or all")
        if self.sdpa not in SDPA:
            raise UsageError(f"unknown sdpa {self.sdpa!r}", hint=f"give {' or '.join(SDPA)}")

    def methods(self) -> ModelMethods:
        """Return its methods, not exported yet."""
        require("transformers", wanted_by="exporting a language model")
        from etscope.bridge.language_models.methods import Choices, language_model_methods

        all_logits = None if self.logits is None else self.logits == "all"
        choices = Choices(self.context, self.prompt, all_logits, self.sdpa == "custom")
        return language_model_methods(self.model, choices)


def is_language_model(model: Any) -> bool:
    """Return whether a model is one of transformers that generates text."""
    return hasattr(model, "generate") and hasattr(model, "generation_config")


def config_file(spec: str) -> Path | None:
    """Return the config.json that `spec` names: its path, or the path of its folder; None for
    anything else.
    """
    path = Path(spec)
    if path.is_dir() and (path / CONFIG).is_file():
        return path / CONFIG
    return path if path.suffix == ".json" and path.is_file() else None


def check_config(path: Path) -> None:
    """Raise `FormatError` for a file that is not a config of transformers, without importing it."""
    hint = "give the config.json of a transformers model, or its folder"
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}", path=path, hint=hint) from error
    if not isinstance(value, dict) or not isinstance(value.get("model_type"), str):
        raise FormatError("not a config of transformers: no model_type", path=path, hint=hint)


def load_config(path: Path, seed: int | None) -> tuple[str, Any]:
    """Return a name for the language model of a config.json, and the model."""
    require("transformers", wanted_by="exporting a language model")
    from etscope.bridge.language_models.configs import model_of_config

    model = model_of_config(path, seed)
    name = path.resolve().parent.name if path.name == CONFIG else path.stem
    return name, model


@dataclass(frozen=True, slots=True)
class LlmConfigFile:
    """A config of ExecuTorch's `export_llm`: a YAML file."""

    path: Path


def is_llm_config(spec: str) -> bool:
    """Return whether `spec` names a YAML file."""
    return Path(spec).suffix in (".yaml", ".yml") and Path(spec).is_file()
