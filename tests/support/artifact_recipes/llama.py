"""A small Llama with random weights: its modules are those of people's language models."""

from __future__ import annotations

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from tests.support.artifact_recipes.workbench import Call, Workbench, exported, seeded, xnnpack

VOCABULARY, TOKENS = 256, 16


class Logits(nn.Module):
    """A Llama whose output is a plain tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.llama = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=VOCABULARY,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                attn_implementation="eager",
                use_cache=False,
            )
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.llama(input_ids=tokens).logits
        return logits


def llama_xnnpack(bench: Workbench) -> None:
    """Three layers, 1 x 16 tokens, on XNNPACK."""
    torch.manual_seed(0)
    model = Logits().eval()
    call = Call((torch.randint(0, VOCABULARY, (1, TOKENS), generator=seeded(1)),), repeat=5)
    bench.save(xnnpack(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=50_000_000)
