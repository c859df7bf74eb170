"""The result of a generation: tokens, text, pace, an ETDump and logits, to look at or to keep."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.layout import Layout
from etscope.analysis.generation.pace import Pace, generation_section, pace_section, phase_table
from etscope.analysis.generation.plan import GenerationResult, GenerationTask, calls_of
from etscope.analysis.memory.measured import memory_owners, owners_section
from etscope.errors import MissingDataError
from etscope.formats.bytes.files import PathLike
from etscope.formats.generation import (
    INTERRUPTED,
    Generation,
    GenerationCalls,
    GenerationPass,
)
from etscope.formats.run_json import (
    RUN_JSON,
    VALUES_ETDP,
    encode_run_json,
    inputs_sha256,
)
from etscope.formats.torch_files.tensor_files import write_tensor_file
from etscope.model.report import Report, Section
from etscope.model.table import Column, Kind
from etscope.run._outcome import LATENCY, TRACED, VALUES, Outcome
from etscope.run.execute import Executed, ExecutedJobs
from etscope.run.generation.prompt import Tokenizer
from etscope.run.program import Opened

LOGITS = "logits"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A prompt: its ids, with -1 in the place of an image or sound, and the text and tokenizer that
    gave them.
    """

    ids: tuple[int, ...]
    text: str | None = None
    tokenizer: Tokenizer | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class GenerationRun(Outcome):
    """The result of `etscope.run.generate`.

    passes: "latency" (untraced), "profile" (times), "values" and "logits". is_interrupted: it was
    ended by SIGINT; later passes are missing then.
    """

    layout: Layout = field(repr=False)
    prompt: Prompt = field(repr=False)
    is_interrupted: bool = False

    # -- the tokens

    @property
    def task(self) -> GenerationTask:
        """The plan that the runner executed."""
        found = self.passes[LATENCY].job.generation
        assert found is not None
        return found

    @property
    def tokens(self) -> Ints:
        """The generated ids, int64 [tokens], of the last generation of the untraced run."""
        return generated(self.passes[LATENCY]).tokens[-1]

    @property
    def prompt_tokens(self) -> Ints:
        """The ids of the prompt, int64; -1 for each token of an image or of sound."""
        return np.array(self.task.context, np.int64)

    @property
    def stopped_by(self) -> str:
        """The reason for the end of `tokens`: "length", "end token", "context" or "interrupted"."""
        return generated(self.passes[LATENCY]).stopped_by[-1]

    @cached_property
    def text(self) -> str | None:
        """The generated text; None without a tokenizer."""
        tokenizer = self.prompt.tokenizer
        return None if tokenizer is None else tokenizer.text(self.tokens.tolist())

    @property
    def logits(self) -> npt.NDArray[np.float32]:
        """The logits that were kept, float32 [rows, vocabulary]: one row for each generated token,
        or with forced tokens for each position that the program gives logits of."""
        return self._logits[0]

    @property
    def logits_positions(self) -> Ints:
        """int64 [rows]: the position of the last token that each row of `logits` is computed from;
        the row predicts the next one."""
        return self._logits[1]

    @property
    def _logits(self) -> tuple[npt.NDArray[np.float32], Ints]:
        done = self.passes.get(LOGITS)
        result = None if done is None else generated(done)
        if result is None or result.logits is None or result.logits_positions is None:
            raise MissingDataError("no logits were kept in this run", hint="logits=True keeps them")
        return result.logits, result.logits_positions

    # -- the times

    @cached_property
    def generation(self) -> Generation:
        """The whole generation, in the form of run.json."""
        tokenizer = self.prompt.tokenizer
        return Generation(
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.tokens,
            passes=tuple(
                _pass(self.passes[name], traced)
                for name, traced in TRACED.items()
                if name in self.passes
            ),
            runs=self.task.runs,
            stopped_by=INTERRUPTED if self.is_interrupted else self.stopped_by,
            context_length=self.layout.context_length,
            vocabulary_size=self.layout.vocabulary_size,
            sampler=self.task.sampler,
            inputs=self.task.inputs,
            text=self.text,
            tokenizer=None if tokenizer is None else tokenizer.path,
            tokenizer_sha256=None if tokenizer is None else tokenizer.sha256,
        )

    @property
    def calls(self) -> GenerationCalls:
        """The calls of the untraced run, without those to warm up."""
        return self.generation.passes[0].calls

    @cached_property
    def pace(self) -> Pace:
        """Times and rates of the untraced run."""
        return Pace.of(self.generation.passes[0])

    def report(self) -> Report:
        """Return the phases, the pace, and the facts of the generation."""
        done = self.passes[LATENCY].result
        peak = None if self.memory is None else self.memory.peak_rss
        of_run = [
            (Column("runner"), done.runner),
            (Column("threads", Kind.COUNT), done.threads),
            (Column("peak_memory", Kind.BYTES), peak),
        ]
        had = "" if self.conditions is None else self.conditions.in_words(done.threads)
        phases = phase_table(self.pace)
        phases = replace(phases, title=f"{phases.title} · {had}") if had else phases
        sections = [generation_section(self.generation, of_run), Section("phases", phases)]
        if len(self.pace.first_token_ns):
            sections.append(pace_section(self.pace))
        if self.measured is not None:
            sections.append(owners_section(memory_owners(self.measured)))
        return Report({"program": self.opened.given or "the program"}, tuple(sections))

    # -- saving

    def save(self, folder: PathLike, *, programs: bool = True) -> list[Path]:
        """Write all files into a folder, which is made if needed; return their paths.

        run.json: the tokens, the calls and their times. run.etdp (times), and with a debug level
        values.etdp with debug.bin. inputs.npz: the arrays that were given, as "given_0" and so on.
        outputs.npz: `tokens`, and if they were kept `logits` with `logits_positions`. With
        `programs` also copies of the program and its record, if they take no more than 64 MiB; else
        run.json has their paths. Files that another run left in the folder are removed.
        """
        outputs: dict[str, Any] = {"tokens": self.tokens}
        if LOGITS in self.passes and generated(self.passes[LOGITS]).logits is not None:
            outputs |= {"logits": self.logits, "logits_positions": self.logits_positions}
        tensors = {"outputs": outputs}
        if self.task.given:
            tensors["inputs"] = {f"given_{n}": array for n, array in enumerate(self.task.given)}
        return self._write(folder, tensors, programs=programs)

    def save_logits(self, path: PathLike) -> None:
        """Write a .npz with `logits` (float32 [rows, vocabulary]), `positions` (int64 [rows]) and
        `tokens` (int64 [tokens], the generated ones)."""
        arrays: list[Any] = [self.logits, self.logits_positions, self.tokens]
        write_tensor_file(Path(path), arrays, ["logits", "positions", "tokens"])

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "given_sha256": inputs_sha256(self.task.given) if self.task.given else None,
            "generation": self.generation.to_json(),
        }


def described(
    executed: ExecutedJobs, opened: Opened, layout: Layout, prompt: Prompt, *, forced: bool
) -> GenerationRun:
    """Return the outcome of a generation, with its dumps named as in a saved run. Next to each dump
    is a run.json that says which call each run of the dump belongs to.
    """
    values = executed.passes.get(VALUES)
    if values is not None and values.etdump is not None:
        named = values.etdump.rename(values.etdump.with_name(VALUES_ETDP))
        executed.passes[VALUES] = replace(values, etdump=named)
    done = GenerationRun.of(
        executed,
        opened,
        forced=forced,
        layout=layout,
        prompt=prompt,
        is_interrupted=executed.is_interrupted,
    )
    for one in done.passes.values():
        if one.etdump is not None:
            (one.etdump.parent / RUN_JSON).write_bytes(encode_run_json(done.facts()))
    return done


def generated(done: Executed) -> GenerationResult:
    assert done.result.generation is not None
    return done.result.generation


def _pass(done: Executed, traced: str | None) -> GenerationPass:
    """Return a pass as run.json has it, without the generations to warm up."""
    task, result = done.job.generation, generated(done)
    assert task is not None
    calls = calls_of(task, result)
    first = calls.select(calls.run == 0)
    kept = calls.select(calls.run >= task.warmup)
    kept = replace(kept, run=kept.run - task.warmup)
    cold = Pace(first, 0).first_token_ns
    load = done.result.load_ns
    return GenerationPass(traced, load, kept, int(cold[0]) if len(cold) else None)
