"""Trials: a setting exported and run, its numbers held against the float model in PyTorch, and its
time measured in rounds with the baseline, or with other settings."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etscope.analysis.metrics import Metric
from etscope.analysis.profile.trace import Trace
from etscope.errors import (
    EtscopeError,
    ExportFailure,
    MissingDataError,
    UsageError,
)
from etscope.formats.bytes.files import make_folder
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.run_json import RUN_ETDP, RUN_JSON
from etscope.run.execute import SharedOptions
from etscope.search.remedies._changes import Setting
from etscope.search.trial import (
    APPLY,
    FEWEST,
    LOWER,
    PROGRAMS,
    RUN,
    WARMUP,
    SearchState,
    Trial,
    is_long,
    output_error,
    timed_rounds,
)

if TYPE_CHECKING:
    from etscope.bridge.lowering.variants import FloatMethod
    from etscope.export import Exported, Source
    from etscope.run import Call, Latency, Run

BASELINE = "baseline"  # key of its trial
RUNS = "runs"  # folder of the runs that findings are of

_LOCATION = 25  # percentile: other work on the machine makes runs longer, never shorter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Runs(SharedOptions):
    """Options of the runs of a search.

    method: the method to time; None: forward, or decode, or the first method. isolate: start a
    separate process for each run of a round, as the runner "native" always does; otherwise runs are
    in this process, because starting Python takes longer than a round. rounds: the number of rounds
    of each comparison; the last comparison has twice as many. seed: the seed of torch's random
    numbers before the model is made, and of the order of rounds. The other options are as for
    `etscope.run.run`.
    """

    method: str | None = None
    isolate: bool = False
    rounds: int = 15
    seed: int = 0

    def check(self) -> None:
        """Raise `UsageError` for values that are not allowed."""
        if self.rounds < 2:
            raise UsageError("a comparison takes at least two rounds")


@dataclass(frozen=True, slots=True, eq=False)
class Laboratory:
    """Makes and measures programs of one model.

    floats: its methods in PyTorch. baseline: the setting that all are compared with.
    """

    source: Source
    floats: Mapping[str, FloatMethod]
    baseline: Setting
    runs: Runs
    metric: Metric
    state: SearchState[Trial]
    folder: Path

    @property
    def method(self) -> str:
        """The method that is timed. Raises `MissingDataError` if the model lacks it."""
        wanted = self.runs.method
        names = [wanted] if wanted is not None else ["forward", "decode", next(iter(self.floats))]
        for name in names:
            if name in self.floats:
                return name
        raise MissingDataError(
            f"the model has no method {wanted!r}", hint=f"methods are: {', '.join(self.floats)}"
        )

    def path(self, setting: Setting) -> Path:
        """The path of a setting's program, which does not depend on threads."""
        stem = hashlib.sha256(setting.of_export.encode()).hexdigest()[:16]
        backend = str(setting.export.get("backend", "")).replace(",", "-")
        return self.folder / PROGRAMS / f"{backend}-{stem}.pte"

    def exported(self, setting: Setting) -> Exported:
        """Export the model. Raises `UsageError` for a change that the model does not take, and
        `ExportFailure`."""
        from etscope.export import export
        from etscope.search.trial import read_samples

        options = dict(setting.export)
        files = options.pop("calibration", None)
        calibration = read_samples(self.source, files) if files and options["quantize"] else None
        return export(
            self.source.model,
            self.source.inputs,
            dynamic_shapes=self.source.dynamic_shapes,
            calibration=calibration,
            **options,
        )

    def tried(self, key: str, setting: Setting) -> Trial:
        """Export, run and time a setting, or return its saved result.

        Settings are timed in rounds against the baseline. The baseline itself (key `BASELINE`) is
        only exported and run.
        """
        return self.state.trial(key, lambda: self._attempt(key, setting))

    def _attempt(self, key: str, setting: Setting) -> Trial:
        trial = self.untimed(setting)
        if key == BASELINE or trial.failure is not None:
            return trial
        try:
            return replace(trial, rounds=self.rounds((self.baseline, setting), self.runs.seed))
        except EtscopeError as failure:
            return Trial(size=trial.size, failure=RUN, detail=failure.message)

    def untimed(self, setting: Setting) -> Trial:
        """Export a setting, unless its program is there, run it and compare its outputs."""
        path = self.path(setting)
        if not path.is_file():
            try:
                done = self.exported(setting)
            except EtscopeError as failure:
                kind = LOWER if isinstance(failure, ExportFailure) else APPLY
                return Trial(failure=kind, detail=failure.message)
            done.save(path.parent, path.stem, bundle=False)
        size = path.stat().st_size
        try:
            return Trial(self._error(setting), size)
        except EtscopeError as failure:
            return Trial(size=size, failure=RUN, detail=failure.message)

    def recorded(self, setting: Setting) -> Trace:
        """Run a setting's program with event tracing and return the trace. The run is saved in the
        search's folder and used again by later calls."""
        path = self.path(setting)
        folder = self.folder / RUNS / f"{path.stem}-{setting.threads or 0}"
        if not (folder / RUN_JSON).is_file():
            few = FEWEST if is_long(functools.partial(self.time, setting)) else None
            self.keep(setting, folder, few, programs=False)
        opened = read_etrecord(path.with_suffix(".etrecord"))
        return Trace(dump=read_etdump(folder / RUN_ETDP), record=opened)

    def keep(
        self, setting: Setting, folder: Path, iterations: int | None = None, *, programs: bool
    ) -> Latency:
        """Run a setting's program with event tracing, save the run in a folder, and return the
        times without tracing. programs: with copies of the program and its record."""
        from etscope.run import Call

        call = Call(self.method, self.inputs(setting, self.method), iterations)
        record = self.path(setting).with_suffix(".etrecord")
        with self._run(setting, call, etrecord=record, trace=True) as done:
            done.save(make_folder(folder), programs=programs)
            return done.latency

    def confirmed(self, key: str, setting: Setting) -> Trial:
        """Time a setting again in fresh rounds: twice as many, in another order."""

        def attempt() -> Trial:
            known, seed = self.state.trials[key], self.runs.seed + 1
            try:
                rounds = self.rounds((self.baseline, setting), seed, 2 * self.runs.rounds)
            except EtscopeError as failure:
                return Trial(size=known.size, failure=RUN, detail=failure.message)
            return Trial(known.error, known.size, rounds)

        return self.state.trial(f"again: {key}", attempt)

    def in_common(self, settings: Mapping[str, Setting], count: int | None = None) -> Trial:
        """Time settings together, in rounds that run all of them. The times are in the order of
        `settings`. count: of the rounds; by default that of the options.
        """

        def attempt() -> Trial:
            try:
                rounds = self.rounds(tuple(settings.values()), self.runs.seed, count)
            except EtscopeError as failure:
                return Trial(failure=RUN, detail=failure.message)
            return Trial(rounds=rounds)

        number = "" if count is None else f"{count} "
        return self.state.trial(f"in common {number}rounds: {' | '.join(settings)}", attempt)

    # -- numbers

    def inputs(self, setting: Setting, method: str) -> list[Any]:
        """The flat inputs of a method, in the types and layouts of the setting."""
        import torch

        values = []
        for value in self.floats[method].inputs:
            if isinstance(value, torch.Tensor):
                if "to_float32" in setting.passes and value.is_floating_point():
                    value = value.float()
                if "channels_last" in setting.passes and value.dim() == 4:
                    value = value.contiguous(memory_format=torch.channels_last)
            values.append(value)
        return values

    def _error(self, setting: Setting) -> float | None:
        """The metric of the worst output of all methods; each starts from the initial state, in a
        separate process."""
        from etscope.run import Call

        found: list[float | None] = []
        for name, method in self.floats.items():
            call = Call(name, self.inputs(setting, name), iterations=1, warmup=0)
            with self._run(setting, call) as done:
                pairs = zip(method.outputs, done.arrays[0], strict=True)
                found += [output_error(self.metric, *pair) for pair in pairs]
        return self.metric.worst(found)

    def _run(self, setting: Setting, call: Call, *, isolate: bool = True, **more: Any) -> Run:
        """Run a setting's program. more: further options of `run`, by default without a trace."""
        from etscope.run import run

        options = {"trace": False, **self.runs.shared, "isolate": isolate, **more}
        options["threads"] = setting.threads
        if not isolate:
            options["timeout"] = None
        return run(self.path(setting), [call], **options)

    # -- times

    def rounds(
        self, sides: Sequence[Setting], seed: int, count: int | None = None
    ) -> tuple[tuple[float, ...], ...]:
        """Time the programs of settings in rounds, see `timed_rounds`: [rounds, sides] ns.

        A run is one number, the lower quartile of its executions, as in A/B jobs of the lab.
        """
        programs = [functools.partial(self.time, side) for side in sides]
        found = timed_rounds(programs, self.runs.rounds if count is None else count, seed)
        return tuple(map(tuple, found.tolist()))

    def time(self, setting: Setting, iterations: int) -> float:
        """The lower quartile of the times of a program's executions, ns."""
        from etscope.run import Call

        warmup = WARMUP if iterations > 1 else 0
        call = Call(self.method, self.inputs(setting, self.method), iterations, warmup)
        isolate = self.runs.isolate or self.runs.runner == "native"
        with self._run(setting, call, isolate=isolate) as done:
            return float(np.percentile(done.latency.samples_ns, _LOCATION))
