"""BERT of the base size on XNNPACK, in a form in which upstream's numeric gap works too."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.support.artifact_recipes.workbench import Call, Workbench, exported, seeded, xnnpack

TOKENS, WIDTH, HEADS, INNER, LAYERS, WORDS = 128, 768, 12, 3072, 12, 30_522
DEBUG_BYTES = 200_000_000


class Layer(nn.Module):
    """A layer of BERT over rows of two dimensions, with batched products: linear layers of more
    and `matmul` become a product between views of one debug handle, which ends upstream's
    comparison with an error."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norm, self.last_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part(rows).view(TOKENS, HEADS, WIDTH // HEADS).transpose(0, 1)
            for part in (self.query, self.key, self.value)
        )
        weights = torch.bmm(query, key.transpose(1, 2)) * (WIDTH // HEADS) ** -0.5
        mixed = torch.bmm(functional.softmax(weights, -1), value)
        rows = self.norm(rows + self.out(mixed.transpose(0, 1).reshape(TOKENS, WIDTH)))
        return self.last_norm(rows + self.down(functional.gelu(self.up(rows))))


class RowEncoder(nn.Module):
    """Embeddings and twelve layers, 109 M parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(512, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(
            self.norm(self.words(tokens) + self.places.weight[:TOKENS])
        )
        return result


def bert_rows_xnnpack(bench: Workbench) -> None:
    """109 M parameters, 128 tokens, one run. The record has the inputs."""
    torch.manual_seed(0)
    model = RowEncoder().eval()
    call = Call((torch.randint(0, WORDS, (TOKENS,), generator=seeded(1)),))
    record = bench.save(xnnpack(exported(model, call.inputs))).get_etrecord()
    record.update_representative_inputs(list(call.inputs))
    record.save(str(bench.folder / "etrecord.bin"))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES, timing=False)
