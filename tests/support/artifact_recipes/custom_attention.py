"""A Llama of ExecuTorch's, exported by its own `export_llm`, with its attention over the cache.

`llama::custom_sdpa` looks at as much of the cache as there is, so its time grows with the position,
where the attention of transformers looks at the whole cache from the first token on.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from executorch.examples.models.llama.llama_transformer import construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs

from etscope.export import load_model
from tests.support.artifact_recipes.language_models import Session, position, prompt
from tests.support.artifact_recipes.workbench import Workbench

CONTEXT, PROMPT, STEPS = 256, 9, 5
PARAMETERS = {
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "vocab_size": 512,
    "multiple_of": 32,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
CONFIG = """\
base:
  model_class: llama3
  params: {folder}/params.json
  checkpoint: {folder}/checkpoint.pth
model:
  use_kv_cache: true
  use_sdpa_with_kv_cache: true
  dtype_override: fp32
export:
  max_seq_length: {context}
  max_context_length: {context}
backend:
  xnnpack:
    enabled: true
    extended_ops: true
"""


def llama() -> torch.nn.Module:
    """The model of the checkpoint, without a cache; gives the logits of the last token."""
    torch.manual_seed(0)
    model: torch.nn.Module = construct_transformer(ModelArgs(**PARAMETERS))
    return model


def write_config(folder: Path) -> Path:
    """Write a random checkpoint, its parameters and a config of `export_llm`; return the config."""
    (folder / "params.json").write_text(json.dumps(PARAMETERS))
    torch.save(llama().state_dict(), folder / "checkpoint.pth")
    config = folder / "llm.yaml"
    config.write_text(CONFIG.format(folder=folder, context=CONTEXT))
    return config


def llama_custom_sdpa(bench: Workbench) -> None:
    """A prompt of any length, and the logits of its last token, in float32 on XNNPACK."""
    with tempfile.TemporaryDirectory() as folder:
        made = load_model(str(write_config(Path(folder)))).export()
    bench.pte.write_bytes(made.program_bytes())
    made.record.save(str(bench.folder / "etrecord.bin"))
    session = Session(bench, 8_000_000)
    logits = session.run("forward", prompt(), position(0))
    for place in range(PROMPT, PROMPT + STEPS):
        logits = session.run("forward", logits.argmax(dim=-1, keepdim=True), position(place))
    session.finish()
