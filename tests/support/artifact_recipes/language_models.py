"""Small language models of transformers with random weights, exported to generate text.

Each has a vocabulary of 512, that of the tokenizer beside it, and is run for a prompt and five
decode steps. Their programs come from `etscope.export`; add one to `REVISION` when that makes
others, as the cache of artefacts does not see it.
"""

from __future__ import annotations

from typing import Any

import torch
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from etscope.export import LanguageModel, export
from tests.support.artifact_recipes.workbench import Call, Workbench, seeded

REVISION = 1

VOCABULARY, CONTEXT, PROMPT, STEPS = 512, 128, 9, 5
BEGIN, END = 0, 1  # ids of the tokens that begin and end a text
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,  # logits that differ by enough for a sure choice
    "bos_token_id": BEGIN,
    "eos_token_id": END,
    "pad_token_id": None,
}
SENTENCES = (
    "Language models read a prompt and then write one token after the other.",
    "The cache keeps the keys and the values of the tokens that were read before.",
    "A longer context costs more time in attention, and more memory in the cache.",
    "Weights of four bits are smaller, and some of the tokens that come out are other ones.",
    "Where do the milliseconds of a token go? Into matrix products, mostly.",
    "A profiler that averages a prefill with its decode steps says nothing about either of them.",
    "Which operator grows with the position, and by how many nanoseconds for each token?",
    "Greedy sampling takes the likeliest token; a temperature above zero draws among the others.",
    "Images become embeddings in a vision encoder, sounds become hidden states in another.",
    "der Zwischenspeicher, la mémoire, キャッシュ: bytes stand for letters it has not seen.",
)


def save_tokenizer(bench: Workbench) -> None:
    """Train byte pairs on the sentences and write `tokenizer.json`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=1,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY
    tokenizer.save(str(bench.folder / "tokenizer.json"))


def prompt() -> torch.Tensor:
    """Return the tokens that each model is given, int64 [1, PROMPT]."""
    drawn = torch.randint(2, VOCABULARY, (1, PROMPT - 1), generator=seeded(7))
    return torch.cat([torch.tensor([[BEGIN]]), drawn], dim=1)


def save(bench: Workbench, model: LanguageModel, **options: Any) -> None:
    """Write the program, its record, its config and a tokenizer."""
    with torch.no_grad():
        made = export(model, backend="xnnpack", **options)
    bench.pte.write_bytes(made.program_bytes())
    made.record.save(str(bench.folder / "etrecord.bin"))
    model.model.config.save_pretrained(bench.folder)
    save_tokenizer(bench)


def generate(bench: Workbench, *, one_token: bool = False, debug_bytes: int = 8_000_000) -> None:
    """Run a prompt and greedy decode steps of the method `forward`, with values and without; keep
    the calls and their logits."""
    module = _load_for_executorch(str(bench.pte), enable_etdump=True, debug_buffer_size=debug_bytes)
    calls: list[Call] = []
    logits: list[list[torch.Tensor]] = []

    def step(tokens: torch.Tensor, position: int) -> torch.Tensor:
        calls.append(Call((tokens, torch.tensor([position]))))
        logits.append([one.clone() for one in module.run_method("forward", calls[-1].inputs)])
        return logits[-1][0][:, -1].argmax(dim=-1, keepdim=True)

    given = prompt()
    position = 0
    for piece in given.split(1 if one_token else PROMPT, dim=1):
        drawn = step(piece.contiguous(), position)
        position += piece.shape[1]
    for place in range(PROMPT, PROMPT + STEPS):
        drawn = step(drawn, place)
    module.write_etdump_result_to_file(
        str(bench.folder / "etdump.etdp"), str(bench.folder / "debug_output.bin")
    )
    bench.run(*calls, etdump="timing.etdp")
    bench.keep(calls, logits)


def llama() -> LlamaForCausalLM:
    """A Llama with grouped queries."""
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()


def llama_generate(bench: Workbench) -> None:
    """A prompt of any length; the logits of all tokens."""
    save(bench, LanguageModel(llama(), logits="all"))
    generate(bench)
