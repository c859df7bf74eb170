"""The calls of a generation, as a list for the runners: the prompt's calls one after another,
then a template of the calls for each decoded token.

A source of an input is one of the words of `etscope.formats.generation`: "tokens", "position",
"positions", "given K" or "output K of METHOD".

A prompt goes in as few calls as the methods allow: whole or in chunks of the most that a method of
any length takes; in chunks of a method of a fixed length, the last one filled up with 0, if there
is a row of logits for its last real token and room in the cache for the filling, else token by
token through the method that decodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.layout import TOKENS, Encoder, Layout, Role
from etscope.errors import MismatchError
from etscope.formats.generation import DECODE, PREFILL, GenerationCalls, Sampler

# What to keep of the logits: none; the rows that a token was chosen from; all rows of tokens.
NO_LOGITS, OF_GENERATED, OF_ALL = "none", "generated", "all"


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One execution of a method.

    tokens: the ids that the call takes; () for a call without ids, and in the template of a decode
        call, which takes the latest token. count: how many tokens it takes, 0 for an encoder.
        position: the position of the first of them; -1 in the template and for an encoder. length:
        the size of its inputs for tokens and positions, which is larger than `count` for a method
        with a fixed length.
    whole: True for a model without a cache: the call takes all tokens so far, from position 0. Then
        `length` is 0 if the method takes any length.
    """

    method: str
    inputs: tuple[str, ...]
    phase: str
    tokens: tuple[int, ...] = ()
    count: int = 0
    position: int = -1
    length: int = 1
    whole: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class GenerationTask:
    """A generation, done `warmup` + `runs` times in one load of the program.

    given: the arrays of images and sound. logits_output: index of the logits among the outputs of
    the prompt's last call, and of the last call for a decoded token. last_position: the greatest
    position of a decoded token, None if unknown. forced: tokens to take in place of the sampler's
    choice. values_at: the calls of each run, from A to B inclusive, with logged values; None for
    all.
    """

    prompt: tuple[PlannedCall, ...]
    decode: tuple[PlannedCall, ...]
    context: tuple[int, ...]
    given: tuple[npt.NDArray[Any], ...] = ()
    logits_output: int = 0
    max_new_tokens: int = 1
    end_tokens: tuple[int, ...] = ()
    last_position: int | None = None
    sampler: Sampler = field(default_factory=Sampler)
    runs: int = 1
    warmup: int = 0
    forced: tuple[int, ...] | None = None
    logits: str = NO_LOGITS
    values_at: tuple[int, int] | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that run, in the order of their first calls."""
        return tuple(dict.fromkeys(call.method for call in (*self.prompt, *self.decode)))

    @property
    def calls(self) -> int:
        """The calls of one generation, at most."""
        return len(self.prompt) + (self.max_new_tokens - 1) * len(self.decode)

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """The sources of each method's inputs: for a method that also takes the prompt, the sources
        when it decodes a token.
        """
        found = {call.method: call.inputs for call in (*self.prompt, *self.decode)}
        return {method: found[method] for method in self.methods}

    def to_json(self) -> dict[str, Any]:
        """Return the task as plain values, without the arrays."""
        return asdict(replace(self, given=()))


def task_from_json(content: Mapping[str, Any], given: tuple[npt.NDArray[Any], ...]) -> Any:
    """Read what `GenerationTask.to_json` wrote."""

    def calls(name: str) -> tuple[PlannedCall, ...]:
        return tuple(
            PlannedCall(**{**one, "inputs": tuple(one["inputs"]), "tokens": tuple(one["tokens"])})
            for one in content[name]
        )

    tuples = {
        name: None if content[name] is None else tuple(content[name])
        for name in ("context", "end_tokens", "forced", "values_at")
    }
    return GenerationTask(
        **{
            **content,
            **tuples,
            "prompt": calls("prompt"),
            "decode": calls("decode"),
            "given": given,
            "sampler": Sampler(**content["sampler"]),
        }
    )


@dataclass(frozen=True, slots=True, eq=False)
class GenerationResult:
    """A runner's record of a generation task.

    tokens: the tokens of each generation, warm-up included. stopped_by: as in
    `etscope.formats.generation`. run, start_ns, execute_ns, sampling_ns: int64 [calls]. logits:
    float32 [rows, vocabulary], from the last generation, with the position of the token that each
    row is computed from; the row predicts the next token.
    """

    tokens: tuple[npt.NDArray[np.int64], ...]
    stopped_by: tuple[str, ...]
    run: npt.NDArray[np.int64]
    start_ns: npt.NDArray[np.int64]
    execute_ns: npt.NDArray[np.int64]
    sampling_ns: npt.NDArray[np.int64]
    logits: npt.NDArray[np.float32] | None = None
    logits_positions: npt.NDArray[np.int64] | None = None

    @property
    def is_interrupted(self) -> bool:
        return "interrupted" in self.stopped_by


def calls_of(task: GenerationTask, result: GenerationResult) -> GenerationCalls:
    """Return the calls of a result, warm-up included, as run.json has them.

    A runner makes the calls in the order of the plan, so only the times of the calls come from the
    runner.
    """
    methods = task.methods
    phases = tuple(dict.fromkeys(call.phase for call in (*task.prompt, *task.decode)))
    first = len(task.context)
    columns: dict[str, list[int]] = {"method": [], "phase": [], "position": [], "tokens": []}
    for count in np.bincount(result.run).tolist() if len(result.run) else []:
        for index in range(count):
            beyond = index - len(task.prompt)
            if beyond < 0:
                call = task.prompt[index]
                position, tokens = call.position, call.count
            else:
                round_, place = divmod(beyond, len(task.decode))
                call = task.decode[place]
                position, tokens = first + round_, 1
                if call.whole:
                    position, tokens = 0, first + round_ + 1
            columns["method"].append(methods.index(call.method))
            columns["phase"].append(phases.index(call.phase))
            columns["position"].append(position)
            columns["tokens"].append(tokens)
    return GenerationCalls(
        methods,
        phases,
        run=result.run,
        **{name: np.array(values, np.int64) for name, values in columns.items()},
        start_ns=result.start_ns,
        execute_ns=result.execute_ns,
        sampling_ns=result.sampling_ns,
    )


# -- The calls of a prompt.

PLACE = -1  # in the ids of a prompt: a token of an image or of sound


@dataclass(frozen=True, slots=True)
class Encoded:
    """A part of a prompt that an encoder computes: its output takes the place of `rows` tokens.
    given: the indices of the arrays that are the encoder's inputs.
    """

    encoder: Encoder
    given: tuple[int, ...]
    rows: int

    @property
    def call(self) -> PlannedCall:
        sources = tuple(f"given {index}" for index in self.given)
        return PlannedCall(self.encoder.method, sources, self.encoder.method)

    def taken_by(self, role: Role, position: int) -> PlannedCall:
        """Return the call of the decoder that takes the output into the context."""
        name = self.encoder.method
        if (role.length or self.rows) != self.rows or self.rows > (role.bound or self.rows):
            takes = f"{role.length}" if role.length else f"at most {role.bound}"
            raise MismatchError(
                f"{name} gives {self.rows} embeddings, and {role.method} takes {takes} in a call",
                hint="export the decoder with a dynamic length that is large enough",
            )
        words = tuple(
            f"output 0 of {name}" if word.startswith("output") else word for word in role.inputs
        )
        return PlannedCall(
            role.method, words, PREFILL, count=self.rows, position=position, length=self.rows
        )


@dataclass(frozen=True, slots=True)
class PromptCalls:
    """The calls of a prompt, the calls for each decoded token, and the ids of the context (-1 for a
    token of an image or of sound).
    """

    prompt: tuple[PlannedCall, ...]
    decode: tuple[PlannedCall, ...]
    context: tuple[int, ...]


def plan_prompt(
    layout: Layout, parts: Sequence[Sequence[int] | Encoded], source: Encoded | None
) -> PromptCalls:
    """Plan the calls of a prompt; its parts are ids or the output of an encoder.

    source: the encoder's part that each call of the decoder reads, if the layout has such an
    encoder. Raises `MismatchError` for a prompt that the methods do not take.
    """
    calls: list[PlannedCall] = []
    context: list[int] = []
    if source is not None:
        calls.append(source.call)
    for part in parts:
        position = len(context)
        if isinstance(part, Encoded):
            calls += [part.call, part.taken_by(layout.prefill, position)]
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
                        f"{role.method} takes {role.length} tokens a call. The {left} left "
                        f"at the end of the prompt are too few, and cannot be padded: {why}",
                        hint=f"give a prompt with a length that is a multiple of {role.length}",
                    )
        chunk = tuple(ids[done : done + (left if size is None else size)])
        yield from _calls(layout, role, PREFILL, chunk, position + done)
        done += len(chunk)


def _calls(
    layout: Layout, role: Role, phase: str, ids: tuple[int, ...], position: int
) -> Iterator[PlannedCall]:
    """Yield the call of a role, after the embedding's; for the template without ids."""
    count = len(ids) or 1
    length = role.length or count
    for one in (layout.embedding, role):
        if one is not None:
            yield PlannedCall(
                one.method,
                one.inputs,
                phase,
                # A decoder of embeddings takes no ids: they are the embedding's.
                tokens=ids if TOKENS in one.inputs else (),
                count=count,
                position=position,
                length=one.length or length,
            )


# -- The choice of the next token.

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def choose(logits: npt.NDArray[Any], sampler: Sampler, step: int) -> int:
    """Return the next token for logits [vocabulary], exactly as the native runner chooses it.

    At temperature 0 it is the first of the largest logits; NaN is never the largest. Else the
    probabilities are the softmax, in double, of logits / temperature. With top_k or top_p the
    tokens are sorted by falling logit, equal logits by rising id; the first top_k are kept, and of
    these the fewest that have top_p of their probability together. One is drawn where the running
    sum of the probabilities, in that order (without top_k and top_p the order of ids), first
    exceeds a random number times their sum. step: the number of tokens chosen before.
    """
    if not sampler.temperature > 0:
        best = int(logits.argmax())
        if logits[best] == logits[best]:
            return best
        return int(np.where(np.isnan(logits), -np.inf, logits).argmax())
    values = np.nan_to_num(logits.astype(np.float64), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    order = None
    if sampler.top_k is not None or sampler.top_p is not None:
        order = np.argsort(-values, kind="stable")[: sampler.top_k]
        values = values[order]
    largest = values.max()
    if not np.isfinite(largest):
        at = int(values.argmax())
    else:
        sums = np.cumsum(np.exp((values - largest) / sampler.temperature))
        if sampler.top_p is not None:
            kept = int(np.searchsorted(sums, sampler.top_p * sums[-1])) + 1
            sums = sums[:kept]
        drawn = uniform(sampler.seed, step) * sums[-1]
        at = min(int(np.searchsorted(sums, drawn, side="right")), len(sums) - 1)
    return at if order is None else int(order[at])


def uniform(seed: int, step: int) -> float:
    """Return the random number in [0, 1) of a step: the upper 53 bits of SplitMix64's output
    function (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) of
    (mix(seed) + step * 0x9E3779B97F4A7C15)."""
    return (_mix(_mix(seed) + step * _GOLDEN) >> 11) * 2.0**-53


def _mix(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
