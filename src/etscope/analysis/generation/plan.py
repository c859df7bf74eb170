"""The calls of a generation, as a list for the runners: the prompt's calls one after another,
then a template of the calls for each decoded token.

A source of an input is one of the words of `etscope.formats.generation`: "tokens", "position",
"positions", "given K" or "output K of METHOD".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.formats.generation import GenerationCalls, Sampler

# What to keep of the logits: none; the rows that a token was chosen from; all rows of tokens.
NO_LOGITS, OF_GENERATED, OF_ALL = "none", "generated", "all"


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One execution of a method.

    tokens: the ids that it takes; () in the template, which takes the latest token, and for calls
        without ids. count: how many tokens it takes, 0 for an encoder's. position: of the first of
        them; -1 in the template and for an encoder's. length: the size of its tensors of tokens and
        positions, which is more than `count` for a method of a fixed length.
    whole: take the whole context so far, at position 0; of models without a cache. Then `length` is
        0 if the method takes any length.
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

    given: the arrays of images and sound. logits_output: index of the logits in the outputs of the
    last call of the prompt and of the template. last_position: the greatest that a decoded token
    may have, None if not known. forced: tokens that are taken whatever the sampler would.
    values_at: the calls of each run, from A to B inclusive, that values are logged of; all if None.
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
        """The sources of each method's inputs; if they differ in the prompt, the sources
        for a decoded token."""
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
    """The record of a task by a runner.

    tokens: of each generation, warm-up included. stopped_by: as in `etscope.formats.generation`.
    run, start_ns, execute_ns, sampling_ns: int64 [calls]. logits: float32 [rows, vocabulary] of the
    last generation, and the position of the token that each row is of: it predicts the next one.
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

    A runner makes the calls in the order of the plan, so that only their times are its own.
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
