"""run.json: what ran and for how long. `etscope run` and the lab write it next to a dump.

    {"program": "model.pte", "program_sha256": "…", "record": "model.etrecord",
     "record_sha256": "…", "copied": ["model.etrecord", "model.pte"],
     "runner": "native", "executorch": "1.5.1",
     "threads": 4, "recorded_at": "2026-05-01T12:00:00.000+00:00", "debug_level": null,
     "conditions": {"cpu": "Cortex-A76", "cpus": "0-3", "cores": 4, "governors": ["powersave"],
                    "load": 0.31},
     "memory": {"runner": "native", "traced": null, "rss_before_bytes": 12546048,
                "peak_rss_bytes": 13717504},
     "calls": [{"method": "forward", "case": null, "iterations": 10, "warmup": 2,
                "inputs_from": "seed 0", "inputs_sha256": "…"}],
     "inputs": "inputs.npz",
     "latencies": [{"traced": null, "method": "forward", "case": null, "load_ns": 5200000,
                    "first_ns": 910000, "samples_ns": [880000, …]}],
     "model": "mobilenet", "device": "pixel-8", "job": "…", "labels": {"commit": "1f2e3d"},
     "environment": {"os": "Android 15", …}, "marks": ["…"]}

`program` and `record` are names of files in its folder, or paths; `copied` lists the ones copied
there with the run. `inputs` is the file with the inputs of the calls, in the same folder. Inputs
are "given", or come from the "record", a "case" of a bundle, or a seed. `conditions` are those
before the first execution. `memory` is the resident memory of the runner's process in the first
run, before it reads the program and at its peak; with the runner "python", both include Python and
torch. With `etscope run --memory` it has `measured`, from a separate run, all in bytes:

    {"phases": [{"phase": "load", "method": "forward",
                 "counted_bytes": {"program": 74224, "constants": 95356936, "planned": 4259904, …},
                 "malloc_used_bytes": …, "malloc_held_bytes": …, "rss_bytes": …,
                 "rss_of_files_bytes": …, "rss_of_stacks_bytes": …, "rss_anonymous_bytes": …,
                 "mapped_anonymous_bytes": …, "peak_rss_bytes": …}],
     "delegates": [{"method": "forward", "segment": 2, "backend": "XnnpackBackend",
                    "growth_bytes": 4743120, "peak_rss_bytes": …}],
     "instructions": [{"method": "forward", "chain": 0, "instruction": 12, "executions": 2,
                       "first_growth_bytes": 4096, "later_growth_bytes": 0, "temporary_bytes": 0,
                       "peak_rss_bytes": …}]}

A phase ("start", "program", "load", "inputs", "first execution", "later executions") has the
memory of the process at its end, and the largest resident memory during the phase. `counted_bytes`
are the runtime's requests. A delegate's growth is what else malloc gave while the runtime made the
delegate; an instruction's growth is what malloc gave while it ran. Instructions without growth are
left out.

A core of etdb, half.etdp, has the same in half.run.json, its inputs in half.inputs.npz. Calls
before the one in the dump have `iterations` 0 and `warmup` 1. `failed` is the message of the
operator that ended the run.

Every key is optional, and unknown keys are ignored. Only other tools write the last two lines.
Times are in ns; `recorded_at` is ISO 8601, in UTC if it does not have a zone. A run of `etscope
generate` has neither `calls` nor `latencies`: `generation` has both (`etscope.formats.generation`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etscope.errors import EtscopeError, reading
from etscope.formats.bytes.files import PathLike
from etscope.formats.generation import (
    Generation,
    GenerationCalls,
    InputTypes,
    OutputOf,
    inputs_of_calls,
    parse_generation,
)
from etscope.formats.json_values import JsonValue, read_json
from etscope.support.shown import Shown

if TYPE_CHECKING:
    from etscope.formats.conditions import Conditions

__all__ = [
    "DEBUG_BIN",
    "DEVICE_LOG",
    "RUN_ETDP",
    "RUN_JSON",
    "VALUES_ETDP",
    "SavedLatency",
    "SavedRun",
    "conditions_to_json",
    "encode_run_json",
    "generated_calls",
    "parse_run_json",
    "read_run_json",
    "run_at",
]

RUN_JSON = "run.json"
# The dumps in its folder, and the debug buffer of the one with values.
RUN_ETDP, VALUES_ETDP, DEBUG_BIN = "run.etdp", "values.etdp", "debug.bin"
DEVICE_LOG = "device.log"  # of an imported run: counters, allocators, or times of an app
CORE = "etdb"  # the "runner" of a core
_MOST_INPUTS = 256 << 20  # bytes that are saved with a run


def conditions_to_json(conditions: Conditions) -> dict[str, Any]:
    """Return the conditions of a run in the form of run.json."""
    shown = ("cpu", "cpus", "cores", "governors", "load")
    return {name: getattr(conditions, name) for name in shown}


def copied_by(folder: Path) -> set[str]:
    """Return the names of an earlier run's copies of program and record in a folder."""
    path = folder / RUN_JSON
    names: tuple[str, ...] = ()
    with suppress(EtscopeError):  # a damaged file is replaced
        names = read_json(path, RUN_JSON).texts("copied")
    return {name for name in names if Path(name).name == name}


def encode_run_json(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a run.json."""
    return json.dumps(content, indent=1).encode() + b"\n"


def read_run_json(path: Path) -> SavedRun:
    """Read a run.json; `FormatError` if it is damaged."""
    return _saved_run(read_json(path, RUN_JSON), str(path))


def parse_run_json(data: bytes, path: str | None = None) -> SavedRun:
    """Parse the bytes of a run.json from `path`; `FormatError` if it is damaged."""
    return _saved_run(read_json(data, RUN_JSON), path)


def _saved_run(given: JsonValue, path: str | None) -> SavedRun:
    with reading(RUN_JSON, path):
        given.members()  # it must be an object
    return SavedRun(given.value, path)


@dataclass(frozen=True, slots=True)
class SavedInputs:
    """The inputs of the runs of a method.

    source: "given", "record", "case", "seed N" or "generation". values: flat; None if not saved.
    sha256: their `inputs_sha256`, from the file. made_of: only for a generation's call that takes
    an output of another call: its inputs with `OutputOf` for that output; `values` is None then.
    """

    source: str
    values: tuple[Any, ...] | None
    sha256: str | None = None
    made_of: tuple[Any, ...] | None = None

    @property
    def fingerprint(self) -> str | None:
        """The hash of the inputs; None if both inputs and hash are unknown."""
        if self.sha256 is not None or self.values is None:
            return self.sha256
        return inputs_sha256(self.values)


def inputs_sha256(inputs: Sequence[Any]) -> str:
    """Return a hash of the types, shapes and values of a program's inputs."""
    digest = hashlib.sha256()
    for value in inputs:
        array = np.asarray(value) if isinstance(value, (np.ndarray, int, float)) else None
        what = repr(value) if array is None else f"{array.dtype.name}{array.shape}"
        digest.update(what.encode())
        if array is not None:
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def named_values(what: str, calls: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the values of each call by name: "output_0", and with several calls "0/output_0"."""
    return {
        f"{call}/{what}_{index}" if len(calls) > 1 else f"{what}_{index}": value
        for call, found in enumerate(calls)
        for index, value in enumerate(found)
        if value is not None
    }


def inputs_to_save(calls: Sequence[Sequence[Any]]) -> dict[str, Any] | None:
    """Return the inputs of each call by name; None if a file cannot hold them, or they are
    large."""
    values = [value for inputs in calls for value in inputs]
    if not all(isinstance(value, (np.ndarray, int, float)) for value in values):
        return None
    if sum(np.asarray(value).nbytes for value in values) > _MOST_INPUTS:
        return None
    return named_values("input", calls)


@dataclass(frozen=True, slots=True)
class SavedCall:
    """A call of a saved run: executions of a method on the same inputs.

    runs: number of its executions in the dump; None if unknown. warmup: executions before these,
    not in the dump. inputs: None if unknown.
    """

    method: str
    runs: int | None
    warmup: int
    inputs: SavedInputs | None


def saved_calls(
    dump: PathLike | None, types: InputTypes = lambda method: ()
) -> tuple[SavedCall, ...]:
    """Return the calls in a dump, in order; () for a dump that `etscope run` did not write.

    types: the input types of the methods of a generation; see `etscope.formats.generation`.

    Raises `FormatError` for damaged files, `MissingFileError` if the file of inputs is missing.
    """
    path = _beside(dump)
    if path is None or dump is None:
        return ()
    saved = read_run_json(path)
    with reading(RUN_JSON, path):
        generated = generated_calls(saved, Path(dump).name)
        if generated is not None and saved.generation is not None:
            names = [generated.methods[index] for index in generated.method.tolist()]
            _, given = _read_inputs(saved, path)
            sets = inputs_of_calls(saved.generation, generated, given, types)
            return tuple(
                SavedCall(name, 1, 0, _of_generation(values))
                for name, values in zip(names, sets, strict=True)
            )
        calls = [call for call in saved.calls if call.find("method")]
        runs = _runs_of_calls(saved, path.with_name(Path(dump).name), calls)
        only_values = Path(dump).name == VALUES_ETDP
        warmups = [
            0 if only_values else call.optional("warmup", JsonValue.whole) or 0 for call in calls
        ]
        inputs = _inputs_of_calls(saved, path, calls)
    return tuple(
        SavedCall(call.get("method").text(), count, warmup, values)
        for call, count, warmup, values in zip(calls, runs, warmups, inputs, strict=True)
    )


def _runs_of_calls(saved: SavedRun, dump: Path, calls: Sequence[JsonValue]) -> Sequence[int | None]:
    """Return the number of runs of each call in the dump; None if unknown."""
    if saved.text("runner") == CORE:
        return [call.optional("iterations", JsonValue.whole) for call in calls]
    # values.etdp comes from a separate run without warm-up.
    found = {latency.traced for latency in saved.latencies}
    kind = "times" if "times" in found and dump.name != VALUES_ETDP else "values"
    counts = [len(one.samples_ns) for one in saved.latencies if one.traced == kind]
    return counts if len(counts) == len(calls) else [None] * len(calls)


def generated_calls(saved: SavedRun, dump: str) -> GenerationCalls | None:
    """Return a generation's calls in the dump of that name; None for another run."""
    if saved.generation is None:
        return None
    found = saved.generation.of_pass("values" if dump == VALUES_ETDP else "times")
    return None if found is None else found.calls


def saved_generation(dump: PathLike | None) -> tuple[Generation, GenerationCalls] | None:
    """Return the generation of a dump and its calls in the dump; None for another dump. Raises
    `FormatError` for a damaged run.json."""
    path = _beside(dump)
    if path is None or dump is None:
        return None
    saved = read_run_json(path)
    with reading(RUN_JSON, path):
        calls = generated_calls(saved, Path(dump).name)
        return None if saved.generation is None or calls is None else (saved.generation, calls)


def saved_executions(dump: PathLike | None) -> tuple[str, ...]:
    """Return the method of each execution in a dump of `etscope run`, in order; () if unknown.

    Raises `FormatError` for a damaged run.json.
    """
    path = _beside(dump)
    if path is None or dump is None:
        return ()
    saved = read_run_json(path)
    with reading(RUN_JSON, path):
        generated = generated_calls(saved, Path(dump).name)
        if generated is not None:
            return tuple(generated.methods[index] for index in generated.method.tolist())
        calls = [call for call in saved.calls if call.find("method")]
        methods = [call.get("method").text() for call in calls]
        runs = _runs_of_calls(saved, Path(dump), calls)
    return executions_of(
        [SavedCall(name, count, 0, None) for name, count in zip(methods, runs, strict=True)]
    )


def executions_of(calls: Iterable[SavedCall]) -> tuple[str, ...]:
    """Return the method of each execution in a dump of these calls, in order."""
    return tuple(call.method for call in calls for _ in range(call.runs or 0))


def _of_generation(values: tuple[Any, ...] | None) -> SavedInputs | None:
    if values is None:
        return None
    if any(isinstance(value, OutputOf) for value in values):
        return SavedInputs("generation", None, made_of=values)
    return SavedInputs("generation", values)


def _read_inputs(saved: SavedRun, path: Path) -> tuple[Sequence[str | None], Sequence[Any]]:
    """Return the names and the values in the file of inputs of a run.json; none without a file."""
    name = saved.text("inputs")
    if name is None:
        return (), ()
    from etscope.formats.torch_files.tensor_files import read_tensor_file

    file = read_tensor_file(path.with_name(Path(name).name))
    return file.names, file.values


def _inputs_of_calls(
    saved: SavedRun, path: Path, calls: Sequence[JsonValue]
) -> list[SavedInputs | None]:
    names, values_of_file = _read_inputs(saved, path)
    found: list[SavedInputs | None] = []
    for number, call in enumerate(calls):
        source = call.optional("inputs_from", JsonValue.label)
        prefix = f"{number}/input_" if len(calls) > 1 else "input_"
        values = None
        if saved.text("inputs") is not None:
            values = tuple(
                value
                for key, value in zip(names, values_of_file, strict=True)
                if key is not None and key.startswith(prefix)
            )
        sha256 = call.optional("inputs_sha256", JsonValue.label)
        found.append(None if source is None else SavedInputs(source, values, sha256))
    return found


def call_of_run(calls: Sequence[SavedCall], method: str, position: int) -> SavedCall | None:
    """Return the call of a method's run, given the run's position among the method's runs in the
    dump; None if unknown."""
    mine = [call for call in calls if call.method == method]
    if len(mine) == 1:
        return mine[0]
    for call in mine:
        if call.runs is None:
            return None
        if position < call.runs:
            return call
        position -= call.runs
    return None


def saved_methods(dump: PathLike | None) -> tuple[str, ...]:
    """Return the methods that ran in a dump of `etscope run`; () if unknown.

    Raises `FormatError` for a damaged run.json.
    """
    path = _beside(dump)
    if path is None:
        return ()
    saved = read_run_json(path)
    with reading(RUN_JSON, path):
        if saved.generation is not None and saved.generation.passes:
            return tuple(dict.fromkeys(m for p in saved.generation.passes for m in p.calls.methods))
        methods = (call.optional("method", JsonValue.text) for call in saved.calls)
        return tuple(dict.fromkeys(filter(None, methods)))


def facts_path(dump: PathLike) -> Path:
    """Return the path of the run.json of a dump: of a core "half.etdp", half.run.json."""
    path = Path(dump)
    is_saved = path.name in (RUN_ETDP, VALUES_ETDP)
    return path.with_name(RUN_JSON if is_saved else f"{path.stem}.{RUN_JSON}")


def _beside(dump: PathLike | None) -> Path | None:
    """Return the run.json of a dump of `etscope run`, or of a core; None for another dump."""
    path = None if dump is None else facts_path(dump)
    return None if path is None or not path.is_file() else path


def dump_with_values(dump: str) -> str:
    """Return the dump with the values of a run. For a run.etdp of `etscope run`, which has only
    times, it is the values.etdp in its folder. Return any other dump itself."""
    values = Path(dump).with_name(VALUES_ETDP)
    is_saved = Path(dump).name == RUN_ETDP and Path(dump).with_name(RUN_JSON).is_file()
    return str(values) if is_saved and values.is_file() else dump


def run_at(path: PathLike) -> SavedRun | None:
    """Return the saved run at a path to its folder, its run.json or its dump; None for another
    file. Raises `FormatError` for a damaged run.json."""
    found = Path(path)
    if found.is_dir() and (found / RUN_JSON).is_file():
        return read_run_json(found / RUN_JSON)
    return read_run_json(found) if found.name == RUN_JSON else saved_run(found)


def saved_run(dump: PathLike | None) -> SavedRun | None:
    """Return the saved run of a dump of `etscope run`; None for another dump.

    Raises `FormatError` for a damaged run.json.
    """
    path = _beside(dump)
    return None if path is None else read_run_json(path)


@dataclass(frozen=True, slots=True)
class MemoryPhase:
    """Memory of the process at the end of a phase of a run, bytes; None if the system does not
    report it.

    phase: "start", "program", "load", "inputs", "first execution" or "later executions". counted:
    the runtime's requests by owner: "program", "constants", "delegate_data", "named_data",
    "external_data", "method_allocator", "planned", "temporary_allocator". malloc_used, malloc_held:
    memory that malloc gave, and that it has from the system. mapped_anonymous: with untouched
    pages. peak_rss: the largest resident memory during the phase.
    """

    phase: str
    method: str | None
    counted: Mapping[str, int]
    malloc_used: int | None
    malloc_held: int | None
    rss: int | None
    rss_of_files: int | None
    rss_of_stacks: int | None
    rss_anonymous: int | None
    mapped_anonymous: int | None
    peak_rss: int | None

    @property
    def peak(self) -> int | None:
        """The peak, at least `rss`: the system counts the two separately."""
        return None if self.peak_rss is None else max(self.peak_rss, self.rss or 0)


@dataclass(frozen=True, slots=True)
class DelegateMemory:
    """The memory that making a delegate takes: bytes from malloc that belong to no other owner, and
    the largest resident memory.

    segment: the program's segment with the delegate's data. growth: bytes allocated minus bytes
    freed.
    """

    method: str
    segment: int
    backend: str | None
    growth: int | None
    peak_rss: int | None


@dataclass(frozen=True, slots=True)
class InstructionMemory:
    """Memory of an instruction's executions: bytes from malloc minus freed bytes, in the first
    execution and in later ones; the peak of the temporary allocator; and the largest resident
    memory in the first execution."""

    method: str
    chain: int
    instruction: int
    executions: int
    first_growth: int | None
    later_growth: int | None
    temporary: int
    peak_rss: int | None

    @property
    def took(self) -> bool:
        """True if the instruction took memory."""
        return any((self.first_growth, self.later_growth, self.temporary))


@dataclass(frozen=True, slots=True)
class MeasuredMemory:
    """Memory of a native runner's process, by owner. phases: in order, "start" first."""

    phases: tuple[MemoryPhase, ...]
    delegates: tuple[DelegateMemory, ...]
    instructions: tuple[InstructionMemory, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of run.json. Instructions without growth are left out, except the
        first one at its method's peak."""
        peaks = {method: self.peak_instruction(method) for method in self.methods}
        kept = [one for one in self.instructions if one.took or one is peaks[one.method]]
        return {
            "phases": [_json_of(phase) for phase in self.phases],
            "delegates": [_json_of(delegate) for delegate in self.delegates],
            "instructions": [_json_of(instruction) for instruction in kept],
        }

    @property
    def methods(self) -> tuple[str, ...]:
        """The executed methods, in order."""
        return tuple(dict.fromkeys(phase.method for phase in self.phases if phase.method))

    def peak_instruction(self, method: str) -> InstructionMemory | None:
        """Return the first instruction at the peak of a method's execution."""
        known = [
            one for one in self.instructions if one.method == method and one.peak_rss is not None
        ]
        return max(known, key=lambda one: one.peak_rss or 0, default=None)


_NAMES_OF_BYTES = ("first_growth", "later_growth", "temporary", "growth")


def _json_of(value: MemoryPhase | DelegateMemory | InstructionMemory) -> dict[str, Any]:
    names = ((field.name, getattr(value, field.name)) for field in fields(value))
    return {_json_name(name): dict(one) if name == "counted" else one for name, one in names}


def _json_name(name: str) -> str:
    is_bytes = name in _NAMES_OF_BYTES or name.startswith(("rss", "malloc", "mapped", "peak"))
    return f"{name}_bytes" if is_bytes or name == "counted" else name


def measured_memory(given: JsonValue) -> MeasuredMemory:
    """Return the "measured" of a run.json, or the "memory" of a native runner's result.

    Raises `FormatError` if it is damaged.
    """
    return MeasuredMemory(
        tuple(one.read_as(MemoryPhase, _json_name) for one in given.entries("phases")),
        tuple(one.read_as(DelegateMemory, _json_name) for one in given.entries("delegates")),
        tuple(one.read_as(InstructionMemory, _json_name) for one in given.entries("instructions")),
    )


@dataclass(frozen=True, slots=True)
class SavedMemory:
    """The resident memory of the process of a runner ("python", "native"), bytes.

    traced: see `SavedLatency`; recording takes memory, too. rss_before: before reading the program;
    None if unknown. measured: the memory by owner, measured in a separate run, if requested.
    """

    runner: str | None
    traced: str | None
    rss_before: int | None
    peak_rss: int
    measured: MeasuredMemory | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of run.json."""
        return {
            "runner": self.runner,
            "traced": self.traced,
            "rss_before_bytes": self.rss_before,
            "peak_rss_bytes": self.peak_rss,
            **({} if self.measured is None else {"measured": self.measured.to_json()}),
        }

    def in_words(self) -> str:
        """Return in words the process, and what its memory includes."""
        with_torch = ", Python and torch included" if self.runner == "python" else ""
        return f"the {self.runner or 'unknown'} runner's process{with_torch}"


@dataclass(frozen=True, slots=True)
class SavedLatency:
    """The times of one call.

    traced: what the run recorded ("times", "values"); None for nothing. samples_ns: int64
    [iterations], the executions after the warm-up. first_ns: the first execution, also a warm-up.
    """

    traced: str | None
    method: str | None
    load_ns: int | None
    first_ns: int | None
    samples_ns: npt.NDArray[np.int64]


@dataclass(frozen=True)
class SavedRun(Shown):
    """The content of a run.json. Values are checked on access: each property raises `FormatError`
    if its part of the file is damaged."""

    content: Mapping[str, Any] = field(default_factory=dict)
    path: str | None = None

    @property
    def top(self) -> JsonValue:
        """The content as a `JsonValue`, which checks what it reads."""
        return JsonValue(self.content)

    def text(self, key: str) -> str | None:
        """Return a text, or a number as text; None if it is missing or empty."""
        return self.top.optional(key, JsonValue.label)

    def count(self, key: str) -> int | None:
        """Return a whole number; None if it is missing."""
        return self.top.optional(key, JsonValue.whole)

    @property
    def recorded_at(self) -> datetime | None:
        """The time of the run in UTC, without a zone."""
        time = self.top.optional("recorded_at", JsonValue.time)
        return None if time is None else time.astimezone(timezone.utc).replace(tzinfo=None)

    @property
    def calls(self) -> list[JsonValue]:
        """The calls, each an object with "iterations" and "warmup"."""
        return self.top.entries("calls")

    @property
    def warmup(self) -> int | None:
        """The number of warm-up executions; None if the calls differ."""
        found = {call.optional("warmup", JsonValue.whole) for call in self.calls}
        return found.pop() if len(found) == 1 else None

    @property
    def latencies(self) -> list[SavedLatency]:
        """The times of each call and kind of run."""
        return [
            SavedLatency(
                traced=one.optional("traced", JsonValue.label),
                method=one.optional("method", JsonValue.label),
                load_ns=one.optional("load_ns", JsonValue.whole),
                first_ns=one.optional("first_ns", JsonValue.whole),
                samples_ns=one.integers("samples_ns"),
            )
            for one in self.top.entries("latencies")
        ]

    @property
    def untraced(self) -> list[SavedLatency]:
        """The times of calls in runs without tracing."""
        return [one for one in self.latencies if one.traced is None]

    @cached_property
    def generation(self) -> Generation | None:
        """The generation of a language model; None for another run."""
        return self.top.optional("generation", parse_generation)

    @property
    def conditions(self) -> Conditions | None:
        """The CPUs, governor and load of the machine at the start of the run; None if unknown."""
        from etscope.formats.conditions import Conditions

        return self.top.record("conditions", Conditions)

    @property
    def memory(self) -> SavedMemory | None:
        """The memory of the runner's process; None if unknown."""
        given = self.top.find("memory")
        peak = None if given is None else given.optional("peak_rss_bytes", JsonValue.whole)
        if given is None or peak is None:
            return None
        return SavedMemory(
            given.optional("runner", JsonValue.label),
            given.optional("traced", JsonValue.label),
            given.optional("rss_before_bytes", JsonValue.whole),
            peak,
            given.optional("measured", measured_memory),
        )

    @property
    def marks(self) -> tuple[str, ...]:
        """The conditions that the run could not hold or observe."""
        return self.top.texts("marks")
