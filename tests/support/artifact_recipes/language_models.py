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
from transformers import (
    CLIPVisionConfig,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

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


class Session:
    """A program that runs calls, one after the other, with the values of their nodes."""

    def __init__(self, bench: Workbench, debug_bytes: int) -> None:
        self.bench = bench
        self.module = _load_for_executorch(
            str(bench.pte), enable_etdump=True, debug_buffer_size=debug_bytes
        )
        self.calls: list[Call] = []
        self.outputs: list[list[torch.Tensor]] = []

    def run(self, method: str, *inputs: torch.Tensor) -> torch.Tensor:
        """Run a call; return its first output."""
        call = Call(tuple(one.contiguous() for one in inputs), method)
        self.calls.append(call)
        self.outputs.append([one.clone() for one in self.module.run_method(method, call.inputs)])
        return self.outputs[-1][0]

    def finish(self) -> None:
        """Write the dump, one of times of the same calls, and the calls with their outputs."""
        self.module.write_etdump_result_to_file(
            str(self.bench.folder / "etdump.etdp"), str(self.bench.folder / "debug_output.bin")
        )
        self.bench.run(*self.calls, etdump="timing.etdp")
        self.bench.keep(self.calls, self.outputs)


def position(place: int) -> torch.Tensor:
    """Return an input of that name."""
    return torch.tensor([place])


def likeliest(logits: torch.Tensor) -> torch.Tensor:
    """Return the token after the last one, int64 [1, 1]."""
    return logits[:, -1].argmax(dim=-1, keepdim=True)


def generate(bench: Workbench, *, one_token: bool = False, debug_bytes: int = 8_000_000) -> None:
    """Run a prompt and greedy decode steps of the method `forward`."""
    session = Session(bench, debug_bytes)
    for place in range(0, PROMPT, 1 if one_token else PROMPT):
        piece = prompt()[:, place : place + 1] if one_token else prompt()
        logits = session.run("forward", piece, position(place))
    for place in range(PROMPT, PROMPT + STEPS):
        logits = session.run("forward", likeliest(logits), position(place))
    session.finish()


def llama() -> LlamaForCausalLM:
    """A Llama with grouped queries."""
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()


def llama_generate(bench: Workbench) -> None:
    """A prompt of any length; the logits of all tokens."""
    save(bench, LanguageModel(llama(), logits="all"))
    generate(bench)


def llama_generate_8da4w(bench: Workbench) -> None:
    """The same weights in 4 bits, those of the embedding in 8."""
    save(bench, LanguageModel(llama(), logits="all"), quantize="8da4w", quantize_embeddings=8)
    generate(bench)


def qwen() -> Qwen3ForCausalLM:
    """A Qwen 3, which normalises queries and keys, with tied embeddings."""
    torch.manual_seed(1)
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=True)).eval()


def qwen_generate(bench: Workbench) -> None:
    """One token a call."""
    save(bench, LanguageModel(qwen(), context=64, prompt="one-token"))
    generate(bench, one_token=True)


def gemma() -> Gemma3ForCausalLM:
    """A Gemma 3, whose first layer sees 8 tokens back and whose second all."""
    torch.manual_seed(2)
    config = Gemma3TextConfig(
        **SIZES, sliding_window=8, layer_types=["sliding_attention", "full_attention"]
    )
    return Gemma3ForCausalLM(config).eval()


def gemma_generate(bench: Workbench) -> None:
    """A prompt of any length; the logits of its last token."""
    save(bench, LanguageModel(gemma()))
    generate(bench)


def smollm() -> SmolLM3ForCausalLM:
    """A SmolLM 3, of which every second layer has no positions, with tied embeddings."""
    torch.manual_seed(3)
    config = SmolLM3Config(**SIZES, no_rope_layer_interval=2, tie_word_embeddings=True)
    return SmolLM3ForCausalLM(config).eval()


def smollm_generate(bench: Workbench) -> None:
    """A method for prompts of 16 tokens and one for a token, with one cache."""
    save(bench, LanguageModel(smollm(), context=64, prompt=16))
    session = Session(bench, 8_000_000)
    filled = torch.nn.functional.pad(prompt(), (0, 16 - PROMPT))
    logits = session.run("prefill", filled, position(0))[:, :PROMPT]
    for place in range(PROMPT, PROMPT + STEPS):
        logits = session.run("decode", likeliest(logits), position(place))
    session.finish()


def llava() -> LlavaForConditionalGeneration:
    """A LLaVA that makes 4 embeddings of an image of 28 x 28 pixels."""
    torch.manual_seed(4)
    vision = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    config = LlavaConfig(vision_config=vision, text_config=LlamaConfig(**SIZES), image_token_id=2)
    return LlavaForConditionalGeneration(config).eval()


def vlm_generate(bench: Workbench) -> None:
    """An image, then a prompt."""
    save(bench, LanguageModel(llava(), context=64))
    session = Session(bench, 12_000_000)
    image = session.run("vision_encoder", torch.rand(1, 3, 28, 28, generator=seeded(5)))
    session.run("text_decoder", image, position(0))
    tokens, place = prompt(), image.shape[1]
    for _ in range(1 + STEPS):
        embeddings = session.run("token_embedding", tokens)
        logits = session.run("text_decoder", embeddings, position(place))
        place += tokens.shape[1]
        tokens = likeliest(logits)
    session.finish()


def whisper() -> WhisperForConditionalGeneration:
    """A Whisper that hears 1 s: 100 frames of 16 bins."""
    torch.manual_seed(6)
    config = WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_mel_bins=16,
        max_source_positions=50,
        max_target_positions=64,
        init_std=0.2,
        decoder_start_token_id=BEGIN,
        bos_token_id=BEGIN,
        eos_token_id=END,
        pad_token_id=END,
    )
    return WhisperForConditionalGeneration(config).eval()


def whisper_generate(bench: Workbench) -> None:
    """Sound, then tokens from the one that begins a text."""
    save(bench, LanguageModel(whisper()))
    session = Session(bench, 12_000_000)
    hidden = session.run("encoder", torch.randn(1, 16, 100, generator=seeded(6)))
    tokens = torch.tensor([[BEGIN]])
    for place in range(1 + STEPS):
        logits = session.run("text_decoder", tokens, hidden, position(place))
        tokens = likeliest(logits)
    session.finish()
