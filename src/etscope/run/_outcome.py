"""The result of a run: outputs, latency, an ETDump and a debug buffer, to look at or to keep."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from etscope.analysis.comparison.verification import CaseCheck, Verification, compare_outputs
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.program import quantizes_dynamically
from etscope.errors import MissingDataError, UsageError
from etscope.formats.bytes.files import PathLike, atomic_write, copy_file, make_folder
from etscope.formats.conditions import Conditions
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.own_members import MethodTaps
from etscope.formats.run_json import (
    DEBUG_BIN,
    RUN_ETDP,
    RUN_JSON,
    VALUES_ETDP,
    MeasuredMemory,
    SavedCall,
    SavedInputs,
    SavedMemory,
    SavedRun,
    conditions_to_json,
    copied_by,
    encode_run_json,
    inputs_sha256,
    inputs_to_save,
    named_values,
)
from etscope.formats.torch_files.tensor_files import (
    NPZ,
    SAFETENSORS,
    suffix_for,
    write_tensor_file,
)
from etscope.model.statistics import statistic
from etscope.model.table import Column, Kind, Table
from etscope.run.execute import Executed, ExecutedJobs, Folder
from etscope.run.job import NONE, JobCall, Result
from etscope.run.program import Opened
from etscope.support.optional import available
from etscope.support.shown import Shown
from etscope.units import format_bytes

if TYPE_CHECKING:
    from etscope.analysis.numerics.rows import Numerics
    from etscope.inspector import Inspector

LATENCY, PROFILE, VALUES, MEMORY = "latency", "profile", "values", "memory"
TRACED = {LATENCY: None, PROFILE: "times", VALUES: "values"}
_MS = 1e6  # ns


@dataclass(frozen=True, slots=True, eq=False)
class Latency(Shown):
    """The times of one call, in ns, around the runtime's `execute`.

    method: the method's name. case: the index of the bundled test case, None without one.
    load_ns: reading the program and loading the method.
    first_ns: the first execution, warm-up included; it fills caches.
    samples_ns: [iterations], each execution after the warm-up.
    traced: None, or what was recorded at the same time: "times" or "values". Recording takes extra
        time, so only an untraced latency is the model's.
    """

    method: str
    case: int | None
    load_ns: int
    first_ns: int
    samples_ns: npt.NDArray[np.int64]
    traced: str | None = None

    @property
    def p50_ns(self) -> float:
        return statistic(self.samples_ns, "p50")


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome(Shown):
    """The result of separate runs, and their files. The files are in a temporary folder that is
    removed with this object, unless they are saved.

    opened: the program and the files given with it. passes: the runs by name, the untraced run
    first. recorded_at: when the first run started, in UTC. conditions: the conditions of this
    machine at that time; None if another machine ran them. measured: the memory of the process by
    owner, if requested.
    """

    opened: Opened = field(repr=False)
    passes: Mapping[str, Executed] = field(repr=False)
    folder: Folder = field(repr=False)
    recorded_at: datetime
    forced: bool = False
    conditions: Conditions | None = None
    measured: MeasuredMemory | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls: type[OutcomeT], executed: ExecutedJobs, opened: Opened, *, forced: bool, **own: Any
    ) -> OutcomeT:
        """Return the outcome of executed jobs. own: values for the fields of the subclass."""
        passes = dict(executed.passes)
        memory = passes.pop(MEMORY, None)
        return cls(
            opened=opened,
            passes=passes,
            folder=executed.folder,
            recorded_at=executed.recorded_at,
            forced=forced,
            conditions=executed.conditions,
            measured=None if memory is None else memory.result.memory,
            **own,
        )

    def close(self) -> None:
        """Remove the temporary files now."""
        self.folder.remove()

    def __enter__(self: OutcomeT) -> OutcomeT:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _first(self) -> Result:
        return next(iter(self.passes.values())).result

    @property
    def memory(self) -> SavedMemory | None:
        """The memory of the runner's process in the first of the runs; None when the system reports
        none, and for a run in this process, which holds much else."""
        result = self._first
        if result.peak_rss_bytes is None:
            return None
        traced = TRACED[next(iter(self.passes))]
        return SavedMemory(
            result.runner, traced, result.rss_before_bytes, result.peak_rss_bytes, self.measured
        )

    # -- traces

    @property
    def is_traced(self) -> bool:
        """True if there is an ETDump."""
        return any(done.etdump is not None for done in self.passes.values())

    @property
    def etdump_path(self) -> Path:
        """The ETDump: the one with values when there is one, else the one with times."""
        return self._dump(VALUES, PROFILE)

    @property
    def profile_path(self) -> Path:
        """The ETDump with the most accurate times: from the run that recorded only times, if there
        is one.
        """
        return self._dump(PROFILE, VALUES)

    def _dump(self, *names: str) -> Path:
        """Return the dump of the first of these passes that was made."""
        found = [self.passes[name].etdump for name in names if name in self.passes]
        if not found or found[0] is None:
            raise MissingDataError("nothing was traced in this run")
        return found[0]

    @property
    def debug_buffer_path(self) -> Path | None:
        """The debug buffer of `etdump_path`; None when no tensor was recorded."""
        return self.passes[VALUES].debug_buffer if VALUES in self.passes else None

    def _calls_in(self, dump: Path) -> tuple[SavedCall, ...]:
        """The calls in a dump of this run; () if a run.json next to it has them."""
        return ()

    @cached_property
    def trace(self) -> Trace:
        """The runs of `profile_path`, with the record and the program."""
        calls = self._calls_in(self.profile_path)
        return Trace(
            dump=read_etdump(self.profile_path),
            record=self.opened.record,
            program=self.opened.program,
            forced=self.forced,
            calls=calls,
            ran=SavedRun(self._about_machine) if calls else None,
        )

    def inspector(self, **options: Any) -> Inspector:
        """Open an `Inspector` of `etdump_path`, with the debug buffer, the record and the program.

        options: further arguments of `Inspector`; `etdump_path=run.profile_path` looks at the
        times of the run that recorded no values.
        """
        from etscope.inspector import Inspector

        path = Path(options.pop("etdump_path", self.etdump_path))
        known: dict[str, Any] = {
            "calls": self._calls_in(path),
            "debug_buffer_path": self.debug_buffer_path if path == self.etdump_path else None,
            "etrecord": self.opened.record,
            "verify": not self.forced,
        }
        if self.opened.bundle is not None:
            known["program"] = self.opened.bundle
        elif self.opened.record is None:
            known["program"] = self.opened.program
        return Inspector(path, **{**known, **options})

    # -- saving

    @property
    def _about_machine(self) -> dict[str, Any]:
        return {
            "runner": self._first.runner,
            "executorch": self._first.executorch,
            "threads": self._first.threads,
            "conditions": self.conditions and conditions_to_json(self.conditions),
        }

    def facts(self) -> dict[str, Any]:
        """Return the program, the calls, when they ran (ISO 8601) and for how long (ns): plain
        values for JSON."""
        values = self.passes.get(VALUES)
        return {
            **self.opened.files(),
            **self._about_machine,
            "memory": self.memory and self.memory.to_json(),
            "recorded_at": self.recorded_at.isoformat(timespec="milliseconds"),
            "debug_level": NONE if values is None else values.job.debug_level,
        }

    def _write(
        self, folder: PathLike, tensors: Mapping[str, Mapping[str, Any]], *, programs: bool
    ) -> list[Path]:
        """Write all files of a run into a folder; return their paths. tensors: by stem of the file
        ("outputs" and maybe "inputs") and name. programs: with copies of program and record."""
        target = make_folder(folder)
        before = copied_by(target)
        sources = {RUN_ETDP: None, VALUES_ETDP: None, DEBUG_BIN: self.debug_buffer_path}
        if self.is_traced:
            sources[RUN_ETDP] = self.profile_path
            if self.etdump_path != self.profile_path:
                sources[VALUES_ETDP] = self.etdump_path
        names = {stem: stem + suffix_for(named.values()) for stem, named in tensors.items()}
        with ExitStack() as files:
            for name, source in sources.items():
                if source is not None:
                    out = files.enter_context(atomic_write(target / name))
                    with source.open("rb") as data:
                        shutil.copyfileobj(data, out, 1 << 20)
            for stem, named in tensors.items():
                write_tensor_file(target / names[stem], list(named.values()), list(named))
            facts = {**self.facts(), "inputs": names.get("inputs")}
            facts |= self.opened.copy_into(target) if programs else {}
            files.enter_context(atomic_write(target / RUN_JSON)).write(encode_run_json(facts))
        written = [name for name, source in sources.items() if source is not None]
        written += [*names.values(), *facts.get("copied", ())]
        ends = NPZ, SAFETENSORS
        of_tensors = {f"{stem}{end}" for stem in ("inputs", "outputs") for end in ends}
        kept = {*written, facts["program"], facts["record"]}
        for name in {*sources, *of_tensors, *before} - kept:
            (target / name).unlink(missing_ok=True)
        return [target / name for name in (*written, RUN_JSON)]


OutcomeT = TypeVar("OutcomeT", bound=Outcome)


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(Outcome):
    """The result of a run. calls: the results of the calls, in order. passes: "latency" (untraced),
    "profile" (times) and "values".
    """

    calls: tuple[JobCall, ...] = field(repr=False)

    # -- outputs

    @cached_property
    def call_outputs(self) -> list[list[Any]]:
        """The outputs of each call's last execution, flat: torch tensors when torch is installed,
        else numpy arrays; numbers unchanged."""
        return [[_as_torch(value) for value in outputs] for outputs in self.arrays]

    @property
    def outputs(self) -> list[Any]:
        """The outputs of the only call; see `call_outputs`."""
        if len(self.calls) != 1:
            raise UsageError(
                f"this run made {len(self.calls)} calls",
                hint="call_outputs has each call's outputs",
            )
        return self.call_outputs[0]

    @property
    def arrays(self) -> list[tuple[Any, ...]]:
        """As `call_outputs`, with numpy arrays whatever is installed."""
        own = []
        for call, outputs in zip(self.calls, self._all_arrays, strict=True):
            taps = self._method_taps(call, outputs)
            own.append(outputs if taps is None else outputs[: taps.own_outputs])
        return own

    @cached_property
    def call_taps(self) -> list[dict[str, Any]]:
        """For each call, the values that were tapped when the model was exported, by name of the
        node ("conv2d"; "topk[1]" of a node with several values). They are not part of
        `call_outputs`. Without the record of the export they cannot be distinguished from outputs.
        """
        named = []
        for call, outputs in zip(self.calls, self._all_arrays, strict=True):
            found = self._method_taps(call, outputs)
            taps = () if found is None else found.taps
            named.append({tap.name: _as_torch(outputs[tap.output]) for tap in taps})
        return named

    @property
    def taps(self) -> dict[str, Any]:
        """The tapped values of the only call; see `call_taps`."""
        if len(self.calls) != 1:
            raise UsageError(
                f"this run made {len(self.calls)} calls", hint="call_taps has the taps of each call"
            )
        return self.call_taps[0]

    @property
    def _all_arrays(self) -> list[tuple[Any, ...]]:
        """The outputs of each call as the program returns them, taps included."""
        return [call.outputs for call in self._first.calls]

    def _method_taps(self, call: JobCall, outputs: Sequence[Any]) -> MethodTaps | None:
        """Return the taps among outputs, if the record has some, and is of this program."""
        record = self.opened.record
        found = None if record is None else record.taps.get(call.method)
        if found is None or any(tap.output >= len(outputs) for tap in found.taps):
            return None
        return found

    # -- times

    @property
    def latencies(self) -> list[Latency]:
        """The latency of each pass and call, the untraced ones first."""
        found = []
        for name, done in self.passes.items():
            for call, result in zip(self.calls, done.result.calls, strict=True):
                executions = np.concatenate([result.warmup_ns, result.samples_ns])
                found.append(
                    Latency(
                        method=call.method,
                        case=call.case,
                        load_ns=done.result.load_ns + result.load_ns,
                        first_ns=int(executions[0]),
                        samples_ns=result.samples_ns,
                        traced=TRACED[name],
                    )
                )
        return found

    @property
    def latency(self) -> Latency:
        """The latency of the first call; untraced, unless `separate=False` made no such run."""
        return self.latencies[0]

    def latency_table(self) -> Table:
        """Return a table with one row for each of `latencies`, in ms. Its title has the conditions
        that they were measured under."""
        latencies = self.latencies
        samples = [latency.samples_ns / _MS for latency in latencies]
        p50, p90 = ([statistic(one, name) for one in samples] for name in ("p50", "p90"))
        has_cases = any(latency.case is not None for latency in latencies)
        notes = []
        if any(latency.traced for latency in latencies):
            notes.append("Traced runs include the cost of tracing: compare untraced runs.")
        if self.memory is not None:
            before = self.memory.rss_before
            own = "" if before is None else f", {format_bytes(before)} before the program was read"
            peak = format_bytes(self.memory.peak_rss)
            notes.append(f"Peak memory of {self.memory.in_words()}: {peak}{own}.")
        threads = self._first.threads
        had = "" if self.conditions is None else self.conditions.in_words(threads)

        def milliseconds(name: str, priority: int = 0, title: str | None = None) -> Column:
            return Column(name, Kind.DURATION, "ms", title, priority)

        cases = {Column("case", Kind.INT, priority=5): [latency.case for latency in latencies]}
        return Table.of(
            {
                Column("run"): [
                    "untraced" if latency.traced is None else f"traced: {latency.traced}"
                    for latency in latencies
                ],
                Column("method", priority=4): [latency.method for latency in latencies],
                **(cases if has_cases else {}),
                Column("threads", Kind.COUNT, priority=2): [self._first.threads] * len(samples),
                Column("iterations", Kind.COUNT, priority=2): [len(one) for one in samples],
                milliseconds("load", 2): [latency.load_ns / _MS for latency in latencies],
                milliseconds("first", 1, "cold"): [one.first_ns / _MS for one in latencies],
                milliseconds("avg"): [float(one.mean()) for one in samples],
                milliseconds("p50"): p50,
                milliseconds("p90", 1): p90,
                milliseconds("min", 3): [float(one.min()) for one in samples],
                milliseconds("max", 3): [float(one.max()) for one in samples],
                milliseconds("std", 4): [
                    float(one.std()) if len(one) > 1 else None for one in samples
                ],
            },
            title=f"Latency · {had}" if had else "Latency",
            notes=tuple(notes),
        )

    def _calls_in(self, dump: Path) -> tuple[SavedCall, ...]:
        done = next((one for one in self.passes.values() if one.etdump == dump), None)
        return tuple(
            SavedCall(
                call.method,
                call.iterations,
                call.warmup,
                SavedInputs(call.inputs_from, call.inputs),
            )
            for call in (() if done is None else done.job.calls)
        )

    # -- values

    def numerics(self, metric: str = "sqnr", **options: Any) -> Numerics:
        """Find the operators with wrong numbers, on the inputs that ran: see
        `Inspector.diagnose_numerics`, which takes the options.

        Needs a record and debug_level="intermediate_outputs".
        """
        return self.inspector().diagnose_numerics(metric, **options)

    # -- expected outputs

    def verify(self, rtol: float | None = None, atol: float | None = None) -> Verification:
        """Compare the outputs of bundled test cases with the expected ones.

        An element passes when |output - expected| <= atol + rtol * |expected|; None takes the usual
        tolerances of the output's type (`etscope.analysis.comparison.verification.TOLERANCES`). For
        a method that quantizes dynamically, atol is then at least four steps of int8. Raises
        `MissingDataError` if no call ran a test case with expected outputs.
        """
        bundle = self.opened.bundle
        checks = []
        dynamic = {
            name: atol is None and quantizes_dynamically(self.opened.program, name)
            for name in dict.fromkeys(call.method for call in self.calls)
        }
        for call, outputs in zip(self.calls, self._all_arrays, strict=True):
            if bundle is None or call.case is None:
                continue
            expected = bundle.suite(call.method).cases[call.case].expected_outputs
            if expected:
                compared = compare_outputs(
                    expected, outputs, rtol=rtol, atol=atol, dynamic=dynamic[call.method]
                )
                checks.append(CaseCheck(call.method, call.case, tuple(compared)))
        if not checks:
            raise MissingDataError(
                "no test case with expected outputs was run",
                hint="run a bundled program (.bpte) with expected outputs in its test cases",
            )
        widened = tuple(name for name, is_dynamic in dynamic.items() if is_dynamic)
        return Verification(tuple(checks), rtol=rtol, atol=atol, dynamic=widened)

    # -- saving

    def save_etdump(self, path: PathLike) -> None:
        """Write the ETDump of `etdump_path` to a file."""
        copy_file(self.etdump_path, path)

    def save_debug_buffer(self, path: PathLike) -> None:
        """Write the debug buffer to a file; `MissingDataError` when there is none."""
        if self.debug_buffer_path is None:
            raise MissingDataError(
                "no tensor was recorded, so the run has no debug buffer",
                hint="debug_level='intermediate_outputs' (--debug-level) records them",
            )
        copy_file(self.debug_buffer_path, path)

    def save_outputs(self, path: PathLike) -> None:
        """Write the outputs to a .npz or .safetensors file: "output_0" and so on, and with
        several calls "0/output_0". Taps come after them: "output_3"."""
        named = named_values("output", self._all_arrays)
        write_tensor_file(path, list(named.values()), list(named))

    def save(self, folder: PathLike, *, programs: bool = True) -> list[Path]:
        """Write all files into a folder, which is made if needed; return their paths.

        run.etdp (times), and with a debug level values.etdp with debug.bin; inputs.npz and
        outputs.npz (or .safetensors for types that numpy's files cannot hold; no inputs of more
        than 256 MiB); run.json: what ran, and how long. With `programs` also copies of the program
        and its record, if they take no more than 64 MiB; else run.json has their paths. Files that
        another run left in the folder are removed.
        """
        tensors = {"outputs": named_values("output", self._all_arrays)}
        if (inputs := inputs_to_save([call.inputs for call in self.calls])) is not None:
            tensors["inputs"] = inputs
        return self._write(folder, tensors, programs=programs)

    def facts(self) -> dict[str, Any]:
        first = next(iter(self.passes.values()))
        return {
            **super().facts(),
            "calls": [
                {
                    "method": call.method,
                    "case": shown.case,
                    "iterations": call.iterations,
                    "warmup": call.warmup,
                    "inputs_from": call.inputs_from,
                    "inputs_sha256": inputs_sha256(call.inputs),
                }
                for shown, call in zip(self.calls, first.job.calls, strict=True)
            ],
            "latencies": [
                {**asdict(latency), "samples_ns": latency.samples_ns.tolist()}
                for latency in self.latencies
            ],
        }


def _as_torch(value: Any) -> Any:
    """Return an array as a torch tensor if torch is installed; anything else unchanged."""
    if available("torch") is None:
        return value
    from etscope.bridge.tensors import torch_value

    return torch_value(value)
