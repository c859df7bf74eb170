"""The roles of a program's methods, and the calls that a prompt takes."""

from __future__ import annotations

from typing import Any

import pytest

from etscope.analysis.generation.layout import Encoder, Layout, Role, constant, layout_of
from etscope.analysis.generation.plan import Encoded, PromptCalls, plan_prompt
from etscope.errors import MismatchError
from etscope.formats.program.pte import read_pte
from tests.support.artifacts import artifacts

WORDS = ("tokens", "position")


def layout(length: int | None, decodes: int | None = None, **more: Any) -> Layout:
    """A layout whose methods take that many tokens; None: any, up to 10."""
    prefill = Role("prefill", WORDS, length, length or 10)
    known: dict[str, Any] = {
        "prefill": prefill,
        "decode": prefill if decodes is None else Role("decode", WORDS, decodes, decodes),
        "vocabulary_size": 100,
        "context_length": 32,
        "cached": True,
        "logits_output": 0,
        "all_rows": {"prefill": True, "decode": True},
    }
    return Layout(**{**known, **more})


def shown(fed: PromptCalls) -> list[tuple[str, int, int, int]]:
    """(method, position, tokens, size of its tensors) of the calls of the prompt."""
    return [(call.method, call.position, call.count, call.length) for call in fed.prompt]


def test_any_length_goes_in_as_few_calls_as_the_bound_allows() -> None:
    fed = plan_prompt(layout(None), [list(range(23))], None)
    assert shown(fed) == [("prefill", 0, 10, 10), ("prefill", 10, 10, 10), ("prefill", 20, 3, 3)]
    assert [call.tokens for call in fed.prompt] == [
        tuple(range(10)), tuple(range(10, 20)), (20, 21, 22),
    ]  # fmt: skip
    assert [(call.method, call.length, call.phase) for call in fed.decode] == [
        ("prefill", 1, "decode")
    ]


def test_a_fixed_length_is_filled_up() -> None:
    assert shown(plan_prompt(layout(1), [[5, 6]], None)) == [
        ("prefill", 0, 1, 1),
        ("prefill", 1, 1, 1),
    ]
    long = plan_prompt(layout(8, 1), [list(range(11))], None)
    assert shown(long) == [("prefill", 0, 8, 8), ("prefill", 8, 3, 8)]


def test_where_it_cannot_be_filled_up_tokens_go_one_by_one() -> None:
    """There is no row for the last real token; or no room in the cache."""
    last_only = layout(8, 1, all_rows={"prefill": False, "decode": True})
    assert shown(plan_prompt(last_only, [list(range(10))], None)) == [
        ("prefill", 0, 8, 8),
        ("decode", 8, 1, 1),
        ("decode", 9, 1, 1),
    ]
    short = layout(8, 1, context_length=12)
    assert [call[0] for call in shown(plan_prompt(short, [list(range(11))], None))] == [
        "prefill", "decode", "decode", "decode",
    ]  # fmt: skip
    alone = layout(8, None, all_rows={"prefill": False})
    with pytest.raises(MismatchError, match=r"takes 8 tokens a call\. The 2 left at the end"):
        plan_prompt(alone, [list(range(10))], None)


def test_without_a_cache_the_whole_context_is_one_call() -> None:
    role = Role("forward", ("tokens",), None, 10)
    plain = layout(None, cached=False, prefill=role, decode=role, all_rows={"forward": True})
    fed = plan_prompt(plain, [[1, 2, 3]], None)
    assert shown(fed) == [("forward", 0, 3, 3)]
    assert fed.decode[0].whole
    assert fed.decode[0].length == 0


def test_embeddings_and_images() -> None:
    words = ("output 0 of token_embedding", "positions")
    role = Role("text_decoder", words, None, 10)
    seeing = layout(
        None,
        prefill=role,
        decode=role,
        embedding=Role("token_embedding", ("tokens",), None, 10),
        all_rows={"text_decoder": True},
    )
    image = Encoded(Encoder("vision_encoder", 1, 4), (0,), 4)
    fed = plan_prompt(seeing, [[1, 2], image, [3]], None)
    assert shown(fed) == [
        ("token_embedding", 0, 2, 2),
        ("text_decoder", 0, 2, 2),
        ("vision_encoder", -1, 0, 1),
        ("text_decoder", 2, 4, 4),
        ("token_embedding", 6, 1, 1),
        ("text_decoder", 6, 1, 1),
    ]
    assert fed.context == (1, 2, -1, -1, -1, -1, 3)
    assert fed.prompt[3].inputs == ("output 0 of vision_encoder", "positions")
    assert [call.method for call in fed.decode] == ["token_embedding", "text_decoder"]
    with pytest.raises(MismatchError, match="gives 11 embeddings, and text_decoder takes at most"):
        plan_prompt(seeing, [Encoded(Encoder("vision_encoder", 1, 11), (0,), 11)], None)


# -- the layouts of real programs


def found(name: str) -> Layout:
    return layout_of(read_pte(artifacts("decoders").extra(f"{name}.pte")))


@pytest.mark.parametrize(
    ("name", "prefill", "decode", "length", "cached"),
    [
        ("dynamic", "forward", "forward", None, True),
        ("one", "forward", "forward", 1, True),
        ("pair", "prefill", "decode", 8, True),
        ("without_cache", "forward", "forward", None, False),
        ("seeing", "text_decoder", "text_decoder", None, True),
        ("listening", "text_decoder", "text_decoder", 1, True),
    ],
)
def test_layouts(name: str, prefill: str, decode: str, length: int | None, cached: bool) -> None:
    got = found(name)
    assert (got.prefill.method, got.decode.method) == (prefill, decode)
    assert (got.prefill.length, got.cached) == (length, cached)
    assert got.vocabulary_size == 256
    assert got.bos_token == 1
    assert got.context_length == (64 if cached else 63)


def test_what_is_beside_the_decoder() -> None:
    seeing, listening = found("seeing"), found("listening")
    assert seeing.encoders == (Encoder("vision_encoder", 1, 4),)
    assert seeing.embedding is not None
    assert listening.source == Encoder("encoder", 1, 6)
    assert listening.decode.inputs == ("tokens", "output 0 of encoder", "position")


def test_metadata_is_read_without_running_anything() -> None:
    program = read_pte(artifacts("decoders").extra("one.pte"))
    methods = ("get_max_context_len", "use_kv_cache", "forward", "get_eos_ids")
    assert [constant(program, name) for name in methods] == [(64,), (True,), (), ()]


@pytest.mark.parametrize("name", ["cnn_portable", "two_methods", "int_outputs"])
def test_no_language_model(name: str) -> None:
    with pytest.raises(MismatchError, match="language model"):
        layout_of(read_pte(artifacts(name).pte))
