"""The methods of a language model's program: what each takes, and how a prompt is fed.

Names come from ExecuTorch's own runners, see `etscope.analysis.profile.calls`: one method for all;
`prefill` with `decode`; `token_embedding` and `text_decoder` with encoders of images and sound; an
`encoder` with its decoder. An input's type and shape show what it is: integers [1, n] are tokens,
integers [1] or [n] positions, floats [1, n, d] embeddings or an encoder's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etscope.analysis.profile.calls import EMBEDDING, ENCODERS, PAIRS
from etscope.errors import MismatchError
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import (
    Method,
    ScalarValue,
    ShapeDynamism,
    TensorValue,
    ValueKind,
)
from etscope.formats.program.scalar_type import ScalarType
from etscope.support.shown import Shown

__all__ = ["layout_of"]

TOKENS, POSITION, POSITIONS, STATES = "tokens", "position", "positions", "states"

_INTEGERS = (ScalarType.INT, ScalarType.LONG)
_FLOATS = (ScalarType.FLOAT, ScalarType.HALF, ScalarType.BFLOAT16, ScalarType.DOUBLE)
_SCALARS = (ValueKind.INT, ValueKind.BOOL, ValueKind.DOUBLE, ValueKind.STRING)

_DECODERS = ("text_decoder", "decoder", "forward")

_LOOKS_LIKE = (
    "a language model takes token ids, int64 [1, n], with a cache their position, int64 [1] or "
    "[n], and gives logits [1, n, vocabulary], in one method or in prefill and decode, in "
    "token_embedding, text_decoder and encoders, or in encoder and text_decoder; "
    "for other programs: etscope run"
)


@dataclass(frozen=True, slots=True)
class Role:
    """A method that takes tokens or embeddings.

    inputs: the kind of each. length: tokens in each call; None if that varies, up to `bound` (None:
    without a limit).
    """

    method: str
    inputs: tuple[str, ...]
    length: int | None
    bound: int | None

    @property
    def is_positioned(self) -> bool:
        return POSITION in self.inputs or POSITIONS in self.inputs


@dataclass(frozen=True, slots=True)
class Encoder:
    """A method that computes the embeddings of an image or of sound, or an encoder's states.

    takes: how many inputs it has. rows: how many token positions its output fills; None if only a
    run shows that.
    """

    method: str
    takes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class Layout(Shown):
    """The roles of a program's methods.

    prefill, decode: the same role when one method does both. embedding: the method that makes
    embeddings of tokens for them. encoders: methods with outputs that take places in the context;
    source: the encoder with the output that each call of the decoder reads (Whisper, T5). cached:
    whether the program keeps earlier tokens in a cache. end_tokens, bos_token: from the program's
    metadata. all_rows: for each method, whether its logits have a row for each token that it takes.
    """

    prefill: Role
    decode: Role
    vocabulary_size: int
    context_length: int | None
    cached: bool
    logits_output: int
    all_rows: Mapping[str, bool]
    embedding: Role | None = None
    encoders: tuple[Encoder, ...] = ()
    source: Encoder | None = None
    end_tokens: tuple[int, ...] = ()
    bos_token: int | None = None

    @property
    def last_position(self) -> int | None:
        """The greatest position of a decoded token."""
        if self.context_length is None:
            return None
        beyond = (self.decode.length or 1) if self.cached else 1
        return self.context_length - beyond


def constant(program: Program, name: str) -> tuple[Any, ...]:
    """Return the values that a method gives without computing anything: the metadata of a language
    model, such as "get_max_seq_len"; () if the method does not exist."""
    for method in program.methods:
        if method.name == name and not method.inputs and not method.instructions:
            values = [method.values[index] for index in method.outputs]
            return tuple(
                value.value
                for value in values
                if isinstance(value, ScalarValue) and value.kind in _SCALARS
            )
    return ()


def layout_of(program: Program) -> Layout:
    """Find the roles of the methods of a language model.

    Raises `MismatchError`, with the reason, for another program, or one with unknown inputs.
    """
    methods = {method.name: method for method in program.methods if method.inputs}
    prefill, decode = _decoders(methods)
    encoders, source, embedding = _beside(methods, prefill)
    roles = {one.name: _role(one, source, embedding) for one in (prefill, decode)}
    embed = None if embedding is None else _role(embedding, None, None)
    first, then = roles[prefill.name], roles[decode.name]
    index, vocabulary, all_rows = _logits(prefill)
    rows = {prefill.name: all_rows, decode.name: _logits(decode)[2]}
    keeps = constant(program, "use_kv_cache")
    cached = then.is_positioned and keeps[:1] != (False,)
    known = constant(program, "get_vocab_size")
    lengths = _integers(program, "get_max_context_len") or _integers(program, "get_max_seq_len")
    if not then.is_positioned:
        if keeps[:1] == (True,):
            raise _unknown(then.method, "its metadata names a cache, but it takes no position")
        if not (all_rows or known):
            raise _unknown(then.method, "its output has no row of logits for each token")
    return Layout(
        prefill=first,
        decode=then,
        vocabulary_size=vocabulary,
        context_length=next(iter(lengths), None) if cached else first.bound,
        cached=cached,
        logits_output=index,
        all_rows=rows,
        embedding=embed,
        encoders=encoders,
        source=source,
        end_tokens=_integers(program, "get_eos_ids") or _integers(program, "get_eos_id"),
        bos_token=next(iter(_integers(program, "get_bos_id")), None),
    )


def _decoders(methods: Mapping[str, Method]) -> tuple[Method, Method]:
    """Return the methods that take the prompt, and the decoded tokens."""
    for names in PAIRS:
        if all(name in methods for name in names):
            return methods[names[0]], methods[names[1]]
    for name in _DECODERS:
        if name in methods:
            return methods[name], methods[name]
    if len(methods) == 1:
        only = next(iter(methods.values()))
        return only, only
    raise MismatchError(
        "this program is not a language model: none of its methods "
        f"({', '.join(methods) or 'it has none'}) is known to take tokens",
        hint=_LOOKS_LIKE,
    )


def _beside(
    methods: Mapping[str, Method], prefill: Method
) -> tuple[tuple[Encoder, ...], Encoder | None, Method | None]:
    """Return the encoders of images and sound, the decoder's source, and the embedding."""
    shapes = [_kind(prefill.values[index]) for index in prefill.inputs]
    embedding = methods.get(EMBEDDING)
    encoders = tuple(_encoder(methods[name]) for name in ENCODERS[1:] if name in methods)
    if TOKENS in shapes and STATES in shapes:
        found = next((n for n in ENCODERS if n in methods), None)
        if found is None:
            raise _unknown(
                prefill.name, "it takes an encoder's output, and the program has no encoder"
            )
        return (), _encoder(methods[found]), None
    if TOKENS not in shapes and STATES in shapes:
        if embedding is None:
            raise _unknown(
                prefill.name, f"it takes embeddings, and the program has no method {EMBEDDING}"
            )
        return encoders, None, embedding
    return (), None, None


def _encoder(method: Method) -> Encoder:
    output = method.values[method.outputs[0]] if method.outputs else None
    if not isinstance(output, TensorValue):
        raise _unknown(method.name, "its first output is not a tensor")
    fixed = output.dynamism is ShapeDynamism.STATIC and len(output.sizes) > 1
    return Encoder(method.name, len(method.inputs), output.sizes[-2] if fixed else None)


def _kind(value: Any) -> str | None:
    """Return what an input is by its type and shape; None if that is not known."""
    if not isinstance(value, TensorValue):
        return None
    fixed = value.dynamism is ShapeDynamism.STATIC
    if value.scalar_type in _INTEGERS:
        if len(value.sizes) == 2 and value.sizes[0] == 1:
            return TOKENS
        if len(value.sizes) == 1:
            return POSITION if fixed and value.sizes[0] == 1 else POSITIONS
    if value.scalar_type in _FLOATS and len(value.sizes) == 3 and value.sizes[0] == 1:
        return STATES
    return None


def _role(method: Method, source: Encoder | None, embedding: Method | None) -> Role:
    inputs, length, bound = [], None, None
    for number, index in enumerate(method.inputs):
        value = method.values[index]
        kind = _kind(value)
        if kind is None or kind in inputs:
            raise _unknown(method.name, f"the meaning of its input {number} is unknown: {value}")
        inputs.append(kind)
        counts_tokens = kind == TOKENS or (kind == STATES and source is None)
        if counts_tokens and isinstance(value, TensorValue):
            fixed = value.dynamism is ShapeDynamism.STATIC
            length = value.sizes[1] if fixed else None
            unbound = value.dynamism is ShapeDynamism.DYNAMIC_UNBOUND
            bound = None if unbound else value.sizes[1]
    wanted = STATES if embedding is not None else TOKENS
    if wanted not in inputs:
        raise _unknown(method.name, "none of its inputs takes token ids")
    made_by = embedding.name if embedding is not None else source and source.method
    states = STATES if made_by is None else f"output 0 of {made_by}"
    words = tuple(states if kind == STATES else kind for kind in inputs)
    return Role(method.name, words, length, bound)


def _logits(method: Method) -> tuple[int, int, bool]:
    """Return the index of the output with the logits, the vocabulary's size, and whether there is a
    row for each token: a method with a fixed number of tokens has as many."""
    inputs = {_kind(method.values[index]): method.values[index] for index in method.inputs}
    fed = inputs.get(TOKENS, inputs.get(STATES))
    taken = fed.sizes[1] if isinstance(fed, TensorValue) else 1
    for number, index in enumerate(method.outputs):
        value = method.values[index]
        if (
            isinstance(value, TensorValue)
            and value.scalar_type in _FLOATS
            and len(value.sizes) in (2, 3)
            and value.sizes[-1] > 1
        ):
            return number, value.sizes[-1], len(value.sizes) == 3 and value.sizes[1] == taken
    raise _unknown(method.name, "none of its outputs is logits, floats [1, n, vocabulary]")


def _integers(program: Program, name: str) -> tuple[int, ...]:
    return tuple(v for v in constant(program, name) if isinstance(v, int) and v is not True)


def _unknown(method: str, why: str) -> MismatchError:
    return MismatchError(
        f"the method {method!r} is not like a language model's: {why}", hint=_LOOKS_LIKE
    )
