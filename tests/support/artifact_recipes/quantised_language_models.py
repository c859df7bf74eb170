"""The quantised recipe of `language_models`, with the kernels of embeddings of 8 bits loaded."""

from __future__ import annotations

import executorch.kernels.quantized  # noqa: F401

from tests.support.artifact_recipes.language_models import llama_generate_8da4w

__all__ = ["llama_generate_8da4w"]
