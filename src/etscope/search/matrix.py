"""Measure a model on each backend, in each quantization and with each number of threads.

from etscope.search.matrix import matrix

found = matrix("model.py:make", backends=("portable", "xnnpack"), quantize=("float", "int8"))
print(found.choices[0].reason)

The result is a table with a row for each combination, and the choice of one. Results are kept in a
folder: an interrupted matrix of the same model goes on, and a later one measures new rows only.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from etscope.analysis.check.measure import measure
from etscope.analysis.metrics import find_metric
from etscope.analysis.statistics.compare_samples import Policy, Verdict, compare_rounds
from etscope.backends.registry.export_options import ExportOptions
from etscope.capture import open_capture
from etscope.errors import EtscopeError, EtscopeWarning, UsageError
from etscope.export import LanguageModel, Source
from etscope.formats.bytes.files import PathLike, make_folder
from etscope.formats.conditions import conditions_here
from etscope.formats.json_values import to_json
from etscope.formats.run_json import RUN_JSON
from etscope.model.statistics import signed_rank_shift
from etscope.model.table import Column, Kind, Table
from etscope.search.devices import DeviceJob, Devices, devices
from etscope.search.remedies import Laboratory, Runs, Setting
from etscope.search.trial import (
    FAILURES,
    PROGRAMS,
    RUN,
    SearchOptions,
    SearchState,
    Trial,
    check_tolerance,
    open_model,
    open_state,
    reaches,
    require_export,
    versions,
    write_arrays,
)
from etscope.support.options import takes_fields
from etscope.units import count, format_bytes, format_duration

__all__ = ["Cell", "Choice", "Matrix", "MatrixOptions", "matrix"]

SCHEMA = "etscope.matrix/1"
FLOAT = "float"
SCHEMES = (FLOAT, "int8", "8da4w", "8da8w")
OK, OTHER_NUMBERS, NO_NUMBERS, TOO_LARGE = "ok", "other numbers", "numbers unknown", "too large"

_FOLDER = Path(".etscope", "matrix")
_RUNS = "runs"
_CONFIDENCE = 0.95  # of the interval of a time
_APART = 1.1  # jobs of one program differ by less, from heat, clocks and places in memory
_SLOW = 3.0  # times the fastest: such a program is out of question, and takes no part in rounds
_MORE = 3  # times as many rounds for the programs that the first ones do not tell apart
_KEPT_NS, _FEWEST, _MOST = 1e9, 10, 100  # executions of a kept run: for a second
_MS = 1e6  # ns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatrixOptions:
    """Options of `matrix()`.

    backends: as `backend` of `etscope.export.export`; those that do not run on this machine get
        their sizes only. quantize: "float", "int8", "8da4w", "8da8w". threads: numbers of runtime
        threads; by default 1 and the number of processors, on devices of a lab 1. contexts: context
        lengths of a language model, in tokens.
    lab: devices of a lab to run on in place of this machine, each by its name or attributes. SQNR
        is still taken here.
    calibration: inputs that set int8 ranges, or files or folders of them; the example inputs by
        default.
    tolerance: the least SQNR in dB of the outputs against the float model in PyTorch, and fits: the
        most bytes of program and planned memory together, of a program to choose.
    rounds: how often the programs are timed in turn.
    method: the method to time; by default forward, or decode, or the first one.
    strict, seed: as for `export` and `load_model`.
    folder: keeps results, programs and runs; by default a folder of the model in .etscope/matrix.
    progress: called after each measurement, with its name and the trial.
    """

    backends: Sequence[str] = ("portable", "xnnpack")
    quantize: Sequence[str] = (FLOAT, "int8")
    threads: Sequence[int] = ()
    contexts: Sequence[int] = ()
    lab: Sequence[str] = ()
    calibration: Sequence[Any] = ()
    tolerance: float = 20.0  # an error of 10 % of the amplitude
    fits: int | None = None
    rounds: int = 15
    method: str | None = None
    strict: bool | None = None
    seed: int = 0
    folder: PathLike | None = None
    progress: Callable[[Any, Any], None] | None = None

    def check(self) -> None:
        """Raise `UsageError` for values that are not allowed."""
        for name in self.quantize:
            if name not in SCHEMES:
                raise UsageError(f"unknown scheme {name!r}", hint=f"schemes: {', '.join(SCHEMES)}")
        if not self.backends or not self.quantize:
            raise UsageError("a matrix needs a backend and a scheme")
        if min((*self.threads, *self.contexts), default=1) < 1:
            raise UsageError("threads and contexts must be at least 1")
        check_tolerance(self.tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A row: one combination.

    device: of a lab; None for this machine. threads: None if the program does not run here.
    result: "ok", "other numbers" (the SQNR is below the tolerance), "numbers unknown", "too large"
    (see `fits`), or one of `etscope.search.trial.FAILURES`; detail: the reason, or a warning of the
    export. time_ns, with the 95 % interval from low_ns to high_ns: the lower quartile of
    executions, over rounds; for
    programs that are far slower than the fastest, and on a lab's devices, over the executions of
    their own run. sqnr: in
    dB, of the worst output. size: bytes of the program. memory: planned bytes of all methods.
    delegated: the share of nodes in delegates. run: the folder of the kept run; program: the .pte.
    """

    backend: str
    quantize: str
    context: int | None
    threads: int | None
    result: str
    detail: str = ""
    time_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    sqnr: float | None = None
    size: int | None = None
    memory: int | None = None
    delegated: float | None = None
    run: str | None = None
    program: str | None = None
    device: str | None = None

    @property
    def words(self) -> str:
        """The combination in words: "xnnpack int8, 2 threads"."""
        found = f"{self.backend} {self.quantize}"
        if self.threads is not None:
            found += f", {self.threads} thread{'' if self.threads == 1 else 's'}"
        return found if self.device is None else f"{found}, {self.device}"

    @property
    def time_text(self) -> str:
        """The time with its interval: "0.41 ms (0.40 to 0.43)"."""
        times = (self.time_ns, self.low_ns, self.high_ns)
        texts = ["?" if one is None else format_duration(one / _MS, "ms") for one in times]
        return "{} ms ({} to {})".format(*texts)


@dataclass(frozen=True, slots=True)
class Choice:
    """The recommendation for a context length and device, or for a model without them.

    cell: the chosen row; None if there is none. ties: rows that may be as fast. reason: a sentence.
    commands: to export and to explain the chosen row.
    """

    context: int | None
    cell: Cell | None
    ties: tuple[Cell, ...]
    reason: str
    commands: tuple[str, ...] = ()
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Matrix:
    """The rows of a model, and a choice for each context length and device."""

    model: str
    folder: str
    method: str
    tolerance: float
    fits: int | None
    cells: tuple[Cell, ...]
    choices: tuple[Choice, ...]

    def table(self) -> Table:
        """Return a row for each combination; the choices and reasons are the notes."""
        chosen = [choice.cell for choice in self.choices]
        columns = [
            Column("backend"),
            Column("quantize"),
            Column("context", Kind.COUNT),
            Column("device"),
            Column("threads", Kind.COUNT),
            Column("result"),
            Column("time", Kind.DURATION, "ms"),
            Column("low", Kind.DURATION, "ms", priority=2),
            Column("high", Kind.DURATION, "ms", priority=2),
            Column("sqnr", Kind.FLOAT, "dB", title="SQNR"),
            Column("size", Kind.BYTES),
            Column("memory", Kind.BYTES, priority=1),
            Column("delegated", Kind.SHARE, priority=1),
            Column("run", Kind.PATH, priority=9),
            Column("detail", priority=9),
        ]
        rows = [to_json(cell) for cell in self.cells]
        for row, cell in zip(rows, self.cells, strict=True):
            row |= {
                "result": "chosen" if cell in chosen else cell.result,
                "sqnr": cell.sqnr,
                "detail": cell.detail or None,
            }
            for name in ("time", "low", "high"):
                row[name] = row[f"{name}_ns"] and row[f"{name}_ns"] / _MS
        for name in ("context", "device"):
            if all(getattr(cell, name) is None for cell in self.cells):
                columns = [column for column in columns if column.name != name]
        title = f"{self.model} · {self.method}"
        return Table.of_cells(columns, rows, title=title, notes=(*self._notes(),))

    def _notes(self) -> Iterator[str]:
        for choice in self.choices:
            yield choice.reason
            yield from choice.commands
        details = dict.fromkeys(cell.detail for cell in self.cells if cell.detail)
        for detail in details:
            yield "; ".join(one.words for one in self.cells if one.detail == detail) + f": {detail}"
        timed = "programs in turn, of each round the lower quartile"
        if any(cell.device for cell in self.cells):
            timed = "of each job's executions; A/B jobs compare those that are within 10%"
        yield (
            f"Times: {timed}; low and high are a 95% interval. SQNR: of the worst output, against "
            "the float model in PyTorch."
        )
        yield f"Each row's run is in {self.folder}: etscope explain RUN."

    def to_json(self) -> dict[str, Any]:
        """Return plain values; docs/reference/schemas/matrix.json describes them."""
        return {"schema": SCHEMA, **to_json(self)}

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield records of PyTorch's benchmark database, schema v3: one for each quantity of a row,
        and a FAILURE_REPORT for each row that was not exported or run.

        The form is as in ExecuTorch's `.github/scripts/extract_benchmark_results.py`.
        """
        runner = {"name": conditions_here().cpu or platform.machine(), "type": platform.system()}
        for cell in self.cells:
            extra = {"app_type": "etscope", "benchmark_config": json.dumps(to_json(cell))}
            values = {
                "inference_latency(ms)": None if cell.time_ns is None else cell.time_ns / _MS,
                "sqnr(dB)": cell.sqnr,
                "program_size(bytes)": cell.size,
                "planned_memory(bytes)": cell.memory,
                "delegated_share": cell.delegated,
            }
            if cell.run is None:
                extra["job_conclusion"], values = "FAILURE", {"FAILURE_REPORT": 0}
            about = {
                "benchmark": {"name": "ExecuTorch", "mode": "inference", "extra_info": extra},
                "model": {"name": self.model, "backend": f"{cell.backend}_{cell.quantize}"},
                "runners": [runner],
            }
            for name, value in values.items():
                if value is not None and math.isfinite(value):
                    metric = {"name": name, "benchmark_values": [value], "target_value": 0}
                    yield {**about, "metric": {**metric, "extra_info": {"method": self.method}}}


@takes_fields(MatrixOptions)
def matrix(
    model: Any,
    inputs: Any = None,
    *,
    options: MatrixOptions = MatrixOptions(),
    **changes: Any,
) -> Matrix:
    """Export, run and compare a model in each combination, and choose one.

    A combination that cannot be exported or run is a row with the reason. The programs that run are
    timed in rounds, one directly after the other in random order; on a device of a lab each has a
    job. The choice is the fastest that reaches the tolerance and fits; there is none where the
    times do not tell which is fastest.

    model, inputs: as for `etscope.export.export`; also a `Source`, or the name of one
        ("file.py:make", a .pt2 file).
    options, changes: fields of `MatrixOptions`, as `threads=(1, 4)`; changes go before `options`.

    Raises `UsageError` for invalid arguments, `MismatchError` for a folder of another model, and
    what `load_model` raises and the export of the float model.
    """
    options = replace(options, **changes)
    options.check()
    require_export(wanted_by="a matrix")
    source = open_model(model, inputs, seed=options.seed)
    parts = []
    for context in options.contexts or (None,):
        here = source.generating(context=context).as_exported()
        parts.append(_Part.of(here, options, context))
    found = [part.measured() for part in parts]
    return Matrix(
        source.spec or source.name,
        str(parts[0].laboratory.folder),
        parts[0].laboratory.method,
        options.tolerance,
        options.fits,
        tuple(cell for cells, _ in found for cell in cells),
        tuple(choice for _, choices in found for choice in choices),
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """The rows of one context length, or of a model without one."""

    laboratory: Laboratory
    options: MatrixOptions
    context: int | None
    devices: Devices | None = None

    @classmethod
    def of(cls, source: Source, options: MatrixOptions, context: int | None) -> _Part:
        """Export the model in float for PyTorch, and open its folder."""
        from etscope.bridge.lowering.variants import float_methods

        is_language = isinstance(source.model, LanguageModel)
        methods = source.model.methods() if is_language else source.model
        tracing = ExportOptions(dynamic_shapes=source.dynamic_shapes, strict=options.strict)
        floats = float_methods(methods, source.inputs, tracing)
        given = {
            "model": "-".join(one.fingerprint for one in floats.values()),
            "calibration": [str(one)[:200] for one in options.calibration],
            "method": options.method,
            "strict": options.strict,
            **versions(),
        }
        if options.folder is None:
            digest = hashlib.sha256(json.dumps(given).encode()).hexdigest()[:8]
            folder = make_folder(_FOLDER / f"{source.name}-{digest}")
            (_FOLDER / ".gitignore").write_text(
                "*\n", encoding="utf-8"
            )  # results are not source code
        else:
            folder = Path(options.folder, *(() if context is None else (f"context-{context}",)))
        make_folder(folder / PROGRAMS)
        search = SearchOptions(progress=options.progress)
        state: SearchState[Trial] = open_state(folder, given, Trial, search, "matrix")
        runs = Runs(method=options.method, rounds=options.rounds, seed=options.seed)
        sqnr = find_metric("sqnr")
        measuring = Laboratory(source, floats, Setting(), runs, sqnr, state, folder)
        return cls(measuring, options, context, devices() if options.lab else None)

    @cached_property
    def settings(self) -> dict[tuple[str, str], Setting]:
        """The setting of each backend and scheme; its threads are not yet set."""
        options = self.options
        return {
            (backend, scheme): Setting(
                {
                    "backend": backend,
                    "quantize": False if scheme == FLOAT else scheme,
                    "calibration": tuple(options.calibration),
                    "strict": options.strict,
                }
            )
            for backend in options.backends
            for scheme in options.quantize
        }

    def measured(self) -> tuple[list[Cell], list[Choice]]:
        """Measure the rows that the folder does not have yet; return all, and the choices."""
        cells = [cell for key in self.settings for cell in self._of_export(*key)]
        if self.devices is None:
            cells, choice = self._in_rounds(cells)
            return cells, [choice]
        cells = [cell if cell.device is None else self._of_run(cell) for cell in cells]
        return cells, [self._of_jobs(self.devices, cells, one) for one in self.options.lab]

    def _in_rounds(self, cells: Sequence[Cell]) -> tuple[list[Cell], Choice]:
        """Time the programs that may be the fastest in rounds. Return the rows with these times,
        and the choice."""
        ran = [cell for cell in cells if cell.run is not None]
        good = [cell for cell in ran if cell.result == OK]
        close = {cell.words for some in (ran, good) for cell in _close(some)}
        times = self._rounds([cell for cell in ran if cell.words in close])
        names = [cell.words for cell in good if cell.words in times]
        fastest, unsure = _fastest(names, times)
        if unsure:
            names = [*fastest, *unsure]
            times |= self._rounds([cell for cell in good if cell.words in names], _MORE)
            fastest, unsure = _fastest(names, times)
        timed = [_timed(cell, times.get(cell.words, ())) for cell in cells]
        named = {cell.words: cell for cell in timed}
        choice = self._choice(
            timed, [named[one] for one in fastest], [named[one] for one in unsure]
        )
        return timed, choice

    def _of_jobs(self, devices: Devices, cells: Sequence[Cell], device: str) -> Choice:
        """Choose from the jobs of a device. They share no rounds, so an A/B job compares programs
        with near times, if they ran with as many threads."""
        cells = [cell for cell in cells if cell.device == device and cell.run is not None]
        good = [cell for cell in cells if cell.result == OK]
        timed = [cell for cell in good if cell.low_ns is not None and cell.high_ns is not None]
        fastest: list[Cell] = []
        unsure = [cell for cell in good if cell not in timed]
        if timed:
            fastest = [best := min(timed, key=lambda cell: cell.time_ns or math.inf)]
            for cell in timed:
                if cell is best or (cell.low_ns or 0.0) > _APART * (best.high_ns or 0.0):
                    continue
                is_alike = cell.threads == best.threads
                verdict = self._verdict(devices, cell, best) if is_alike else None
                if verdict is Verdict.NO_DIFFERENCE:
                    fastest.append(cell)
                elif verdict is not Verdict.REGRESSED:
                    unsure.append(cell)
        return self._choice(cells, fastest, unsure, device)

    def _verdict(self, devices: Devices, cell: Cell, best: Cell) -> Verdict | None:
        """Compare two programs by an A/B job; None if it has no result."""

        def attempt() -> Trial:
            try:
                return Trial(detail=devices.compare(self._job(cell), self._job(best)).value)
            except EtscopeError as failure:
                return Trial(failure=RUN, detail=failure.message)

        trial = self.laboratory.state.trial(f"{cell.words} against {best.words}", attempt)
        return None if trial.failure is not None else Verdict(trial.detail)

    def _of_export(self, backend: str, scheme: str) -> Iterator[Cell]:
        """Yield a row for each device and number of threads, a lab's with its job begun; one for a
        program that does not run."""
        here = (1, os.cpu_count() or 1)
        threads = self.options.threads or (here if self.devices is None else (1,))
        setting = replace(self.settings[backend, scheme], threads=threads[0])
        path = self.laboratory.path(setting)
        trial = self._trial(f"{backend} {scheme}", path, lambda: self._exported(setting))
        cell = Cell(
            backend=backend,
            quantize=scheme,
            context=self.context,
            threads=None,
            result=FAILURES.get(trial.failure or "", OK),
            detail=trial.detail,
            sqnr=trial.error,
            size=trial.size,
        )
        if trial.size is not None:
            cell = self._of_program(cell, path)
        if trial.failure is None:
            cell = replace(cell, result=self._judged(cell))
        elif trial.failure == RUN and self.devices is not None:
            cell = replace(cell, result=NO_NUMBERS)  # of a backend that only devices have
        else:
            yield cell
            return
        for device, number in product(self.options.lab or (None,), dict.fromkeys(threads)):
            row = replace(cell, threads=number, device=device)
            if self.devices is None:
                row = self._of_run(row)
            elif row.words not in self.laboratory.state.trials:
                self.devices.start(self._job(row))
            yield row

    def _trial(self, name: str, file: Path, attempt: Callable[[], Trial]) -> Trial:
        """Return the known trial, or a new one if the file that it made is gone."""
        state = self.laboratory.state
        known = state.trials.get(name)
        if known is not None and (known.size or known.rounds) and not file.is_file():
            del state.trials[name]
        return state.trial(name, attempt)

    def _exported(self, setting: Setting) -> Trial:
        """Export, run and compare. What the export warns of is the detail."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", EtscopeWarning)
            trial = self.laboratory.untimed(setting)
        told = [str(one.message) for one in caught if issubclass(one.category, EtscopeWarning)]
        return replace(trial, detail=trial.detail or " ".join(told))

    def _of_program(self, cell: Cell, path: Path) -> Cell:
        """Return the row with the quantities of its program."""
        cell = replace(cell, program=str(path))
        try:
            amounts = measure(open_capture(path, path.with_suffix(".etrecord"))).amounts
        except EtscopeError as failure:
            return replace(cell, detail=cell.detail or failure.message)
        timed = (None, self.laboratory.method)
        found = {one.quantity: one.value for one in amounts if one.method in timed}
        memory = [one.value for one in amounts if one.quantity == "memory"]
        return replace(cell, memory=int(sum(memory)), delegated=found.get("delegated"))

    def _judged(self, cell: Cell) -> str:
        if cell.sqnr is None:
            return NO_NUMBERS
        if not reaches(self.laboratory.metric, cell.sqnr, self.options.tolerance):
            return OTHER_NUMBERS
        fits, taken = self.options.fits, (cell.size or 0) + (cell.memory or 0)
        return OK if fits is None or taken <= fits else TOO_LARGE

    def _of_run(self, cell: Cell) -> Cell:
        """Run a program with a number of threads, keep the run, and return the row."""
        setting = self._setting(cell)
        folder = self.laboratory.folder / _RUNS / f"{cell.backend}-{cell.quantize}-{cell.threads}"
        if cell.device is not None:
            folder = folder.with_name(f"{folder.name}-{cell.device}")
        folder = folder.with_name(re.sub(r"[^\w.-]", "-", folder.name))
        kept = partial(self._kept, setting)
        if self.devices is not None:
            kept = partial(self._job_of, self.devices, cell)
        trial = self._trial(cell.words, folder / RUN_JSON, lambda: kept(folder))
        if trial.failure is not None:
            return replace(cell, result=FAILURES[trial.failure], detail=trial.detail)
        return _timed(replace(cell, run=str(folder)), [one for (one,) in trial.rounds])

    def _setting(self, cell: Cell) -> Setting:
        return replace(self.settings[cell.backend, cell.quantize], threads=cell.threads)

    def _kept(self, setting: Setting, folder: Path) -> Trial:
        try:
            wanted = _KEPT_NS / max(self.laboratory.time(setting, 1), 1)
            iterations = int(min(max(wanted, _FEWEST), _MOST))
            latency = self.laboratory.keep(setting, folder, iterations, programs=True)
        except EtscopeError as failure:
            return Trial(failure=RUN, detail=failure.message)
        return Trial(rounds=tuple((float(one),) for one in latency.samples_ns))

    def _job_of(self, devices: Devices, cell: Cell, folder: Path) -> Trial:
        try:
            samples = devices.run(self._job(cell), folder)
        except EtscopeError as failure:
            return Trial(failure=RUN, detail=failure.message)
        return Trial(rounds=tuple((float(one),) for one in samples))

    def _job(self, cell: Cell) -> DeviceJob:
        from etscope.bridge.reference.reference import arrays_of

        setting = self._setting(cell)
        path, method = self.laboratory.path(setting), self.laboratory.method
        arrays = [arrays_of(one) for one in self.laboratory.inputs(setting, method)]
        return DeviceJob(
            name=f"{self.laboratory.source.name}-{cell.backend}-{cell.quantize}",
            device=cell.device or "",
            program=path,
            record=path.with_suffix(".etrecord"),
            method=method,
            inputs=write_arrays(path.parent, "inputs", arrays),
            threads=cell.threads or 1,
        )

    def _rounds(self, cells: Sequence[Cell], more: int = 1) -> dict[str, Sequence[float]]:
        """The times of programs in common rounds, ns, by the words of the row; empty if they could
        not be taken. more: so many times the rounds of the options."""
        if not cells:
            return {}
        settings = {cell.words: self._setting(cell) for cell in cells}
        trial = self.laboratory.in_common(settings, more * self.options.rounds)
        return dict(zip(settings, zip(*trial.rounds, strict=True), strict=False))

    # -- the choice

    def _choice(
        self,
        cells: Sequence[Cell],
        fastest: Sequence[Cell],
        unsure: Sequence[Cell],
        device: str | None = None,
    ) -> Choice:
        options, start = self.options, ""
        if self.context is not None:
            start = f"Context of {self.context:,} tokens. "
        if device is not None:
            start += f"Device {device}. "
        limits = f"an SQNR of {options.tolerance:g} dB"
        if options.fits is not None:
            limits += f" within {format_bytes(options.fits)}"
        good = [cell for cell in cells if cell.result == OK and cell.run is not None]
        if not good:
            reason = f"{start}Nothing is chosen: no program that ran has {limits}."
            return Choice(self.context, None, (), reason, device=device)
        if unsure or not fastest:
            alike = (*fastest, *unsure) or tuple(good)
            listed = " or ".join(f"{one.words} {one.time_text}" for one in alike)
            reason = f"{start}Cannot tell which is fastest: {listed}. Nothing is chosen."
            return Choice(self.context, None, alike, reason, device=device)
        chosen = min(fastest, key=_preference)
        ties = tuple(one for one in fastest if one is not chosen)
        reason = f"{start}Chosen: {chosen.words}: {chosen.time_text}, {chosen.sqnr:.1f} dB. "
        reason += f"It is the fastest of {count(len(good), 'program')} that ran with {limits}."
        if ties:
            names = ", ".join(one.words for one in ties)
            reason += (
                f" As fast, within 3%, but with worse numbers, more bytes or threads: {names}."
            )
        return Choice(self.context, chosen, ties, reason, self._commands(chosen), device)

    def _commands(self, cell: Cell) -> tuple[str, ...]:
        setting, source = self._setting(cell), self.laboratory.source
        words = [] if self.context is None else ["-X", f"context={self.context}"]
        explain = shlex.join(["etscope", "explain", cell.run or ""])
        return setting.command(source.spec or "MODEL", words), explain


def _close(cells: Sequence[Cell]) -> list[Cell]:
    """The rows that are not far slower than the fastest."""
    times = [cell.time_ns or math.inf for cell in cells]
    return [cell for cell, time in zip(cells, times, strict=True) if time <= _SLOW * min(times)]


def _timed(cell: Cell, samples: Sequence[float]) -> Cell:
    """Return the row with its time and the interval of it; itself without samples, ns."""
    if not len(samples):
        return cell
    ends = np.exp(signed_rank_shift(np.log(samples), 1 - _CONFIDENCE)).tolist()
    time, low, high = (one if math.isfinite(one) and one > 0 else None for one in ends)
    return replace(cell, time_ns=time, low_ns=low, high_ns=high)


def _fastest(
    names: Sequence[str], times: Mapping[str, Sequence[float]]
) -> tuple[list[str], list[str]]:
    """Return the rows that are the fastest, and those that may be.

    names: the words of rows; times: of common rounds. The confidence is corrected for the number of
    comparisons (Bonferroni).
    """
    if not names:
        return [], []
    best = min(names, key=lambda name: float(np.median(times[name])))
    policy = Policy(confidence=1 - (1 - Policy().confidence) / max(len(names) - 1, 1))
    verdicts = {
        name: compare_rounds(times[best], times[name], policy).verdict
        for name in names
        if name != best
    }
    same = [name for name, found in verdicts.items() if found is Verdict.NO_DIFFERENCE]
    known = (Verdict.NO_DIFFERENCE, Verdict.REGRESSED)
    return [best, *same], [name for name, found in verdicts.items() if found not in known]


def _preference(cell: Cell) -> tuple[float, int, int]:
    """The order of rows that are equally fast: numbers, then bytes, then threads. Beyond 60 dB, an
    error of 0.1 %, numbers count as the same."""
    return -min(cell.sqnr or 0.0, 60.0), (cell.size or 0) + (cell.memory or 0), cell.threads or 0
