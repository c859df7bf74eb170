"""The generations of a job: its prompts, and what `etscope.run.generate` measures of each.

For each prompt `cold` processes load the program and generate once. Then one process generates
several times, and another one is traced. Files of a prompt appear in the job's folder when it is
done, and `partial.json` next to the folder has the rows so far: a job that is stopped or runs out
of time keeps them.

The gate of a job compares the logits on the device with a reference's, at each token of the same
text (`etscope.evaluation.evaluate_tokens`). Its result in the job's summary is plain JSON:

    fine                whether the limits hold, and no logits are NaN
    verdict             in words
    reference           its name
    tokens              that were compared, of `text_tokens`
    mean_kl, max_kl     Kullback-Leibler divergence from the reference, nats; limit_mean_kl
    agreement           the share of the tokens with the reference's likeliest one; limit_agreement
    flips, ties         tokens with another likeliest one; of these, those that rounding may change
    perplexity, reference_perplexity
    first_divergence    index in the text of the first token that is another one, ties apart
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from etscope.analysis.generation.layout import layout_of
from etscope.errors import FormatError, MismatchError, RuntimeFailure, UsageError
from etscope.evaluation import TokenEvaluation, evaluate_tokens
from etscope.formats.generation import GenerationPass
from etscope.formats.identify import ETRECORD, identify
from etscope.formats.run_json import RUN_JSON, encode_run_json
from etscope.run import GenerationRun, Place, generate
from etscope.run.generation.prompt import check_tokens, tokens_from
from etscope.run.program import Opened, open_program
from etscope.units import format_share
from etscope_lab.comparison.ab import Round
from etscope_lab.jobs.generations import (
    COLD_STARTS,
    FIRST_TOKEN,
    PROMPT,
    TOKEN,
    cold_starts,
    drawn_prompt,
    generation_row,
    prompt_file,
)
from etscope_lab.jobs.records import statistics_of
from etscope_lab.jobs.spec import MOST_PROMPTS, GenerationSpec, JobSpec, Quality

REFERENCE, TOKENS = "quality.reference", "quality.tokens"  # fields of the job's files
_MOST_BYTES = 64 << 20  # of a file of prompts
_COLUMNS = re.compile(r"[\s,]+")


@dataclass(frozen=True, slots=True)
class JobPrompt:
    """A prompt of a job. name: its name in the results. tokens: its ids; None to draw `length` of
    them.
    """

    name: str
    tokens: tuple[int, ...] | None = None
    length: int | None = None


@dataclass(slots=True, eq=False)
class Generated:
    """The generations of all prompts so far. rows: see `etscope_lab.jobs.generations`. facts: facts
    on the first run, for the environment. marks: in words.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    latency: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None
    marks: list[str] = field(default_factory=list)


def check_language_models(
    spec: JobSpec, programs: Iterable[Opened], files: Mapping[str, Path]
) -> tuple[str, ...]:
    """Return the methods that generate with the first of some programs.

    Raises `MismatchError` for a program that is not a language model and for a prompt that is
    longer than its cache, and what `prompts_of` raises.
    """
    prompts = prompts_of(spec, files.get("prompts"))
    layouts = [layout_of(one.program) for one in programs]
    for layout in layouts:
        for prompt in prompts:
            most, count = layout.context_length, prompt.length or len(prompt.tokens or ())
            if most is not None and count > most:
                raise MismatchError(
                    f"the prompt {prompt.name} has {count:,} tokens, and the program's context "
                    f"{most:,}",
                    hint="shorten the prompt, or export the model with a larger cache",
                )
    roles = (layouts[0].embedding, layouts[0].prefill, layouts[0].decode)
    return tuple(dict.fromkeys(role.method for role in roles if role is not None))


def prompts_of(spec: JobSpec, file: Path | None) -> list[JobPrompt]:
    """Return the prompts of a job: first from its file, then of its lengths.

    Raises `UsageError` for text that is not ids and for too many prompts, `FormatError` for a file
    that is not one of numpy.
    """
    found = []
    if file is not None:
        name = "" if spec.prompts is None else spec.prompts.name
        found = [
            JobPrompt(f"{name or 'prompts'}, line {line}", tokens)
            for line, tokens in _lines_of(file, name)
        ]
        if not found:
            raise UsageError(f"{name or 'the file of prompts'} has no prompt")
    found += [JobPrompt(drawn_prompt(length, spec.seed), None, length) for length in spec.lengths]
    if len(found) > MOST_PROMPTS:
        raise UsageError(f"{len(found)} prompts; a job has {MOST_PROMPTS} at most")
    return found


def _lines_of(file: Path, name: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The prompts of a file with their numbers, from 1: ids in each line, or rows of an array."""
    if file.stat().st_size > _MOST_BYTES:
        raise UsageError(f"a file of prompts has {_MOST_BYTES:,} bytes at most")
    if name.endswith(".npy"):
        try:
            array = np.atleast_2d(np.load(file, allow_pickle=False))
        except ValueError as error:
            raise FormatError(f"not a file of numpy: {error}", path=file) from error
        if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
            raise UsageError(f"{name}: prompts are integers, [prompts, tokens] or [tokens]")
        yield from ((line, tuple(row)) for line, row in enumerate(array.tolist(), 1))
        return
    for line, text in enumerate(file.read_text("utf-8", "replace").splitlines(), 1):
        words = [word for word in _COLUMNS.split(text.strip(" [],\t")) if word]
        for word in words:
            if not re.fullmatch(r"-?\d{1,18}", word):
                raise UsageError(
                    f"{name or 'prompts'}, line {line}: {word!r:.40} is not a token id",
                    hint="a prompt is a line of ids: 1,5,9",
                )
        if words:
            yield line, tuple(map(int, words))


def options_of(spec: JobSpec, prompt: JobPrompt, files: Mapping[str, Path]) -> dict[str, Any]:
    """Return the options of `etscope.run.generate` that all runs of a prompt share."""
    given = spec.generation or GenerationSpec()
    return {
        "tokens": prompt.tokens,
        "prompt_length": prompt.length,
        "seed": spec.seed,
        "inputs": files.get("inputs", ()),
        "max_new_tokens": given.new_tokens,
        "temperature": given.temperature,
        "top_k": given.top_k,
        "top_p": given.top_p,
        "end_tokens": None if given.stop_at_end else (),
        "data": files.get("data"),
        "threads": spec.threads,
        "runner": spec.runner,
    }


@dataclass(eq=False)
class GenerationMeasurement:
    """The generations of one program for the prompts of a job.

    place: where the runner's processes run. facts_of: a function that returns the facts of a run
    for run.json. keep: a function that is called after each prompt with the rows so far. out: the
    folder of the job's files.
    """

    spec: JobSpec
    opened: Opened
    files: Mapping[str, Path]
    out: Path
    place: Place
    facts_of: Callable[[GenerationRun], dict[str, Any]]
    keep: Callable[[list[dict[str, Any]]], None]

    def run(self) -> Generated:
        """Measure all prompts. Raises the errors of `generate`, and `RuntimeFailure` for a
        generation that was interrupted; the files with what was recorded then exist.
        """
        found = Generated()
        for number, prompt in enumerate(prompts_of(self.spec, self.files.get("prompts"))):
            self._measure(number, prompt, found)
            self.keep(found.rows)
        return found

    def _measure(self, number: int, prompt: JobPrompt, found: Generated) -> None:
        spec = self.spec
        given = spec.generation or GenerationSpec()
        options = {**options_of(spec, prompt, self.files), "place": self.place}
        cold: list[GenerationPass] = []
        digests = set()
        for _ in range(given.cold):
            with generate(self.opened, trace=False, iterations=1, warmup=0, **options) as done:
                _check_whole(done)
                cold.append(done.generation.passes[0])
                digests.add(tuple(done.tokens.tolist()))
        with generate(
            self.opened,
            trace=bool(spec.traced_iterations) or spec.debug_level != "none",
            debug_level=spec.debug_level,
            iterations=given.warm,
            warmup=given.warmup,
            **options,
        ) as done:
            digests.add(tuple(done.tokens.tolist()))
            facts = {
                **self.facts_of(done),
                PROMPT: prompt.name,
                COLD_STARTS: cold_starts(cold),
            }
            save_whole(done, self.out, facts, partial(prompt_file, number))
            _check_whole(done)
            memory = None if done.memory is None else done.memory.peak_rss
            row = generation_row(prompt.name, done.generation, cold, memory)
            pace = done.pace
        if len(digests) > 1:
            found.marks.append(f"generations of the prompt {prompt.name} gave different tokens")
        if not found.rows:
            found.facts, found.memory = facts, facts.get("memory")
            if len(pace.inter_token_ns):
                first = pace.cold_first_token_ns or 0
                found.latency = statistics_of(pace.inter_token_ns, pace.load_ns, first)
        found.rows.append(row)


def save_whole(
    done: GenerationRun,
    out: Path,
    facts: Mapping[str, Any],
    name_of: Callable[[str], str],
    only: Collection[str] = (),
) -> None:
    """Write the files of a run, or only those in `only`, and move them into a folder when they are
    complete.

    facts: further facts for run.json. name_of: the name in the folder, by the file's name.
    """
    with tempfile.TemporaryDirectory(dir=out.parent, prefix="saving-") as name:
        folder = Path(name)
        done.save(folder, programs=False)
        saved = json.loads((folder / RUN_JSON).read_bytes())
        (folder / RUN_JSON).write_bytes(encode_run_json({**saved, **facts}))
        for path in sorted(folder.iterdir()):
            if not only or path.name in only:
                path.replace(out / name_of(path.name))


def _check_whole(done: GenerationRun) -> None:
    if done.is_interrupted:
        count = len(done.tokens)
        raise RuntimeFailure(
            f"the generation was interrupted after {count} tokens",
            hint="what was recorded until then is in the job's files",
        )


@dataclass(eq=False)
class GenerationSides:
    """The processes of the two sides of an A/B job. What each of them took is in `samples`, ns, by
    the name of the time, the round and the side."""

    spec: JobSpec
    opened: Mapping[str, Opened]
    files: Mapping[str, Path]
    place: Place
    samples: dict[str, dict[int, dict[str, tuple[int, ...]]]] = field(default_factory=dict)
    first: dict[str, GenerationRun] = field(default_factory=dict)

    def run(self, side: str, number: int) -> Sequence[int]:
        """Generate once more for each prompt, in new processes; return the times of the first of
        the names."""
        given = self.spec.generation or GenerationSpec()
        own: dict[str, tuple[int, ...]] = {}
        prompts = prompts_of(self.spec, self.files.get("prompts"))
        for prompt in prompts:
            done = generate(
                self.opened[side],
                trace=False,
                iterations=given.warm,
                warmup=given.warmup,
                place=self.place,
                **options_of(self.spec, prompt, self.files),
            )
            _check_whole(done)
            self.first.setdefault(side, done)
            of_prompt = f" of {prompt.name}" if len(prompts) > 1 else ""
            for name, times in (
                (TOKEN, done.pace.inter_token_ns),
                (FIRST_TOKEN, done.pace.first_token_ns),
            ):
                if len(times):
                    own[name + of_prompt] = tuple(times.tolist())
            done.close()
        for name, found in own.items():
            self.samples.setdefault(name, {}).setdefault(number, {})[side] = found
        return next(iter(own.values()), ())

    def rounds(self, done: Sequence[Round]) -> dict[str, list[Round]]:
        """Return the rounds of an A/B job by the name of the time."""
        return {
            name: [
                replace(one, samples_ns=rounds.get(one.number, {}) if one.complete else {})
                for one in done
            ]
            for name, rounds in self.samples.items()
        }

    def trace(self, side: str) -> GenerationRun:
        """Generate for the first prompt, traced."""
        prompt = prompts_of(self.spec, self.files.get("prompts"))[0]
        options = options_of(self.spec, prompt, self.files)
        return generate(self.opened[side], iterations=1, warmup=0, place=self.place, **options)


def check_gate(opened: Opened, files: Mapping[str, Path]) -> None:
    """Read the text and the reference of a gate, before anything is measured.

    Raises `UsageError` for a text of less than two tokens, `MismatchError` for tokens that the
    model does not have and a reference that is not a language model, and the errors of reading.
    """
    ids = tokens_from(files[TOKENS])
    if len(ids) < 2:
        raise UsageError("the text of the quality gate has less than two tokens")
    check_tokens(ids, layout_of(opened.program), "the quality gate's text")
    if identify(files[REFERENCE]) != ETRECORD:
        layout_of(open_program(files[REFERENCE]).program)


def quality_of(
    gate: Quality,
    spec: JobSpec,
    opened: Opened,
    files: Mapping[str, Path],
    place: Place,
    timeout: float,
) -> dict[str, Any]:
    """Compare the program on the device with the reference, which runs on this machine.

    timeout: seconds, for each window of the text. Raises the errors of `evaluate_tokens`.
    """
    found = evaluate_tokens(
        opened,
        files[TOKENS],
        reference=files[REFERENCE],
        data=files.get("data"),
        threads=spec.threads,
        runner=spec.runner,
        timeout=timeout,
        place=place,
    )
    return gate_result(gate, found)


def gate_result(gate: Quality, found: TokenEvaluation) -> dict[str, Any]:
    """Judge an evaluation by the limits of a gate."""
    metrics = found.agreement.metrics
    at = found.divergence
    return {
        "fine": found.is_within(gate.max_kl, gate.min_agreement) and not found.is_finding,
        "verdict": _in_words(gate, found),
        "reference": gate.reference.name or found.reference,
        "tokens": len(found.agreement),
        "text_tokens": found.text_tokens,
        "mean_kl": metrics["mean_kl"],
        "max_kl": metrics["max_kl"],
        "limit_mean_kl": gate.max_kl,
        "agreement": metrics["top1_agreement"],
        "limit_agreement": gate.min_agreement,
        **{name: metrics[name] for name in ("flips", "ties", "perplexity", "reference_perplexity")},
        "first_divergence": None if at is None else int(found.places.index[at]),
    }


def _in_words(gate: Quality, found: TokenEvaluation) -> str:
    agreement, count = found.agreement, len(found.agreement)
    parts = []
    if gate.max_kl is not None:
        parts.append(
            f"the mean KL divergence from the reference is {agreement.mean_kl:.3g} nats, "
            f"the limit is {gate.max_kl:g}"
        )
    if gate.min_agreement is not None:
        parts.append(
            f"{format_share(agreement.top1_agreement)} of {count:,} tokens have the "
            f"reference's likeliest token, the limit is {format_share(gate.min_agreement)}"
        )
    if found.is_finding:
        parts.append(f"NaN in the logits of {int(agreement.non_finite.sum()):,} tokens")
    return "; ".join(parts)
