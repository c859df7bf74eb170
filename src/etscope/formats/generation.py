"""The key `generation` of a run.json: the calls of a language model.

    "generation": {
      "prompt_tokens": [1, 17, 4], "generated_tokens": [9, 9, 2], "text": null, "runs": 2,
      "stopped_by": "length", "context_length": 128, "vocabulary_size": 512,
      "tokenizer": "tokenizer.json", "tokenizer_sha256": "…",
      "sampler": {"temperature": 0.0, "top_k": null, "top_p": null, "seed": 0},
      "inputs": {"forward": ["tokens", "position"]},
      "passes": [
        {"traced": null, "load_ns": 5200000, "cold_first_token_ns": 1200000,
         "methods": ["forward"], "phases": ["prefill", "decode"],
         "calls": {"run": [0, 0, …], "method": [0, 0, …], "phase": [0, 1, …],
                   "position": [0, 3, …], "tokens": [3, 1, …], "start_ns": [0, 910000, …],
                   "execute_ns": [880000, 120000, …], "sampling_ns": [9000, 8000, …]}}]}

A pass repeats a generation with the same prompt: `run` counts the repetitions, from 0. Calls are in
order of execution, the same as the "Execute" runs of the pass's dump. `method` and `phase` are
indices in the lists before them. A phase is "prefill", "decode", or the method of an encoder.
`position` is the position of the call's first token in the context, from 0, and `tokens` the number
of its tokens; -1 and 0 for calls without tokens, such as an encoder's.

`start_ns` is the start of the call's execution, relative to the start of the generation.
`execute_ns` is the time of the runtime's `execute`. `sampling_ns` is the time to choose the next
token after it, 0 without one. The host takes the rest of a generation.

`inputs` lists the sources of each method's inputs: "tokens" (int64 [1, n]), "position" (of the
first token, int64 [1]), "positions" (of all, int64 [n]), "given 0" (the first array from the user,
"given_0" in the file of inputs), or "output 0 of token_embedding" (of the latest call of that
method; where the prompt has -1, of the encoder). A method of a fixed length gets tokens padded with
0, and positions that continue.

`cold_first_token_ns` is the time to the first token of the first generation after loading, which
may be a warm-up. `traced` has the same meaning as in run.json's latencies. `stopped_by` is
"length", "end token", "context" (the cache is full) or "interrupted".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError
from etscope.formats.json_values import JsonValue
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import ShapeDynamism, TensorValue
from etscope.support.shown import Shown

__all__ = [
    "DECODE",
    "PREFILL",
    "Generation",
    "GenerationCalls",
    "GenerationPass",
    "parse_generation",
]

PREFILL, DECODE = "prefill", "decode"
LENGTH, END_TOKEN, CONTEXT, INTERRUPTED = "length", "end token", "context", "interrupted"

Ints = npt.NDArray[np.int64]
_COLUMNS = (
    "run", "method", "phase", "position", "tokens", "start_ns", "execute_ns", "sampling_ns",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sampler:
    """Choice of the next token. At temperature 0 it is the likeliest one. Otherwise it is drawn
    with the seed from the `top_k` likeliest, limited to the fewest that have the probability
    `top_p` together.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class GenerationCalls(Shown):
    """The calls of a pass as columns, int64 [calls], in order of execution.

    methods, phases: names for the indices `method` and `phase`. The top of this module describes
    the others.
    """

    methods: tuple[str, ...]
    phases: tuple[str, ...]
    run: Ints
    method: Ints
    phase: Ints
    position: Ints
    tokens: Ints
    start_ns: Ints
    execute_ns: Ints
    sampling_ns: Ints

    def __len__(self) -> int:
        return len(self.run)

    def in_phase(self, phase: str) -> npt.NDArray[np.bool_]:
        """Return a mask of the calls of that phase."""
        names = np.array([name == phase for name in self.phases], np.bool_)
        return names[self.phase]

    def select(self, kept: npt.NDArray[np.bool_]) -> GenerationCalls:
        """Return the calls of a mask."""
        columns = {name: getattr(self, name)[kept] for name in _COLUMNS}
        return GenerationCalls(self.methods, self.phases, **columns)

    def to_json(self) -> dict[str, Any]:
        """Return the part of run.json."""
        return {
            "methods": list(self.methods),
            "phases": list(self.phases),
            "calls": {name: getattr(self, name).tolist() for name in _COLUMNS},
        }


@dataclass(frozen=True, slots=True, eq=False)
class GenerationPass(Shown):
    """A process that generated. traced: None, "times" or "values". load_ns: reading the program
    and loading its methods. cold_first_token_ns: None if unknown."""

    traced: str | None
    load_ns: int
    calls: GenerationCalls
    cold_first_token_ns: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Generation(Shown):
    """A generation of a language model in run.json.

    prompt_tokens, generated_tokens: int64 ids of the text decoder; -1 for each position of an image
    or sound. runs: repetitions of the generation in each pass. context_length, vocabulary_size: of
    the program; None if unknown.
    """

    prompt_tokens: Ints
    generated_tokens: Ints
    passes: tuple[GenerationPass, ...]
    runs: int = 1
    stopped_by: str | None = None
    context_length: int | None = None
    vocabulary_size: int | None = None
    sampler: Sampler = Sampler()
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    text: str | None = None
    tokenizer: str | None = None
    tokenizer_sha256: str | None = None

    def of_pass(self, traced: str | None) -> GenerationPass | None:
        """Return the pass that recorded `traced`; None without one."""
        return next((one for one in self.passes if one.traced == traced), None)

    @property
    def untraced(self) -> GenerationPass | None:
        """The pass without tracing; None without one, and for one without calls."""
        found = self.of_pass(None)
        return found if found is not None and len(found.calls) else None

    @property
    def token_counts(self) -> tuple[int | None, int | None]:
        """The number of prompt tokens and of generated tokens; None if unknown."""
        return len(self.prompt_tokens) or None, len(self.generated_tokens) or None

    def to_json(self) -> dict[str, Any]:
        """Return the value of the key in run.json."""
        sampler = {name: getattr(self.sampler, name) for name in Sampler.__dataclass_fields__}
        plain = (
            *("runs", "stopped_by", "context_length", "vocabulary_size"),
            *("text", "tokenizer", "tokenizer_sha256"),
        )
        return {
            "prompt_tokens": self.prompt_tokens.tolist(),
            "generated_tokens": self.generated_tokens.tolist(),
            **{name: getattr(self, name) for name in plain},
            "sampler": sampler,
            "inputs": {method: list(sources) for method, sources in self.inputs.items()},
            "passes": [
                {
                    "traced": one.traced,
                    "load_ns": one.load_ns,
                    "cold_first_token_ns": one.cold_first_token_ns,
                    **one.calls.to_json(),
                }
                for one in self.passes
            ],
        }


def parse_generation(given: JsonValue) -> Generation:
    """Read the value of the key in run.json; `FormatError` when it is damaged."""
    inputs = given.find("inputs")
    return Generation(
        prompt_tokens=given.integers("prompt_tokens"),
        generated_tokens=given.integers("generated_tokens"),
        passes=tuple(_pass(one) for one in given.entries("passes")),
        runs=given.optional("runs", JsonValue.whole) or 1,
        stopped_by=given.optional("stopped_by", JsonValue.text),
        context_length=given.optional("context_length", JsonValue.whole),
        vocabulary_size=given.optional("vocabulary_size", JsonValue.whole),
        sampler=given.record("sampler", Sampler) or Sampler(),
        inputs={} if inputs is None else {name: inputs.texts(name) for name in inputs.members()},
        text=given.optional("text", JsonValue.text),
        tokenizer=given.optional("tokenizer", JsonValue.text),
        tokenizer_sha256=given.optional("tokenizer_sha256", JsonValue.text),
    )


def _pass(given: JsonValue) -> GenerationPass:
    methods, phases = given.texts("methods"), given.texts("phases")
    columns = given.find("calls")
    found = {
        name: np.array([], np.int64) if columns is None else columns.integers(name)
        for name in _COLUMNS
    }
    for name, column in found.items():
        if len(column) != len(found["run"]):
            raise FormatError(
                f"{len(found['run']):,} calls have a run, but {len(column):,} have {name}"
            )
    for name, known in (("method", methods), ("phase", phases)):
        column = found[name]
        if len(column) and (column.min() < 0 or column.max() >= len(known)):
            raise FormatError(f"a call has a {name} that is not one of {', '.join(known)}")
    if len(found["run"]) and found["run"].min() < 0:
        raise FormatError("a call has a run below 0")
    return GenerationPass(
        traced=given.optional("traced", JsonValue.text),
        load_ns=given.optional("load_ns", JsonValue.whole) or 0,
        calls=GenerationCalls(methods, phases, **found),
        cold_first_token_ns=given.optional("cold_first_token_ns", JsonValue.whole),
    )


# -- the inputs of calls, rebuilt from the tokens and the sources


@dataclass(frozen=True, slots=True)
class OutputOf:
    """An input from an earlier call. call: number of that call; output: index of its output."""

    call: int
    method: str
    output: int


class InputType(NamedTuple):
    """The type of an input of a method. length: the size of its last dimension; None if it
    varies.
    """

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
    """Yield the flat inputs of each call: arrays, and an `OutputOf` where an input is the output of
    another call; None for a call with unknown inputs.

    given: the arrays of images and sound. types: the input types of the methods that ran. If
    unknown, inputs are assumed to be int64 with as many elements as tokens.
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
