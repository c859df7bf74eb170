"""BERT on portable kernels: every operator logs its values."""

from __future__ import annotations

import torch
from transformers import BertConfig, BertModel

from tests.support.artifact_recipes.bert import Encoder
from tests.support.artifact_recipes.workbench import Call, Workbench, exported, portable, seeded

TOKENS = 128
DEBUG_BYTES = 400_000_000


def bert_portable(bench: Workbench) -> None:
    """The width of BERT-base and four of its twelve layers, 1 x 128 tokens, one run: portable
    kernels take a minute for the whole. The record has the inputs."""
    torch.manual_seed(0)
    model = Encoder().eval()
    model.bert = BertModel(BertConfig(attn_implementation="eager", num_hidden_layers=4)).eval()
    tokens = torch.randint(0, 30_000, (1, TOKENS), generator=seeded(1))
    call = Call((tokens, torch.ones(1, TOKENS, dtype=torch.long)))
    record = bench.save(portable(exported(model, call.inputs))).get_etrecord()
    record.update_representative_inputs(list(call.inputs))
    record.save(str(bench.folder / "etrecord.bin"))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES, timing=False)
