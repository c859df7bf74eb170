"""`generate()`: from a prompt to the tokens of a language model, their times, and an ETDump."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from etscope.analysis.generation.layout import Layout, layout_of
from etscope.analysis.generation.plan import (
    OF_ALL,
    OF_GENERATED,
    PLACE,
    GenerationTask,
    plan_prompt,
)
from etscope.errors import (
    EtscopeWarning,
    MismatchError,
    UsageError,
)
from etscope.formats.bytes.files import PathLike
from etscope.formats.generation import Sampler
from etscope.formats.torch_files.tensor_files import read_tensor_file
from etscope.run._outcome import LATENCY, MEMORY, PROFILE, VALUES
from etscope.run._runner_host import NATIVE
from etscope.run.execute import Executed, RecordingOptions, execute_all
from etscope.run.generation.outcome import LOGITS, GenerationRun, Prompt, described, generated
from etscope.run.generation.prompt import (
    Tokenizer,
    arranged,
    check_tokenizer,
    check_tokens,
    drawn_tokens,
    encoder_inputs,
    open_tokenizer,
    tokens_from,
)
from etscope.run.job import ALL_EVENTS, NONE, Job
from etscope.run.program import Opened, open_program
from etscope.support.options import takes_fields


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerateOptions(RecordingOptions):
    """Options of `generate()`.

    prompt: a text, which needs `tokenizer`, the model's tokenizer.json. In place of a text:
        `tokens`, ids in a sequence, as text ("1,5,9") or in a file; or `prompt_length`, a number of
        ids drawn with `seed`. Without any of them the prompt is the model's start token
        (`get_bos_id`).
    inputs: arrays for the encoders of images and sound, in order, or a file of them. Each -1 in
        `tokens` is the place of the next image or sound; if there is no -1, they come first.
    max_new_tokens: the largest number of tokens to generate. end_tokens: ids that end a generation,
        by default the program's end tokens; () for none.
    temperature, top_k, top_p, seed: how the next token is chosen, as defined by
        `etscope.analysis.generation.plan.choose`; at temperature 0 it is the likeliest token.
    force_tokens: ids to use one after another instead of the likeliest tokens (teacher forcing).
    logits: keep the logits, in a separate run: the rows from which tokens were chosen; with
        `force_tokens` all rows that the program returns, also for the prompt.
    iterations, warmup: generations that count, and generations before them that do not.
    profiled_iterations: generations of the run that records times. Values are recorded for one
        generation.
    values_at: a pair of call numbers (from 0, in a generation): record values from the first to the
        last of them; native runner only.
    verify: refuse a record of another program, and a tokenizer of another size.
    memory: measure the memory of the process by owner, in a separate run; native runner only.

    The others are as in `etscope.run.RunOptions`.
    """

    prompt: str | None = None
    tokenizer: PathLike | None = None
    tokens: Any = None
    prompt_length: int | None = None
    seed: int | None = None
    inputs: Any = ()
    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    end_tokens: Sequence[int] | None = None
    force_tokens: Any = None
    logits: bool = False
    iterations: int = 3
    warmup: int = 1
    values_at: tuple[int, int] | None = None
    profiled_iterations: int = 1
    verify: bool = True

    def check(self) -> None:
        """Raise `UsageError` for values that are not allowed, and for options that contradict each
        other or would have no effect."""
        self.check_words()
        for name, least in (
            *(("max_new_tokens", 1), ("iterations", 1), ("profiled_iterations", 1), ("warmup", 0)),
            *(("top_k", 1), ("threads", 1), ("debug_buffer_size", 1)),
        ):
            number = getattr(self, name)
            if number is not None and not number >= least:
                raise UsageError(f"{name} must be at least {least}, not {number}")
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(f"temperature must be 0 or more, not {self.temperature}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"timeout must be more than 0, not {self.timeout}")
        self._check_combinations()

    def _check_combinations(self) -> None:
        values = self.debug_level != NONE
        records_more = values or self.allocations or self.profiling_level != ALL_EVENTS
        sources = [self.prompt, self.tokens, self.prompt_length]
        for wrong, why in (
            (
                sum(one is not None for one in sources) > 1,
                "a prompt is one of: a text, tokens, a length (prompt, tokens, prompt_length)",
            ),
            (
                self.prompt is not None and self.tokenizer is None,
                "a text needs the model's tokenizer (tokenizer=, --tokenizer); tokens= (--tokens) "
                "takes ids",
            ),
            (
                self.temperature == 0 and (self.top_k is not None or self.top_p is not None),
                "top_k and top_p need a temperature above 0: at 0 the likeliest token is taken",
            ),
            (not self.trace and records_more, "this is recorded in traced runs only"),
            (
                not values and (self.values_at is not None or self.debug_buffer_size is not None),
                "values are recorded with a debug level only",
            ),
            (
                not self.isolate and (self.place is not None or self.runner == NATIVE),
                "a run in this process is the Python runner's, on this machine",
            ),
        ):
            if wrong:
                raise UsageError(why)
        self.check_timeout()

    @property
    def sampler(self) -> Sampler:
        return Sampler(self.temperature, self.top_k, self.top_p, self.seed or 0)


@takes_fields(GenerateOptions)
def generate(
    program: Any,
    prompt: str | None = None,
    *,
    etrecord: Any = None,
    options: GenerateOptions = GenerateOptions(),
    **changes: Any,
) -> GenerationRun:
    """Generate tokens with the program of a language model, as its users do: the prompt, then a
    token at a time with the cache.

    By default there are separate runs, and each loads the program: one without tracing measures the
    model's times, one records the time of each event, and with a debug level one records values as
    well. Each generation begins at position 0.

    program: as for `etscope.run.run`. Names and inputs of its methods show their roles: see
        `etscope.analysis.generation.layout`.
    etrecord: the record of the export.
    options, changes: fields of `GenerateOptions`, as `max_new_tokens=16`; changes, and the prompt,
        go before `options`.

    SIGINT (Ctrl-C) ends the generation after the current call; the result then has what was
    recorded so far, and `is_interrupted` is True.

    Raises `MismatchError` for a program that is not a language model, a prompt longer than the
    cache, tokens that the model does not have and a tokenizer of another model, and what
    `etscope.run.run` raises.
    """
    options = replace(options, **changes)
    if prompt is not None:
        options = replace(options, prompt=prompt)
    options.check()
    opened = open_program(program, etrecord)
    if options.verify:
        opened.check_record()
    layout = layout_of(opened.program)
    said = _prompt(options, layout)
    task = _task(options, opened, layout, said)
    jobs = _jobs(task, options, opened)
    execution = replace(
        options.execution(jobs.values(), opened.program, options.place),
        debug_buffer_size=options.debug_buffer_size,
    )
    executed = execute_all(jobs, opened, execution)
    _warn_of_state(executed.passes, greedy=options.temperature == 0)
    return described(executed, opened, layout, said, forced=not options.verify)


# -- the prompt and the task


def _prompt(options: GenerateOptions, layout: Layout) -> Prompt:
    """Return the ids of the prompt. Raises `MismatchError` for ids that the model does not have."""
    tokenizer: Tokenizer | None = None
    if options.tokenizer is not None:
        tokenizer = open_tokenizer(options.tokenizer)
        if options.verify:
            check_tokenizer(tokenizer, layout)
    if options.prompt is not None and tokenizer is not None:
        ids = tokenizer.ids(options.prompt)
    elif options.tokens is not None:
        ids = tokens_from(options.tokens)
    elif options.prompt_length is not None:
        ids = drawn_tokens(options.prompt_length, options.seed or 0, layout.vocabulary_size)
    else:
        ids = [] if layout.bos_token is None else [layout.bos_token]
    check_tokens([one for one in ids if one != PLACE], layout)
    return Prompt(tuple(ids), options.prompt, tokenizer)


def _task(
    options: GenerateOptions, opened: Opened, layout: Layout, prompt: Prompt
) -> GenerationTask:
    """Plan the generation. Raises `MismatchError` for a prompt that does not fit the program."""
    made_up = options.seed or 0 if options.prompt_length is not None else options.seed
    given = encoder_inputs(opened.program, layout, _arrays(options.inputs), made_up)
    source = given.parts[0] if layout.source is not None and given.parts else None
    parts = arranged(prompt.ids, () if source is not None else given.parts)
    if not parts:
        raise UsageError(
            "the prompt is missing",
            hint="give a text with --tokenizer, ids (--tokens 1,5,9), or --prompt-length N",
        )
    rows = sum(len(part) if isinstance(part, Sequence) else part.rows for part in parts)
    if layout.context_length is not None and rows > layout.context_length:
        raise MismatchError(
            f"the prompt has {rows:,} tokens, and the program's context {layout.context_length:,}",
            hint="shorten the prompt, or export the model with a larger cache",
        )
    fed = plan_prompt(layout, parts, source)
    forced = None if options.force_tokens is None else tuple(tokens_from(options.force_tokens))
    if forced is not None:
        check_tokens(forced, layout, "the forced tokens")
        if not forced:
            raise UsageError(
                "the forced tokens are empty", hint="leave out force_tokens, or give a token"
            )
        room = None if layout.last_position is None else layout.last_position + 2 - rows
        if room is not None and len(forced) > room:
            raise MismatchError(
                f"{len(forced):,} forced tokens are too many: after the prompt's {rows:,} "
                f"tokens, the program's context of {layout.context_length:,} has room for "
                f"{max(room, 0):,}"
            )
    ends = layout.end_tokens if options.end_tokens is None else tuple(options.end_tokens)
    return GenerationTask(
        prompt=fed.prompt,
        decode=fed.decode,
        context=fed.context,
        given=given.arrays,
        logits_output=layout.logits_output,
        max_new_tokens=options.max_new_tokens if forced is None else len(forced),
        end_tokens=ends,
        last_position=layout.last_position,
        sampler=options.sampler,
        runs=options.iterations,
        warmup=options.warmup,
        forced=forced,
    )


def _arrays(inputs: Any) -> list[Any]:
    """Return the arrays for the encoders from a caller's arrays, or from one or more files."""
    if inputs is None:
        return []
    if isinstance(inputs, (str, os.PathLike)):
        return list(read_tensor_file(os.fspath(inputs)).values)
    found: list[Any] = []
    for one in inputs if isinstance(inputs, (list, tuple)) else [inputs]:
        found += _arrays(one) if isinstance(one, (str, os.PathLike)) else [one]
    return found


def _jobs(task: GenerationTask, options: GenerateOptions, opened: Opened) -> dict[str, Job]:
    """Return the runs by name; each records no more than it must."""
    opened.check_weights(options.data)
    untraced = replace(options.job(), generation=task)
    if options.values_at is not None and options.values_at[0] >= task.calls:
        raise UsageError(
            f"call {options.values_at[0]} does not exist: a generation has at most "
            f"{task.calls:,}, counted from 0"
        )
    once = replace(task, runs=1, warmup=0)
    jobs = {LATENCY: untraced}
    if options.trace:
        traced = replace(
            untraced,
            trace=True,
            profiling_level=options.profiling_level,
            allocations=options.allocations,
        )
        profiled = replace(task, runs=options.profiled_iterations)
        jobs[PROFILE] = replace(traced, generation=profiled)
        if options.debug_level != NONE:
            jobs[VALUES] = replace(
                traced,
                debug_level=options.debug_level,
                generation=replace(once, values_at=options.values_at),
            )
    if options.logits:
        kept = OF_GENERATED if task.forced is None else OF_ALL
        jobs[LOGITS] = replace(untraced, generation=replace(once, logits=kept))
    if options.memory:
        jobs[MEMORY] = replace(untraced, generation=once, memory=True)
    return jobs


def _warn_of_state(passes: dict[str, Executed], *, greedy: bool) -> None:
    """Warn when generations of one prompt gave other tokens: something survives between them."""
    for done in passes.values():
        result = generated(done)
        whole = [
            tokens.tolist()
            for tokens, reason in zip(result.tokens, result.stopped_by, strict=True)
            if reason != "interrupted"
        ]
        for number, tokens in enumerate(whole):
            if tokens != whole[0]:
                pairs = zip(tokens, whole[0], strict=False)
                first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
                place = "in their number" if first is None else f"from token {first} on"
                warnings.warn(
                    f"generations 0 and {number} of the same prompt differ {place}"
                    + (", although the likeliest token was taken" if greedy else "")
                    + ": the program keeps a state that a new prompt does not set back",
                    EtscopeWarning,
                    stacklevel=3,
                )
                return
