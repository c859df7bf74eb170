"""Rebuild the inputs of a generation's calls from run.json, which has the tokens and the sources of
each method's inputs (see `etscope.formats.generation`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from etscope.formats.generation import Generation, GenerationCalls
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import ShapeDynamism, TensorValue


@dataclass(frozen=True, slots=True)
class OutputOf:
    """An input from an earlier call. call: number of that call; output: index of its output."""

    call: int
    method: str
    output: int


class InputType(NamedTuple):
    """The type of an input of a method. length: of its last dimension; None if it varies."""

    dtype: np.dtype[Any]
    length: int | None


# Returns the types of a method's inputs; () if unknown.
InputTypes = Callable[[str], Sequence[InputType | None]]


def program_input_types(program: Program, method: str) -> list[InputType | None]:
    """Return the types of a method's inputs in a program; None for an input other than a
    tensor."""
    for one in program.methods:
        if one.name == method:
            values = [one.values[index] for index in one.inputs]
            return [
                InputType(
                    np.dtype(value.scalar_type.numpy_dtype),
                    value.sizes[-1]
                    if value.dynamism is ShapeDynamism.STATIC and len(value.sizes) > 0
                    else None,
                )
                if isinstance(value, TensorValue)
                else None
                for value in values
            ]
    return []


def inputs_of_calls(
    generation: Generation,
    calls: GenerationCalls,
    given: Sequence[Any],
    types: InputTypes,
) -> Iterator[tuple[Any, ...] | None]:
    """Yield the flat inputs of each call: arrays, and `OutputOf` for outputs of another call; None
    for a call with unknown inputs.

    given: the arrays of images and sound. types: of the methods that ran. If unknown, inputs are
    int64, and have the length of the tokens.
    """
    context = np.concatenate([generation.prompt_tokens, generation.generated_tokens])
    latest: dict[str, int] = {}
    known: dict[str, Sequence[InputType | None]] = {}
    before = ""  # the method of the call before
    columns = (calls.method.tolist(), calls.position.tolist(), calls.tokens.tolist())
    for number, (index, position, count) in enumerate(zip(*columns, strict=True)):
        method = calls.methods[index]
        sources = generation.inputs.get(method)
        tokens = context[max(position, 0) : max(position, 0) + count]
        if method not in known:
            known[method] = types(method)
        expected = known[method]
        found: list[Any] = []
        for place, source in enumerate(sources or ()):
            wanted = expected[place] if place < len(expected) else None
            word, _, rest = source.partition(" ")
            if word == "output":
                # A method's source is that of its first call ("0 of vision_encoder"). The call
                # right before a decoder's makes its embeddings.
                output, _, name = rest.partition(" of ")
                name = name if before in ("", method) else before
                made = OutputOf(latest[name], name, int(output)) if name in latest else None
                found.append(made)
            elif word == "given":
                found.append(given[int(rest)] if int(rest) < len(given) else None)
            else:
                found.append(_of_tokens(word, tokens, max(position, 0), wanted))
        latest[method] = number
        before = method
        yield tuple(found) if found and all(one is not None for one in found) else None


def _of_tokens(word: str, tokens: Any, position: int, wanted: InputType | None) -> Any:
    """Return an input of tokens or positions in the runners' form; None for another word."""
    dtype, length = np.dtype(np.int64), len(tokens)
    if wanted is not None:
        dtype, length = wanted.dtype, length if wanted.length is None else wanted.length
    if word == "tokens":
        filled = np.zeros((1, length), dtype)
        filled[0, : len(tokens)] = tokens
        return filled
    if word == "positions":
        return np.arange(position, position + length).astype(dtype)
    return np.array([position], dtype) if word == "position" else None
