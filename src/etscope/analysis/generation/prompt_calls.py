"""The calls that give a prompt to a language model, and the template of a decoded token's calls.

A prompt goes in as few calls as the methods allow: whole or in chunks of the most that a method of
any length takes; in chunks of a method of a fixed length, the last one filled up with 0, if there
is a row of logits for its last real token and room in the cache for the filling, else token by
token through the method that decodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etscope.analysis.generation.layout import TOKENS, Encoder, Layout, Role
from etscope.analysis.generation.plan import PlannedCall
from etscope.errors import MismatchError
from etscope.formats.generation import DECODE, PREFILL

PLACE = -1  # in the ids of a prompt: a token of an image or of sound


@dataclass(frozen=True, slots=True)
class Encoded:
    """A part of a prompt that an encoder makes: its output stands for `rows` tokens. given: the
    indices of the arrays that it takes."""

    encoder: Encoder
    given: tuple[int, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class PromptCalls:
    """The calls of a prompt, the template of a decoded token's, and the ids of the context: -1 for
    a token of an image or of sound."""

    prompt: tuple[PlannedCall, ...]
    decode: tuple[PlannedCall, ...]
    context: tuple[int, ...]


def plan_prompt(
    layout: Layout, parts: Sequence[Sequence[int] | Encoded], source: Encoded | None
) -> PromptCalls:
    """Plan the calls of a prompt; its parts are ids or the output of an encoder.

    source: the encoder's part that each call of the decoder reads, when the layout has one. Raises
    `MismatchError` for a prompt that the methods do not take.
    """
    calls: list[PlannedCall] = []
    context: list[int] = []
    if source is not None:
        calls.append(_encoder_call(source))
    for part in parts:
        position = len(context)
        if isinstance(part, Encoded):
            calls += _encoded_calls(layout, part, position)
            context += [PLACE] * part.rows
        else:
            if layout.cached:
                calls += _text_calls(layout, part, position)
            context += part
    if not layout.cached:
        calls.append(_whole(layout, tuple(context)))
        return PromptCalls(tuple(calls), (_whole(layout, ()),), tuple(context))
    return PromptCalls(
        tuple(calls), tuple(_calls(layout, layout.decode, DECODE, (), -1)), tuple(context)
    )


def _whole(layout: Layout, ids: tuple[int, ...]) -> PlannedCall:
    role = layout.prefill if ids else layout.decode
    return PlannedCall(
        role.method,
        role.inputs,
        PREFILL if ids else DECODE,
        tokens=ids,
        count=len(ids),
        position=0 if ids else -1,
        length=role.length or len(ids),
        whole=True,
    )


def _text_calls(layout: Layout, ids: Sequence[int], position: int) -> Iterator[PlannedCall]:
    """Yield the calls for ids that begin at a position."""
    roles = [layout.prefill] if layout.embedding is None else [layout.prefill, layout.embedding]
    most = min((one.bound for one in roles if one.bound is not None), default=None)
    done = 0
    while done < len(ids):
        role, size = layout.prefill, most
        left = len(ids) - done
        if role.length is not None and role.length > left:
            size = left
            end = position + done + role.length
            has_room = layout.context_length is None or end <= layout.context_length
            if not (has_room and layout.all_rows[role.method]):
                role, size = layout.decode, 1
                if role.length not in (None, 1):
                    why = (
                        "the cache has no room for the filling"
                        if layout.all_rows[role.method]
                        else "it returns logits for the last of them only"
                    )
                    raise MismatchError(
                        f"{role.method} takes {role.length} tokens a call, and the {left} at the "
                        f"end of the prompt cannot be filled up to that: {why}",
                        hint=f"give a prompt with a length that is a multiple of {role.length}",
                    )
        chunk = tuple(ids[done : done + (left if size is None else size)])
        yield from _calls(layout, role, PREFILL, chunk, position + done)
        done += len(chunk)


def _calls(
    layout: Layout, role: Role, phase: str, ids: tuple[int, ...], position: int
) -> Iterator[PlannedCall]:
    """Yield the call of a role for some ids, after the embedding's call if the model has one; for
    the template without ids."""
    count = len(ids) or 1
    length = role.length or count
    if layout.embedding is not None:
        embedding = layout.embedding
        yield PlannedCall(
            embedding.method,
            embedding.inputs,
            phase,
            tokens=ids,
            count=count,
            position=position,
            length=embedding.length or length,
        )
    # Without an id among its inputs, a call of the decoder keeps them for the record only.
    takes_ids = TOKENS in role.inputs
    yield PlannedCall(
        role.method,
        role.inputs,
        phase,
        tokens=ids if takes_ids else (),
        count=count,
        position=position,
        length=length,
    )


def _encoder_call(part: Encoded) -> PlannedCall:
    sources = tuple(f"given {index}" for index in part.given)
    return PlannedCall(part.encoder.method, sources, part.encoder.method)


def _encoded_calls(layout: Layout, part: Encoded, position: int) -> Iterator[PlannedCall]:
    """Yield the encoder's call and the one that takes its output into the context."""
    yield _encoder_call(part)
    role = layout.prefill
    if (role.length or part.rows) != part.rows or part.rows > (role.bound or part.rows):
        takes = f"{role.length}" if role.length else f"at most {role.bound}"
        raise MismatchError(
            f"{part.encoder.method} gives {part.rows} embeddings, and {role.method} takes {takes} "
            "in a call",
            hint="export the decoder with a dynamic length that is large enough",
        )
    words = tuple(
        f"output 0 of {part.encoder.method}" if word.startswith("output") else word
        for word in role.inputs
    )
    yield PlannedCall(
        role.method, words, PREFILL, count=part.rows, position=position, length=part.rows
    )
