"""Language models: what their programs say against transformers' own cache, and their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSpeechSeq2Seq,
    BartConfig,
    BertConfig,
    DynamicCache,
    Gemma2Config,
    LlamaConfig,
    MarianConfig,
    MixtralConfig,
    OlmoeConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    ViTConfig,
    WhisperConfig,
)

from etscope import Inspector
from etscope.cli.verbs.export import command
from etscope.errors import EtscopeWarning, FormatError, UsageError
from etscope.etrecord import parse_etrecord
from etscope.export import LanguageModel, Source, check_model_name, export, load_model
from etscope.formats.program.pte import read_pte
from etscope.run import Call, run
from tests.support.artifact_recipes import language_models as recipes
from tests.support.artifacts import artifacts


class Ran(NamedTuple):
    """A call of an artefact."""

    method: str
    inputs: list[torch.Tensor]
    output: torch.Tensor


def calls(name: str) -> Iterator[Ran]:
    """Yield the calls of an artefact in order."""
    made = artifacts(name)
    assert made.inputs is not None
    assert made.outputs is not None
    inputs, outputs = np.load(made.inputs), np.load(made.outputs)
    assert made.meta["runs"]
    for method, case, _ in made.meta["runs"]:
        key = f"{method}/{case}/"
        given = sorted(one for one in inputs if one.startswith(key))
        yield Ran(
            method,
            [torch.from_numpy(inputs[one]) for one in given],
            torch.from_numpy(outputs[key + "0"]),
        )


def differences(name: str, model: Any) -> list[float]:
    """Return how far each call's logits are from those of transformers with a cache that grows, for
    the same tokens, relative to the largest."""
    cache = DynamicCache(config=model.config)
    found = []
    with torch.no_grad():
        for _, (tokens, position), logits in calls(name):
            assert int(position) == cache.get_seq_length()
            expected = model(tokens, past_key_values=cache, use_cache=True).logits
            assert logits.shape[1] in (1, expected.shape[1])
            expected = expected[:, -logits.shape[1] :]
            found.append(float((logits - expected).abs().max() / expected.abs().max()))
    return found


@pytest.mark.parametrize(
    ("name", "make", "count"),
    [
        ("llama_generate", recipes.llama, 6),
        ("qwen_generate", recipes.qwen, 14),
        ("gemma_generate", recipes.gemma, 6),
    ],
)
def test_a_program_says_what_transformers_says(
    name: str, make: Callable[[], Any], count: int
) -> None:
    found = differences(name, make())
    assert len(found) == count
    assert max(found) < 2e-4
    greedy = list(calls(name))[-recipes.STEPS - 1 :]
    assert int(greedy[1].inputs[0]) == int(greedy[0].output[:, -1].argmax())
    assert not torch.allclose(greedy[1].output, greedy[2].output)  # the position counts


def test_prefill_and_decode_share_their_cache() -> None:
    """The Python runtime gives each method memory of its own, so of its run the prefill counts."""
    made, model = artifacts("smollm_generate"), recipes.smollm()
    prefill = next(calls("smollm_generate"))
    assert prefill.method == "prefill"
    assert prefill.inputs[0].shape == (1, 16)
    with torch.no_grad():
        expected = model(recipes.prompt()).logits
    assert torch.allclose(prefill.output[:, : recipes.PROMPT], expected, atol=1e-3)

    methods = LanguageModel(model, context=64, prompt=16).methods().methods
    place, tokens = recipes.PROMPT, prefill.inputs[0]
    with torch.no_grad():
        methods["prefill"].module(tokens, torch.tensor([0]))
        seen = recipes.prompt()
        for _ in range(recipes.STEPS):
            seen = torch.cat([seen, expected[:, -1:].argmax(-1)], dim=1)
            given = methods["decode"].module(seen[:, -1:], torch.tensor([place]))
            expected = model(seen).logits
            assert torch.allclose(given, expected[:, -1:], atol=1e-3)
            place += 1

    # 2 layers' keys and values of 2 heads x 64 tokens x 16 floats, in the last arena of both.
    sizes = {one.name: one.buffer_sizes for one in read_pte(made.pte).methods}
    assert sizes["prefill"][-1] == sizes["decode"][-1] == 2 * 2 * (2 * 64 * 16 * 4)
    assert len(sizes["prefill"]) == len(sizes["decode"]) == 3


def test_weights_of_four_bits_say_what_their_eager_model_says() -> None:
    from etscope.bridge.lowering.weight_quantization import WeightQuantization, quantized_copy

    model = recipes.llama()
    with torch.no_grad():
        quantized = quantized_copy(model, WeightQuantization("8da4w", 8))
    near = differences("llama_generate_8da4w", quantized)
    far = differences("llama_generate_8da4w", model)
    assert len(near) == 6
    assert max(near) < min(far) / 4
    assert artifacts("llama_generate_8da4w").pte.stat().st_size < (
        artifacts("llama_generate").pte.stat().st_size / 2
    )


def test_a_vision_language_model() -> None:
    model, cache = recipes.llava(), None
    seen: list[str] = []
    embeddings = torch.empty(0)
    with torch.no_grad():
        for method, inputs, output in calls("vlm_generate"):
            seen.append(method)
            if method == "text_decoder":
                assert torch.allclose(inputs[0], embeddings, atol=1e-5)
                made = model(inputs_embeds=embeddings, past_key_values=cache, use_cache=True)
                cache, expected = made.past_key_values, made.logits[:, -1:]
            elif method == "token_embedding":
                expected = embeddings = model.get_input_embeddings()(inputs[0])
            else:
                expected = torch.cat([*model.get_image_features(inputs[0]).pooler_output])[None]
                embeddings = expected
            assert torch.allclose(output, expected, atol=1e-4), method
    assert seen == ["vision_encoder", "text_decoder", *["token_embedding", "text_decoder"] * 6]


def test_a_speech_model() -> None:
    model, cache, hidden = recipes.whisper(), None, torch.empty(0)
    seen: list[str] = []
    with torch.no_grad():
        for method, inputs, output in calls("whisper_generate"):
            seen.append(method)
            if method == "encoder":
                expected = hidden = model.get_encoder()(inputs[0]).last_hidden_state
            else:
                made = model(
                    decoder_input_ids=inputs[0],
                    encoder_outputs=(hidden,),
                    past_key_values=cache,
                    use_cache=True,
                )
                cache, expected = made.past_key_values, made.logits
            assert torch.allclose(output, expected, atol=1e-4), method
    assert seen == ["encoder", *["text_decoder"] * 6]


def test_a_record_names_modules_and_lines_of_transformers() -> None:
    made = artifacts("llama_generate")
    inspector = Inspector(etdump_path=made.etdump_timing, etrecord=made.etrecord)
    frame = inspector.to_dataframe()
    modules = {name for held in frame["module_hierarchy"] for name in map(str, held.values())}
    joined = " ".join(sorted(modules))
    assert "model.layers.0.self_attn.q_proj" in joined
    assert "lm_head" in joined
    traces = " ".join(str(value) for held in frame["stack_traces"] for value in held.values())
    assert "modeling_llama.py" in traces
    assert made.etrecord is not None
    inputs = parse_etrecord(str(made.etrecord))._representative_inputs
    assert [tuple(one.shape) for one in inputs] == [(1, 4), (1,)]


def test_constants_of_a_program() -> None:
    names = {method.name for method in read_pte(artifacts("smollm_generate").pte).methods}
    assert {"prefill", "decode", "get_max_seq_len", "get_max_context_len", "get_eos_ids"} <= names
    assert {"get_vocab_size", "use_kv_cache", "enable_dynamic_shape", "get_bos_id"} <= names
    assert "forward" not in names


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context": 0}, "a context of 0 tokens"),
        ({"prompt": "long"}, "unknown prompt 'long'"),
        ({"logits": "some"}, "unknown logits 'some'"),
        ({"context": 200}, "a context of 200 tokens is too long for a llama with 128 positions"),
        ({"context": 64, "prompt": 65}, "a prompt of 65 tokens does not fit a context of 64"),
        ({"prompt": 16, "logits": "last"}, "filled up after its last token"),
    ],
)
def test_what_makes_no_sense_of_a_language_model(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        LanguageModel(recipes.llama(), **options).methods()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quantize": "8da5w"}, r"unknown quantization '8da5w'\n  hint: give int8, 8da4w or 8da8w"),
        ({"quantize": "8da4w", "group_size": 24}, "XNNPACK takes multiples of 32"),
        ({"quantize": "8da4w", "group_size": 160}, "divides the width of no linear layer"),
        ({"quantize": "8da8w", "group_size": 32}, "is for weights of 4 bits"),
        ({"quantize_embeddings": 2}, "cannot be quantized to 2 bits"),
        ({"quantize": True, "quantize_embeddings": 4}, "for int8 the backend's quantizer"),
        ({"quantize": "8da4w", "backend": "portable"}, "8da4w is for XNNPACK"),
        ({"quantize": "8da4w", "keep_float": "op:mm"}, "keep_float is for a quantized model"),
        ({"quantize": "8da4w", "calibration": []}, "quantization to int8 only"),
    ],
)
def test_quantizations_that_there_are_not(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        export(recipes.llama(), **{"backend": "xnnpack", **options})


def test_layers_that_a_group_size_does_not_divide_stay_in_float() -> None:
    from etscope.bridge.lowering.weight_quantization import WeightQuantization, quantized_copy

    model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.Linear(48, 64))
    with pytest.warns(EtscopeWarning, match="1 of 2 linear layers stay in float.*: 1$"):
        made = quantized_copy(model, WeightQuantization("8da4w"))
    assert type(made[1].weight) is type(model[1].weight) is torch.nn.Parameter
    x = torch.linspace(-1, 1, 64)[None]
    assert not torch.equal(made(x), model(x))
    assert torch.allclose(made(x), model(x), atol=0.2)


def test_a_config_that_is_none_of_a_language_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no config\.json"):
        check_model_name(str(tmp_path))
    for config, kind in ((ViTConfig(), "vit"), (BertConfig(), "bert")):
        config.save_pretrained(tmp_path)
        with pytest.raises(UsageError, match=f"of the type '{kind}', which does not generate text"):
            load_model(str(tmp_path))
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "zebra"}')
    with pytest.raises(UsageError, match=r"cannot read the config .*zebra"):
        load_model(str(path))
    for content, words in (
        ("{", "not JSON"), ("[]", "no model_type"), ('{"model_type": 3}', "no model_type"),
    ):  # fmt: skip
        path.write_text(content)
        with pytest.raises(FormatError, match=words):
            check_model_name(str(path))


@pytest.mark.parametrize("config", [T5Config(), MarianConfig(), BartConfig()])
def test_an_encoder_decoder_is_named_as_one(tmp_path: Path, config: Any) -> None:
    config.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=rf"{config.model_type} .*: it is an encoder-decoder"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("kind", [OlmoeConfig, MixtralConfig])
def test_experts_say_what_transformers_says(kind: Any) -> None:
    """Also with transformers' default for experts, which ExecuTorch has no kernel for."""
    sizes = {**recipes.SIZES, "num_hidden_layers": 1, "hidden_size": 32, "vocab_size": 64}
    config = kind(**{**sizes, "num_experts_per_tok": 2, "intermediate_size": 32, "head_dim": 8})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    tokens, position = torch.tensor([[3, 1, 4, 1]]), torch.tensor([0])
    with torch.no_grad():
        expected = model(tokens).logits
    made = export(LanguageModel(model, context=16, logits="all"))
    with run(made.record, [tokens, position], iterations=1, trace=False) as done:
        assert torch.allclose(done.outputs[0], expected, atol=1e-4)


def test_a_padding_index_beside_quantized_embeddings() -> None:
    model = nn.Sequential(nn.Embedding(100, 64, padding_idx=0), nn.Linear(64, 8)).eval()
    tokens = torch.tensor([[5, 0, 99]])
    made = export(model, tokens, quantize_embeddings=8)
    with run(made.record, [tokens], iterations=1, trace=False) as done:
        (found,) = done.outputs
        assert torch.allclose(found, model(tokens), atol=0.05)
        assert not torch.equal(found, model(tokens))
    assert isinstance(model[0], nn.Embedding)
    assert model[0].padding_idx == 0


def test_weights_beside_a_config(tmp_path: Path) -> None:
    model = recipes.llama()
    model.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), seed=5).model
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    (tmp_path / "model.safetensors").unlink()
    drawn = [load_model(str(tmp_path / "config.json"), seed=seed).model for seed in (5, 5, 6)]
    assert torch.equal(drawn[0].lm_head.weight, drawn[1].lm_head.weight)
    assert not torch.equal(drawn[0].lm_head.weight, drawn[2].lm_head.weight)


def test_weights_of_another_model(tmp_path: Path) -> None:
    recipes.llama().save_pretrained(tmp_path)
    LlamaConfig(**{**recipes.SIZES, "num_hidden_layers": 3}).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"lack 9 of the model's, such as model\.layers\.2"):
        load_model(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(UsageError, match="cannot load the weights in"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("words", "quantize"),
    [
        ("MODEL", None),
        ("-q MODEL", "int8"),
        ("MODEL --quantize", "int8"),
        ("--quantize -X strict=true MODEL", "int8"),
        ("--quantize MODEL --backend xnnpack", "int8"),
        ("--quantize 8da4w MODEL", "8da4w"),
        ("--quantize=8da8w MODEL", "8da8w"),
        ("MODEL -q int8", "int8"),
    ],
)
def test_a_scheme_of_quantization_may_be_left_out(
    words: str, quantize: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    for model in ("model.py:make", "tiny"):
        parsed = command.make_context("export", words.replace("MODEL", model).split()).params
        assert (parsed["model"], parsed["quantize"]) == (model, quantize)


def test_choices_of_a_language_model_for_another_model() -> None:
    source = load_model("tests/support/export/factories.py:Tiny")
    with pytest.raises(UsageError, match="are for a language model"):
        source.generating(context=64)
    made = Source("m", "m", recipes.llama()).generating(prompt="16")
    assert made.model.prompt == 16


def test_options_beside_a_config_of_export_llm(tmp_path: Path) -> None:
    path = tmp_path / "llm.yaml"
    path.write_text("base: {model_class: llama3}")
    check_model_name(str(path))
    with pytest.raises(UsageError, match=r"backend, quantize cannot be used with .*llm\.yaml"):
        load_model(str(path)).export(backend="xnnpack", quantize=True)
    path.write_text("base: {no_such_field: 3}")
    with pytest.raises(UsageError, match=r"is not a config of export_llm: .*no_such_field"):
        load_model(str(path)).export()


def tiny_qwen() -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval()


def test_custom_sdpa_says_what_plain_attention_says() -> None:
    """Also in a prompt that does not begin at 0, with fewer heads of keys than of queries."""
    plain, custom = tiny_qwen(), tiny_qwen()
    exported = export(LanguageModel(custom, context=32, logits="all", sdpa="custom"))
    program = read_pte(exported.program_bytes())
    labels = {operator.name for one in program.methods for operator in one.operators}
    assert any(name.startswith("llama::custom_sdpa") for name in labels)
    cache = DynamicCache(config=plain.config)
    ids = torch.arange(3, 20)[None]
    inputs = [
        (ids[:, begin:end], torch.tensor([begin])) for begin, end in ((0, 7), (7, 12), (12, 13))
    ]
    calls = [Call(inputs=one, iterations=1, warmup=0) for one in inputs]
    with run(exported.program_bytes(), calls, trace=False) as ran, torch.no_grad():
        for (tokens, _), (logits,) in zip(inputs, ran.arrays, strict=True):
            expected = plain(tokens, past_key_values=cache, use_cache=True).logits
            np.testing.assert_allclose(logits, expected.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("config", "more", "why"),
    [
        (Gemma2Config, {"num_hidden_layers": 2}, "attend to a window"),
        (
            WhisperConfig,
            {"encoder_layers": 1, "decoder_layers": 1, "d_model": 30},
            "only causal models",
        ),
    ],
)
def test_custom_sdpa_is_not_for_every_model(config: Any, more: Any, why: str) -> None:
    kinds = {Gemma2Config: AutoModelForCausalLM, WhisperConfig: AutoModelForSpeechSeq2Seq}
    given = config(vocab_size=64, pad_token_id=0, **more)
    model = kinds[config].from_config(given)
    with pytest.raises(UsageError, match=why):
        LanguageModel(model, context=16, sdpa="custom").methods()
