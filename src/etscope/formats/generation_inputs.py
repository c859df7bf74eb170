"""The inputs of a generation's calls, made again of what run.json keeps: the tokens, and where the
inputs of each method come from (see `etscope.formats.generation`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from etscope.formats.generation import Generation, GenerationCalls
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import ShapeDynamism, TensorValue


@dataclass(frozen=True, slots=True)
class OutputOf:
    """An input that is an output of an earlier call. call: its number among the calls; output: the
    index of the output."""

    call: int
    method: str
    output: int


def inputs_of_calls(
    generation: Generation,
    calls: GenerationCalls,
    given: Sequence[Any],
    program: Program | None,
) -> Iterator[tuple[Any, ...] | None]:
    """Yield the inputs of each call, flat: arrays, and `OutputOf` for those that another call made;
    None for a call of which they are not known.

    given: the arrays of images and sound. program: the one that ran, for the types of its inputs
    and the length of those of a fixed size; without it they are int64, and as long as the tokens.
    """
    context = np.concatenate([generation.prompt_tokens, generation.generated_tokens])
    latest: dict[str, int] = {}
    before = ""  # the method of the call before
    columns = (calls.method.tolist(), calls.position.tolist(), calls.tokens.tolist())
    for number, (index, position, count) in enumerate(zip(*columns, strict=True)):
        method = calls.methods[index]
        sources = generation.inputs.get(method)
        tokens = context[max(position, 0) : max(position, 0) + count]
        expected = _expected(program, method)
        found: list[Any] = []
        for place, source in enumerate(sources or ()):
            wanted = expected[place] if place < len(expected) else None
            word, _, rest = source.partition(" ")
            if word == "output":
                found.append(_output(rest, method, before, latest))
            elif word == "given":
                found.append(given[int(rest)] if int(rest) < len(given) else None)
            else:
                found.append(_of_tokens(word, tokens, max(position, 0), wanted))
        latest[method] = number
        before = method
        yield tuple(found) if found and all(one is not None for one in found) else None


def _expected(program: Program | None, method: str) -> list[Any]:
    for one in () if program is None else program.methods:
        if one.name == method:
            return [one.values[index] for index in one.inputs]
    return []


def _output(rest: str, method: str, before: str, latest: dict[str, int]) -> OutputOf | None:
    """Return the source of an input "output 0 of vision_encoder". What is noted of a method is the
    source of its first call; the call right before a decoder's makes its embeddings."""
    output, _, name = rest.partition(" of ")
    if before not in ("", method):
        name = before
    return OutputOf(latest[name], name, int(output)) if name in latest else None


def _of_tokens(word: str, tokens: Any, position: int, wanted: Any) -> Any:
    """Return an input of tokens or positions, as the runners make it; None for another word."""
    dtype, length = np.dtype(np.int64), len(tokens)
    if isinstance(wanted, TensorValue):
        dtype = np.dtype(wanted.scalar_type.numpy_dtype)
        if wanted.dynamism is ShapeDynamism.STATIC and word != "position":
            length = wanted.sizes[-1]
    if word == "tokens":
        filled = np.zeros((1, length), dtype)
        filled[0, : len(tokens)] = tokens
        return filled
    if word == "positions":
        return np.arange(position, position + length).astype(dtype)
    return np.array([position], dtype) if word == "position" else None
