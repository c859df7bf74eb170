"""The inputs of a generation's calls, made again of its tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from etscope.formats.generation import (
    Generation,
    GenerationCalls,
    InputType,
    OutputOf,
    inputs_of_calls,
)


def generation(inputs: dict[str, tuple[str, ...]]) -> Generation:
    return Generation(
        prompt_tokens=np.array([7, -1, -1, 5]),
        generated_tokens=np.array([2, 3]),
        passes=(),
        inputs=inputs,
    )


def calls(*rows: tuple[str, int, int]) -> GenerationCalls:
    """Return calls of rows (method, position, tokens)."""
    methods = tuple(dict.fromkeys(row[0] for row in rows))
    zeros = np.zeros(len(rows), np.int64)
    return GenerationCalls(
        methods,
        ("prefill",),
        run=zeros,
        method=np.array([methods.index(row[0]) for row in rows]),
        phase=zeros,
        position=np.array([row[1] for row in rows]),
        tokens=np.array([row[2] for row in rows]),
        start_ns=zeros,
        execute_ns=zeros,
        sampling_ns=zeros,
    )


def made(found: Any) -> list[Any]:
    return [
        None if one is None else [v if isinstance(v, OutputOf) else v.tolist() for v in one]
        for one in found
    ]


def test_tokens_and_positions() -> None:
    known = generation({"forward": ("tokens", "position"), "chunk": ("tokens", "positions")})
    ran = calls(("forward", 3, 1), ("forward", 4, 1), ("chunk", 3, 2))
    found = inputs_of_calls(known, ran, (), lambda method: ())
    assert made(found) == [[[[5]], [3]], [[[2]], [4]], [[[5, 2]], [3, 4]]]

    known = generation({"forward": ("tokens", "given 1"), "other": ("colour",)})
    ran = calls(("forward", 0, 1), ("other", 0, 1), ("unnoted", 0, 1))
    assert list(inputs_of_calls(known, ran, (), lambda method: ())) == [None, None, None]


def test_a_fixed_length_is_filled_up_in_the_type_of_the_program() -> None:
    known = generation({"chunk": ("tokens", "positions")})
    types = [InputType(np.dtype(np.int32), 4), InputType(np.dtype(np.int32), 4)]
    (found,) = inputs_of_calls(known, calls(("chunk", 3, 2)), (), lambda method: types)
    assert found is not None
    assert made([found]) == [[[[5, 2, 0, 0]], [3, 4, 5, 6]]]
    assert {value.dtype for value in found} == {np.dtype(np.int32)}


def test_outputs_of_the_call_before_and_of_an_encoder() -> None:
    """A text decoder takes what the call right before it made; a decoder of speech the output of
    its encoder, however long ago."""
    image = np.ones((1, 3), np.float32)
    known = generation(
        {
            "token_embedding": ("tokens",),
            "vision_encoder": ("given 0",),
            "text_decoder": ("output 0 of token_embedding", "position"),
        }
    )
    ran = calls(
        *(("token_embedding", 0, 1), ("text_decoder", 0, 1), ("vision_encoder", -1, 0)),
        *(("text_decoder", 1, 2), ("token_embedding", 3, 1), ("text_decoder", 3, 1)),
    )
    assert made(inputs_of_calls(known, ran, (image,), lambda method: ())) == [
        [[[7]]],
        [OutputOf(0, "token_embedding", 0), [0]],
        [[[1.0, 1.0, 1.0]]],
        [OutputOf(2, "vision_encoder", 0), [1]],
        [[[5]]],
        [OutputOf(4, "token_embedding", 0), [3]],
    ]
    speech = generation({"encoder": ("given 0",), "decoder": ("tokens", "output 0 of encoder")})
    ran = calls(("encoder", -1, 0), ("decoder", 3, 1), ("decoder", 4, 1))
    found = made(inputs_of_calls(speech, ran, (image,), lambda method: ()))
    assert found[1:] == [[[[5]], OutputOf(0, "encoder", 0)], [[[2]], OutputOf(0, "encoder", 0)]]
