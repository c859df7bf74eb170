"""Measures a job on its device: the runs, the conditions around them, and what they say."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope._version import __version__
from etscope.errors import (
    EtscopeError,
    FormatError,
    LabError,
    MissingDataError,
    RuntimeFailure,
    UsageError,
)
from etscope.lab.devices import Driver, open_driver, place_of
from etscope.lab.jobs.records import DeviceConfig
from etscope.lab.jobs.results import statistics_of
from etscope.lab.jobs.spec import JobSpec
from etscope.lab.worker import findings as _findings
from etscope.lab.worker._measured import Measured, TimeUp
from etscope.lab.worker.conditions import Conditions, cool_down, judged, read_conditions
from etscope.run import Elsewhere, Run, run
from etscope.run.job import INTERMEDIATE_OUTPUTS, NONE, Job
from etscope.run.process import LOG
from etscope.run.program import open_program

if TYPE_CHECKING:
    from etscope.lab.comparison.ab import Round

BASELINE = "baseline."  # begins the names of the baseline's files
_ETDUMP = "run.etdp"
_PATIENCE = 0.25  # of the job's time is spent on waiting for a device to cool
_LOOK_SECONDS = 5.0  # between two readings of the conditions in an A/B job


def say(text: str) -> None:
    """To the job's log."""
    print(text, file=sys.stderr, flush=True)


def measured(spec: JobSpec, config: DeviceConfig, files: Mapping[str, Path], out: Path) -> Measured:
    """Do a job on a device.

    files: by field of the specification. out: where the job's files go.

    Raises the errors of `etscope.run.run`, `TimeUp`, `DeviceLost`, and `LabError` for a device
    whose configuration makes no sense.
    """
    end = time.monotonic() + spec.timeout_seconds
    say(f"device {config.name} ({config.driver})")
    try:
        driver = open_driver(config)
    except UsageError as error:  # not of who submitted the job
        raise LabError(
            f"the device {config.name} is not set up: {error.message}", hint=error.hint
        ) from error
    try:
        return _Measuring(spec, config, files, out, driver, end).all()
    finally:
        driver.close()


@dataclass(eq=False)
class _Watched:
    """A device as a place to run, with an eye on the time, the log and the conditions.

    pause: seconds that have to pass until the conditions are read again. ran: how many runs ended.
    """

    place: Elsewhere
    driver: Driver
    spec: JobSpec
    end: float
    readings: list[Conditions] = field(default_factory=list)
    pause: float = 0.0
    ran: int = 0

    def missing(self, runner: str) -> str | None:
        return self.place.missing(runner)

    def execute(self, job: Job, folder: Path, runner: str, timeout: float | None) -> None:
        left = self.left()
        if left <= 0:
            raise self.time_up()
        executions = sum(call.executions for call in job.calls)
        what = "values" if job.debug_level != NONE else "times" if job.trace else "nothing"
        say(f"run: {executions} executions on the {runner} runner, recording {what}")
        try:
            self.place.execute(job, folder, runner, left)
        except EtscopeError as error:
            if self.left() <= 0:
                raise self.time_up() from error
            raise
        finally:
            _tell_log(folder)
        self.ran += 1
        if not self.readings or time.time() - self.readings[-1].at >= self.pause:
            self.look()

    def look(self) -> None:
        self.readings.append(read_conditions(self.driver))

    def left(self) -> float:
        """Seconds of the job's time that are left."""
        return self.end - time.monotonic()

    def time_up(self) -> TimeUp:
        return TimeUp(f"the job did not end within {self.spec.timeout_seconds:g} s")


class _Measuring:
    """One job."""

    def __init__(
        self,
        spec: JobSpec,
        config: DeviceConfig,
        files: Mapping[str, Path],
        out: Path,
        driver: Driver,
        end: float,
    ) -> None:
        self._spec, self._files, self._out, self._driver = spec, files, out, driver
        self._attributes = {**driver.attributes(), **config.attributes}
        place = place_of(driver, self._attributes)
        self._place = _Watched(place, driver, spec, end)
        self._marks: list[str] = []
        # Before the device rests: what cannot be opened is known without it.
        self._opened = {"model": open_program(files["model"], files.get("etrecord"))}
        if "baseline" in files:
            self._opened["baseline"] = open_program(files["baseline"])
        self._method = self._opened["model"].method_name(spec.method)
        if spec.kind == "accuracy":
            _findings.check_comparable(self._opened["model"])

    def all(self) -> Measured:
        spec, place = self._spec, self._place
        summary: dict[str, Any] = {
            "method": self._method,
            "backend": _findings.backend_of(self._opened["model"], self._method),
        }
        self._rest()
        before = judged(place.readings, spec.limits.model_copy(update={"max_cv": None}), None)
        if before.broken:  # measuring will not mend it
            self._write("conditions.json", [one.plain() for one in place.readings])
            return Measured(summary, self._environment({}), before.marks, before.broken)
        facts, found = self._ab() if spec.kind == "ab" else self._run()
        place.look()
        self._write("conditions.json", [one.plain() for one in place.readings])
        judgement = judged(place.readings, spec.limits, found.get("latency", {}).get("cv"))
        marks = (*judgement.marks, *self._marks)
        for word in (*judgement.broken, *marks):
            say(f"note: {word}")
        environment = self._environment(facts)
        return Measured({**summary, **found}, environment, marks, judgement.broken)

    def _rest(self) -> None:
        """Let the device rest, and read the conditions before the first run."""
        left = max(self._place.left(), 0)
        seconds = min(self._spec.cool_down_seconds, left)
        if seconds:
            say(f"the device rests for {seconds:g} s")
        patience = _PATIENCE * (left - seconds)
        limits = self._spec.limits
        self._place.readings.append(cool_down(self._driver, seconds, limits, patience))

    # -- one model

    def _run(self) -> tuple[dict[str, Any], dict[str, Any]]:
        spec = self._spec
        numerics = spec.kind == "accuracy" or "numerics" in spec.metrics
        level: str = spec.debug_level
        if spec.kind == "accuracy" or (numerics and self._opened["model"].record is not None):
            level = INTERMEDIATE_OUTPUTS
        trace = bool(spec.traced_iterations or level != NONE)
        with self._ran(
            "model",
            trace=trace,
            debug_level=level,
            profiled_iterations=(spec.traced_iterations or 1) if trace else None,
        ) as done:
            if done.is_traced and done.opened.record is not None:
                done.trace.verify()  # a record of ExecuTorch's own tools holds no fingerprints
            found = self._found(done)
            if numerics:
                found |= self._compared(done, found)
            done.save(self._out)
            facts = self._facts(done)
            self._write("run.json", facts)
            return facts, found

    def _found(self, done: Run) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "latency" in self._spec.metrics:
            found["latency"] = _findings.latency_of(done)
        if self._spec.traced_iterations:
            found["traced_p50_ms"] = _findings.traced_p50_ms(done)
        memory = _findings.memory_of(done) if "memory" in self._spec.metrics else None
        if memory is not None:
            found["memory"] = memory
        verification = _findings.verification_of(done)
        if verification is not None:
            found["verification"] = verification
        return found

    def _compared(self, done: Run, found: Mapping[str, Any]) -> dict[str, Any]:
        """The numerics, as far as they can be had. An accuracy job without any comparison has
        nothing to say, which is an error."""
        try:
            say("comparing with the reference")
            return {"numerics": _findings.numerics_of(done)}
        except MissingDataError as error:
            if self._spec.kind == "accuracy" and "verification" not in found:
                raise MissingDataError(
                    f"nothing could be compared: {error.message}", hint=error.hint
                ) from error
            self._marks.append(f"no numerics: {error.message}")
            return {}

    # -- two models

    def _ab(self) -> tuple[dict[str, Any], dict[str, Any]]:
        from etscope.lab.comparison.ab import measure_ab

        self._place.pause = _LOOK_SECONDS
        facts: dict[str, dict[str, Any]] = {}
        memory: dict[str, Any] | None = None

        def run_side(side: str, number: int) -> Sequence[int]:
            nonlocal memory
            say(f"round {number}: {side}")
            with self._ran(side, trace=False) as done:
                facts.setdefault(side, self._facts(done))
                if side == "model":
                    memory = memory or _findings.memory_of(done)
                return [int(one) for latency in done.latencies for one in latency.samples_ns]

        def told(done: Round) -> None:
            if done.error:
                say(f"round {done.number}: {done.error}")

        result = measure_ab(self._spec, run_side, told)
        raw = result.raw()
        self._write("ab.json", raw)
        samples = [one for each in result.rounds for one in each.samples_ns.get("model", ())]
        first = facts["model"]["latencies"][0]
        found: dict[str, Any] = {"ab": result.summary()}
        if "latency" in self._spec.metrics:
            found["latency"] = statistics_of(samples, first["load_ns"], first["first_ns"])
        if memory is not None and "memory" in self._spec.metrics:
            found["memory"] = memory
        if self._spec.traced_iterations:
            for side, prefix in (("model", ""), ("baseline", BASELINE)):
                with self._ran(
                    side, trace=True, separate=False, iterations=self._spec.traced_iterations
                ) as done:
                    done.save_etdump(self._out / f"{prefix}{_ETDUMP}")
        for side, prefix in (("model", ""), ("baseline", BASELINE)):
            self._write(f"{prefix}run.json", facts[side])
        return facts["model"], found

    # -- a run

    @contextmanager
    def _ran(self, side: str, **more: Any) -> Iterator[Run]:
        """Run a side's program with the inputs of the job; the files of the run go at the end."""
        spec, ran = self._spec, self._place.ran
        options: dict[str, Any] = {
            "data": self._files.get("data"),
            "method": spec.method,
            "iterations": spec.iterations,
            "warmup": spec.warmup,
            "seed": spec.seed,
            "threads": spec.threads,
            "runner": spec.runner,
            "place": self._place,
            **more,
        }
        try:
            done = run(self._opened[side], self._files.get("inputs"), **options)
        except FormatError as error:
            if self._place.ran == ran:
                raise
            raise RuntimeFailure(f"the device's answer is damaged: {error.message}") from error
        with done:
            yield done

    # -- to keep

    def _facts(self, done: Run) -> dict[str, Any]:
        """What ran, for run.json. The program is called as it was submitted."""
        names = {self._opened[side]: self._spec.files[side].name for side in self._opened}
        return {**done.facts(), "program": names.get(done.opened) or self._spec.title}

    def _write(self, name: str, content: Any) -> None:
        (self._out / name).write_text(json.dumps(content, indent=1) + "\n")

    def _environment(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "device": dict(self._attributes),
            "etscope": __version__,
            "executorch": facts.get("executorch"),
            "runner": facts.get("runner"),
            "threads": facts.get("threads"),
            "program_sha256": facts.get("program_sha256"),
        }


def _tell_log(folder: Path) -> None:
    """What the runtime said, into the job's log."""
    path = folder / LOG
    if path.is_file():
        text = path.read_text(errors="replace").strip()
        if text:
            say(text)
