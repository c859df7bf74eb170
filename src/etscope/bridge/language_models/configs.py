"""Models of transformers from a folder with a config.json, with its weights or random ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

from etscope.bridge.failures import innermost
from etscope.errors import UsageError

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
            hint="export its encoder and its decoder with example inputs: file.py:function",
        )


@contextmanager
def _blaming(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise UsageError(f"{what}: {innermost(error)}") from error
