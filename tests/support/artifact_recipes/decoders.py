"""A small decoder with seeded weights, exported in the forms that language models have, and what
plain PyTorch makes of a prompt.

`artifacts("decoders").extra("dynamic.pte")`, and so on for the names of `PROGRAMS`.
"external.pte" is "one" with its weights in "external.ptd"; "tokenizer.json" has the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    to_edge,
    to_edge_transform_and_lower,
)
from executorch.exir.passes import MemoryPlanningPass
from torch import nn

from tests.support.artifact_recipes.workbench import Call, Workbench

VOCABULARY, CONTEXT, WIDTH, CHUNK = 256, 64, 32, 8
METADATA: dict[str, Any] = {
    "get_max_seq_len": CONTEXT - 1,
    "get_max_context_len": CONTEXT,
    "get_vocab_size": VOCABULARY,
    "use_kv_cache": True,
    "get_bos_id": 1,
}


class Attention(nn.Module):
    """Attention with a cache in buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("keys", torch.zeros(1, 2, CONTEXT, WIDTH // 2))
        self.register_buffer("values", torch.zeros(1, 2, CONTEXT, WIDTH // 2))
        mask = torch.ones(CONTEXT, CONTEXT).tril().bool()
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        count = x.shape[1]
        parts = self.joined(x).chunk(3, -1)
        query, key, value = (p.reshape(1, count, 2, WIDTH // 2).transpose(1, 2) for p in parts)
        self.keys.index_copy_(2, positions, key)
        self.values.index_copy_(2, positions, value)
        mixed = nn.functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=self.mask[positions]
        )
        return self.out(mixed.transpose(1, 2).reshape(1, count, WIDTH))


class Body(nn.Module):
    """Two layers over embeddings, to logits. `states` of an encoder are read in the first."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.attention = nn.ModuleList(Attention() for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, states: torch.Tensor | None = None
    ) -> torch.Tensor:
        x = x + self.places(positions)
        if states is not None:
            x = x + nn.functional.scaled_dot_product_attention(x, states, states)
        for attention, up, down in zip(self.attention, self.up, self.down, strict=True):
            x = x + attention(x, positions)
            x = x + down(torch.relu(up(x)))
        logits: torch.Tensor = self.head(x)
        return logits


class Model(nn.Module):
    """All parts; its methods are those of the programs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.body = Body()
        self.vision = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.hearing = nn.Linear(5, WIDTH)
        self.eval().requires_grad_(False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return self.body(self.embedding(tokens), positions)

    def one(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self(tokens, position)[:, -1]

    def chunk(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self(tokens, position + torch.arange(CHUNK))

    def whole(self, tokens: torch.Tensor) -> torch.Tensor:
        """Attention over the tokens alone, without a cache."""
        count = tokens.shape[1]
        mask = torch.ones(count, count).tril().bool()
        x = self.embedding(tokens) + self.body.places(torch.arange(count))
        for attention, up, down in zip(
            self.body.attention, self.body.up, self.body.down, strict=True
        ):
            parts = attention.joined(x).chunk(3, -1)
            q, k, v = (p.reshape(1, count, 2, WIDTH // 2).transpose(1, 2) for p in parts)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + attention.out(mixed.transpose(1, 2).reshape(1, count, WIDTH))
            x = x + down(torch.relu(up(x)))
        return self.body.head(x)

    def vision_encoder(self, image: torch.Tensor) -> torch.Tensor:
        return self.vision(image).flatten(2).transpose(1, 2)

    def encoder(self, sound: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.hearing(sound))

    def listening(
        self, tokens: torch.Tensor, states: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        return self.body(self.embedding(tokens), position, states)


class Method(nn.Module):
    """One method of the model as the `forward` that torch.export wants. Its buffers have the same
    names in each, by which a plan shares them."""

    def __init__(self, model: Model, method: str) -> None:
        super().__init__()
        self.model = model
        self.method = method

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found = getattr(self.model, self.method)
        return found(*inputs)  # type: ignore[no-any-return]


IMAGE = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
SOUND = torch.rand(1, 6, 5, generator=torch.Generator().manual_seed(2))
IMAGE_TOKENS = 4


def _ids(count: int) -> torch.Tensor:
    return torch.ones(1, count, dtype=torch.int64)


def _exported(method: str, inputs: tuple[torch.Tensor, ...], *dynamic: int | None) -> Any:
    """Export a method; `dynamic` has the dimension of each input that is the number of tokens."""
    size = torch.export.Dim("tokens", max=CONTEXT - 1)
    shapes = tuple({} if dim is None else {dim: size} for dim in dynamic)
    return torch.export.export(
        Method(Model(), method), inputs, dynamic_shapes=(shapes,) if dynamic else None
    )


def _dynamic() -> dict[str, Any]:
    return {"forward": _exported("forward", (_ids(5), torch.arange(5)), 1, 0)}


def _one() -> dict[str, Any]:
    return {"forward": _exported("one", (_ids(1), torch.tensor([0])))}


def _pair() -> dict[str, Any]:
    return {
        "prefill": _exported("chunk", (_ids(CHUNK), torch.tensor([0]))),
        "decode": _exported("one", (_ids(1), torch.tensor([0]))),
    }


def _without_cache() -> dict[str, Any]:
    return {"forward": _exported("whole", (_ids(5),), 1)}


def _seeing() -> dict[str, Any]:
    embedded = torch.zeros(1, 5, WIDTH)
    embedding = torch.export.export(
        Model().embedding,
        (_ids(5),),
        dynamic_shapes=({1: torch.export.Dim("tokens", max=CONTEXT - 1)},),
    )
    body = torch.export.export(
        Model().body,
        (embedded, torch.arange(5)),
        dynamic_shapes=(
            {1: (size := torch.export.Dim("tokens", max=CONTEXT - 1))},
            {0: size},
        ),
    )
    return {
        "vision_encoder": _exported("vision_encoder", (IMAGE,)),
        "token_embedding": embedding,
        "text_decoder": body,
    }


def _listening() -> dict[str, Any]:
    states = torch.zeros(1, 6, WIDTH)
    return {
        "encoder": _exported("encoder", (SOUND,)),
        "text_decoder": _exported("listening", (_ids(1), states, torch.tensor([0]))),
    }


PROGRAMS: dict[str, Callable[[], dict[str, Any]]] = {
    "dynamic": _dynamic,
    "one": _one,
    "pair": _pair,
    "without_cache": _without_cache,
    "seeing": _seeing,
    "listening": _listening,
}


def decoders(bench: Workbench) -> None:
    """All of `PROGRAMS`. That with a dynamic length is on XNNPACK, and the artefact's own program,
    with its record."""
    for name in PROGRAMS:
        edge = _lowered(name)
        plan = MemoryPlanningPass(share_mutable_buffers=name == "pair")
        config = ExecutorchBackendConfig(memory_planning_pass=plan)
        made = bench.save(edge, config) if name == "dynamic" else edge.to_executorch(config)
        (bench.folder / f"{name}.pte").write_bytes(made.buffer)
    weights = ExecutorchBackendConfig(external_constants=lambda node: "external")
    made = _lowered("one").to_executorch(weights)
    (bench.folder / "external.pte").write_bytes(made.buffer)
    made.write_tensor_data_to_file(str(bench.folder))
    _write_tokenizer(bench.folder / "tokenizer.json")
    bench.profile(Model(), Call((_ids(5), torch.arange(5))), debug_bytes=5_000_000)


def _lowered(name: str) -> EdgeProgramManager:
    metadata = {**METADATA, "use_kv_cache": name != "without_cache"}
    if name == "dynamic":
        return to_edge_transform_and_lower(
            PROGRAMS[name](),
            partitioner=[XnnpackPartitioner()],
            constant_methods=metadata,
            generate_etrecord=True,
        )
    return to_edge(PROGRAMS[name](), constant_methods=metadata)


def _write_tokenizer(path: Path) -> None:
    """Write a tokenizer of words w0 to w255, whose ids are their numbers."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{number}": number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


def eager_tokens(name: str, prompt: Sequence[int], count: int) -> list[int]:
    """Generate greedily with PyTorch: the context as a whole for each token."""
    model = Model()
    found: list[int] = []
    with torch.no_grad():
        for _ in range(count):
            row = eager_logits(name, [*prompt, *found], model)[-1]
            found.append(int(row.argmax()))
    return found


def eager_logits(
    name: str, ids: Sequence[int], model: Model | None = None
) -> npt.NDArray[np.float32]:
    """Return the logits of PyTorch for a whole context, float32 [tokens, vocabulary]."""
    model = model or Model()
    with torch.no_grad():
        embedded = model.embedding(torch.tensor([list(ids)]))
        states = None
        if name == "seeing":
            embedded = torch.cat([model.vision_encoder(IMAGE), embedded], 1)
        if name == "listening":
            states = model.encoder(SOUND)
        found: npt.NDArray[np.float32] = model.body(
            embedded, torch.arange(embedded.shape[1]), states
        )[0].numpy()
    return found
