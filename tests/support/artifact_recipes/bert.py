"""BERT-base with random weights: the size people really lower."""

from __future__ import annotations

import torch
from torch import nn
from transformers import BertConfig, BertModel

from tests.support.artifact_recipes.workbench import Call, Workbench, exported, seeded, xnnpack

TOKENS = 128
DEBUG_BYTES = 600_000_000


class Encoder(nn.Module):
    """BERT with its outputs as a plain tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = BertModel(BertConfig(attn_implementation="eager"))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.bert(input_ids=tokens, attention_mask=mask)
        return result.last_hidden_state, result.pooler_output


def bert_base_xnnpack(bench: Workbench) -> None:
    """110 M parameters, 1 x 128 tokens, five runs."""
    torch.manual_seed(0)
    model = Encoder().eval()
    tokens = torch.randint(0, 30_000, (1, TOKENS), generator=seeded(1))
    call = Call((tokens, torch.ones(1, TOKENS, dtype=torch.long)), repeat=5)
    bench.save(xnnpack(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)
