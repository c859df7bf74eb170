"""The result of a generation: tokens, text, pace, an ETDump and logits, to look at or to keep."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.layout import Layout
from etscope.analysis.generation.pace import Pace, generation_section, pace_section, phase_table
from etscope.analysis.generation.plan import GenerationResult, GenerationTask, calls_of
from etscope.analysis.memory.measured import memory_owners, owners_section
from etscope.analysis.profile.trace import Trace
from etscope.errors import MissingDataError
from etscope.formats.bytes.files import PathLike, atomic_write, make_folder
from etscope.formats.conditions import Conditions
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.generation import (
    INTERRUPTED,
    Generation,
    GenerationCalls,
    GenerationPass,
)
from etscope.formats.run_json import (
    DEBUG_BIN,
    RUN_ETDP,
    RUN_JSON,
    VALUES_ETDP,
    MeasuredMemory,
    SavedMemory,
    conditions_to_json,
    copied_by,
    encode_run_json,
    inputs_sha256,
)
from etscope.formats.torch_files.tensor_files import fits_npz, write_tensor_file
from etscope.model.report import Report, Section
from etscope.model.table import Column, Kind
from etscope.run._outcome import LATENCY, MEMORY, PROFILE, VALUES, Outcome
from etscope.run.execute import Executed
from etscope.run.generation.prompt import Tokenizer
from etscope.run.program import Opened

if TYPE_CHECKING:
    from etscope.inspector import Inspector

LOGITS = "logits"
_TRACED = {LATENCY: None, PROFILE: "times", VALUES: "values"}
_TENSOR_FILES = (".npz", ".safetensors")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A prompt: its ids, with -1 in the place of an image or sound, and what they are from."""

    ids: tuple[int, ...]
    text: str | None = None
    tokenizer: Tokenizer | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class GenerationRun(Outcome):
    """The result of `etscope.run.generate`.

    passes: the separate runs by name: "latency" (untraced), "profile" (times), "values", "logits"
    and "memory". is_interrupted: it was ended by SIGINT; later passes are missing then.
    """

    opened: Opened = field(repr=False)
    layout: Layout = field(repr=False)
    prompt: Prompt = field(repr=False)
    passes: Mapping[str, Executed] = field(repr=False)
    recorded_at: datetime
    forced: bool = False
    conditions: Conditions | None = None
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
        return _result(self.passes[LATENCY]).tokens[-1]

    @property
    def prompt_tokens(self) -> Ints:
        """The ids of the prompt, int64; -1 for each token of an image or of sound."""
        return np.array(self.task.context, np.int64)

    @property
    def stopped_by(self) -> str:
        """The reason for the end of `tokens`: "length", "end token", "context" or "interrupted"."""
        return _result(self.passes[LATENCY]).stopped_by[-1]

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
        result = None if done is None else _result(done)
        if result is None or result.logits is None or result.logits_positions is None:
            raise MissingDataError("no logits were kept in this run", hint="logits=True keeps them")
        return result.logits, result.logits_positions

    # -- the times

    @cached_property
    def generation(self) -> Generation:
        """All of it, as run.json has it."""
        tokenizer = self.prompt.tokenizer
        return Generation(
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.tokens,
            passes=tuple(
                _pass(self.passes[name], traced)
                for name, traced in _TRACED.items()
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

    @property
    def memory(self) -> SavedMemory | None:
        """The memory of the runner's process in the untraced run; None when it is not known."""
        result = self.passes[LATENCY].result
        if result.peak_rss_bytes is None:
            return None
        return SavedMemory(
            result.runner, None, result.rss_before_bytes, result.peak_rss_bytes, self._measured
        )

    @property
    def _measured(self) -> MeasuredMemory | None:
        done = self.passes.get(MEMORY)
        return None if done is None else done.result.memory

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
        if self._measured is not None:
            sections.append(owners_section(memory_owners(self._measured)))
        return Report({"program": self.opened.given or "the program"}, tuple(sections))

    # -- traces

    @property
    def etdump_path(self) -> Path:
        """The ETDump: the one with values when there is one, else the one with times."""
        name = VALUES_ETDP if VALUES in self.passes else RUN_ETDP
        path = self._files / name
        if not path.exists():
            raise MissingDataError("nothing was traced in this run")
        return path

    @property
    def profile_path(self) -> Path:
        """The ETDump with times only."""
        path = self._files / RUN_ETDP
        if not path.exists():
            raise MissingDataError("nothing was traced in this run")
        return path

    @property
    def is_traced(self) -> bool:
        """True if there is an ETDump."""
        return PROFILE in self.passes

    @cached_property
    def _files(self) -> Path:
        """A folder with the dumps and run.json, named as in a saved run."""
        folder = self.folder.path / "saved"
        folder.mkdir()
        for name, path in self._dumps.items():
            if path is not None:
                path.replace(folder / name)
        (folder / RUN_JSON).write_bytes(encode_run_json(self.facts()))
        return folder

    @property
    def _dumps(self) -> dict[str, Path | None]:
        times, values = (self.passes.get(name) for name in (PROFILE, VALUES))
        return {
            RUN_ETDP: None if times is None else times.etdump,
            VALUES_ETDP: None if values is None else values.etdump,
            DEBUG_BIN: None if values is None else values.debug_buffer,
        }

    @cached_property
    def trace(self) -> Trace:
        """The runs of `profile_path`, with the record and the program."""
        return Trace(
            dump=read_etdump(self.profile_path),
            record=self.opened.record,
            program=self.opened.program,
            forced=self.forced,
        )

    def inspector(self, **options: Any) -> Inspector:
        """Open an `Inspector` of `etdump_path`, with the debug buffer, the record and the program.

        options: further arguments of `Inspector`; `etdump_path=run.profile_path` looks at the
        times of the run that recorded no values.
        """
        from etscope.inspector import Inspector

        path = Path(options.pop("etdump_path", self.etdump_path))
        buffer = self._files / DEBUG_BIN
        has_values = path.name == VALUES_ETDP and buffer.exists()
        known: dict[str, Any] = {
            "debug_buffer_path": buffer if has_values else None,
            "etrecord": self.opened.record,
            "verify": not self.forced,
        }
        if self.opened.record is None:
            known["program"] = self.opened.program
        return Inspector(path, **{**known, **options})

    # -- saving

    def save(self, folder: PathLike, *, programs: bool = True) -> list[Path]:
        """Write all files into a folder, which is made if needed; return their paths.

        run.json: the tokens, the calls and their times. run.etdp (times), and with a debug level
        values.etdp with debug.bin. inputs.npz: the arrays that were given, as "given_0" and so on.
        outputs.npz: `tokens`, and if they were kept `logits` with `logits_positions`. With
        `programs` also copies of the program and its record, if they take no more than 64 MiB; else
        run.json has their paths. Files that another run left in the folder are removed.
        """
        target = make_folder(folder)
        before = copied_by(target)
        outputs: dict[str, Any] = {"tokens": self.tokens}
        if LOGITS in self.passes and _result(self.passes[LOGITS]).logits is not None:
            outputs |= {"logits": self.logits, "logits_positions": self.logits_positions}
        given = {f"given_{index}": array for index, array in enumerate(self.task.given)}
        tensors: dict[str, dict[str, Any]] = {
            "outputs": outputs,
            **({"inputs": given} if given else {}),
        }
        names = {
            stem: stem + _TENSOR_FILES[not all(fits_npz(one.dtype) for one in named.values())]
            for stem, named in tensors.items()
        }
        sources = {name: self._files / name for name in (RUN_ETDP, VALUES_ETDP, DEBUG_BIN)}
        sources = {name: path for name, path in sources.items() if path.exists()}
        with ExitStack() as files:
            for name, source in sources.items():
                out = files.enter_context(atomic_write(target / name))
                with source.open("rb") as data:
                    shutil.copyfileobj(data, out, 1 << 20)
            for stem, named in tensors.items():
                write_tensor_file(target / names[stem], list(named.values()), list(named))
            content = {**self.facts(), "inputs": names.get("inputs")}
            content |= self.opened.copy_into(target) if programs else {}
            files.enter_context(atomic_write(target / RUN_JSON)).write(encode_run_json(content))
        written = [*sources, *names.values(), *content.get("copied", ())]
        known = {f"{stem}{end}" for stem in ("inputs", "outputs") for end in _TENSOR_FILES}
        kept = {*written, content["program"], content["record"]}
        for name in {RUN_ETDP, VALUES_ETDP, DEBUG_BIN, *known, *before} - kept:
            (target / name).unlink(missing_ok=True)
        return [target / name for name in (*written, RUN_JSON)]

    def save_logits(self, path: PathLike) -> None:
        """Write a .npz with `logits` (float32 [rows, vocabulary]), `positions` (int64 [rows]) and
        `tokens` (int64 [tokens], the generated ones)."""
        arrays: list[Any] = [self.logits, self.logits_positions, self.tokens]
        write_tensor_file(Path(path), arrays, ["logits", "positions", "tokens"])

    def facts(self) -> dict[str, Any]:
        """Return the program, the generation, when it ran (ISO 8601) and for how long (ns): plain
        values for JSON."""
        done = self.passes[LATENCY].result
        last = self.passes.get(VALUES)
        return {
            **self.opened.files(),
            "runner": done.runner,
            "executorch": done.executorch,
            "threads": done.threads,
            "conditions": self.conditions and conditions_to_json(self.conditions),
            "memory": self.memory and self.memory.to_json(),
            "recorded_at": self.recorded_at.isoformat(timespec="milliseconds"),
            "debug_level": "none" if last is None else last.job.debug_level,
            "given_sha256": inputs_sha256(self.task.given) if self.task.given else None,
            "generation": self.generation.to_json(),
        }


def _result(done: Executed) -> GenerationResult:
    assert done.result.generation is not None
    return done.result.generation


def _pass(done: Executed, traced: str | None) -> GenerationPass:
    """Return a pass as run.json has it, without the generations to warm up."""
    task, result = done.job.generation, _result(done)
    assert task is not None
    calls = calls_of(task, result)
    first = calls.select(calls.run == 0)
    kept = calls.select(calls.run >= task.warmup)
    kept = replace(kept, run=kept.run - task.warmup)
    cold = Pace(first, 0).first_token_ns
    load = done.result.load_ns
    return GenerationPass(traced, load, kept, int(cold[0]) if len(cold) else None)
