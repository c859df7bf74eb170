"""Measures a job on its device: the runs, the conditions around them, and what they say."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etscope._version import __version__
from etscope.errors import EtscopeError
from etscope.lab.conditions import Conditions, cool_down, judged, read_conditions
from etscope.lab.devices import Driver, open_driver, place_of
from etscope.lab.measure import Measured, TimeUp
from etscope.lab.records import DeviceConfig
from etscope.lab.results import statistics_of
from etscope.lab.spec import JobSpec
from etscope.run import Elsewhere, Run, run
from etscope.run._job import INTERMEDIATE_OUTPUTS, NONE, Job
from etscope.run._process import LOG
from etscope.run._program import open_program

_BASELINE = "baseline."  # begins the names of the baseline's files
_PATIENCE = 0.25  # of the job's time is spent on waiting for a device to cool
_MODEL_FILE = {"model": "etrecord"}  # which record goes with which program


def say(text: str) -> None:
    """To the job's log."""
    print(text, file=sys.stderr, flush=True)


def measured(spec: JobSpec, config: DeviceConfig, files: Mapping[str, Path], out: Path) -> Measured:
    """Do a job on a device.

    files: by field of the specification. out: where the job's files go.

    Raises the errors of `etscope.run.run`, `TimeUp`, and `DeviceLost`.
    """
    end = time.monotonic() + spec.timeout_seconds
    say(f"device {config.name} ({config.driver})")
    driver = open_driver(config)
    try:
        return _Measuring(spec, driver, config, files, out, end).all()
    finally:
        driver.close()


@dataclass(eq=False)
class _Watched:
    """A device as a place to run, with an eye on the time, the log and the conditions."""

    place: Elsewhere
    driver: Driver
    spec: JobSpec
    end: float
    readings: list[Conditions] = field(default_factory=list)
    every_pass: bool = True

    def missing(self, runner: str) -> str | None:
        return self.place.missing(runner)

    def execute(self, job: Job, folder: Path, runner: str, timeout: float | None) -> None:
        left = self.end - time.monotonic()
        if left <= 0:
            raise self.time_up()
        executions = sum(call.executions for call in job.calls)
        what = "values" if job.debug_level != NONE else "times" if job.trace else "nothing"
        say(f"run: {executions} executions on the {runner} runner, recording {what}")
        try:
            self.place.execute(job, folder, runner, left)
        except EtscopeError as error:
            if time.monotonic() >= self.end:
                raise self.time_up() from error
            raise
        finally:
            _tell_log(folder)
        if self.every_pass:
            self.look()

    def look(self) -> Conditions:
        self.readings.append(read_conditions(self.driver))
        return self.readings[-1]

    def time_up(self) -> TimeUp:
        return TimeUp(f"the job did not end within {self.spec.timeout_seconds:g} s")


@dataclass(eq=False)
class _Measuring:
    """One job."""

    spec: JobSpec
    driver: Driver
    config: DeviceConfig
    files: Mapping[str, Path]
    out: Path
    end: float

    def all(self) -> Measured:
        spec = self.spec
        attributes = {**self.driver.attributes(), **self.config.attributes}
        # Before the device rests: what cannot run is known without it.
        opened = open_program(self.files["model"], self.files.get("etrecord"))
        place = _Watched(place_of(self.driver, attributes), self.driver, spec, self.end)
        left = max(self.end - time.monotonic(), 0)
        rest = min(spec.cool_down_seconds, left)
        if rest:
            say(f"rest of {rest:g} s")
        first = cool_down(self.driver, rest, spec.limits, _PATIENCE * (left - rest))
        place.readings.append(first)
        summary: dict[str, Any] = {"method": opened.method_name(spec.method)}
        summary["backend"] = backend_of(opened, summary["method"])
        hot = judged([first], spec.limits, 0.0).broken
        if hot:  # it will not get better by measuring
            self._write("conditions.json", [one.plain() for one in place.readings])
            return Measured(summary, self._environment(attributes, None), broken=hot)
        facts, found = self._ab(place) if spec.kind == "ab" else self._run(place)
        summary |= found
        place.look()
        self._write("conditions.json", [one.plain() for one in place.readings])
        cv = summary.get("latency", {}).get("cv")
        judgement = judged(place.readings, spec.limits, cv)
        environment = self._environment(attributes, facts)
        return Measured(summary, environment, judgement.marks, judgement.broken)

    # -- one model

    def _run(self, place: _Watched) -> tuple[dict[str, Any], dict[str, Any]]:
        spec = self.spec
        level: str = spec.debug_level
        if spec.kind == "accuracy" or ("numerics" in spec.metrics and level == NONE):
            level = INTERMEDIATE_OUTPUTS
        with self._runs("model", place, level) as done:
            return self._kept(done, ""), self._found(done, place)

    def _runs(self, side: str, place: _Watched, level: str, **more: Any) -> Run:
        spec = self.spec
        trace = bool(spec.traced_iterations or level != NONE)
        options: dict[str, Any] = {
            "etrecord": self.files.get("etrecord") if side == "model" else None,
            "data": self.files.get("data"),
            "method": spec.method,
            "iterations": spec.iterations,
            "warmup": spec.warmup,
            "seed": spec.seed,
            "trace": trace,
            "debug_level": level,
            "profiled_iterations": (spec.traced_iterations or 1) if trace else None,
            "threads": spec.threads,
            "runner": spec.runner,
            "place": place,
        }
        return run(self.files[side], self.files.get("inputs"), **{**options, **more})

    def _found(self, done: Run, place: _Watched) -> dict[str, Any]:
        """The summary of the runs."""
        spec = self.spec
        latency = done.latency
        found: dict[str, Any] = {
            "latency": statistics_of(latency.samples_ns.tolist(), latency.load_ns, latency.first_ns)
        }
        traced = [one for one in done.latencies if one.traced == "times"]
        if traced and spec.traced_iterations:
            found["traced_p50_ms"] = traced[0].p50_ns / 1e6
        return found

    # -- two models

    def _ab(self, place: _Watched) -> tuple[dict[str, Any], dict[str, Any]]:
        from etscope.lab.ab import measure_ab

        place.every_pass = False
        facts: dict[str, Any] = {}

        def run_side(side: str, number: int) -> Sequence[int]:
            say(f"round {number}: {side}")
            with self._runs(side, place, NONE, trace=False, profiled_iterations=None) as done:
                facts.setdefault(side, done.facts())
                return [int(one) for one in done.latency.samples_ns]

        result = measure_ab(self.spec, run_side)
        self._write("ab.json", result.raw())
        return facts["model"], {"ab": result.summary()}

    # -- to keep

    def _kept(self, done: Run, prefix: str) -> dict[str, Any]:
        """Keep the files of a run; its facts."""
        facts = done.facts()
        done.save(self.out)
        facts["program"] = self.spec.model.name or self.spec.title
        self._write(f"{prefix}run.json", facts)
        return facts

    def _write(self, name: str, content: Any) -> None:
        (self.out / name).write_text(json.dumps(content, indent=1) + "\n")

    def _environment(
        self, attributes: Mapping[str, str], facts: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        known = {} if facts is None else facts
        return {
            "device": dict(attributes),
            "etscope": __version__,
            "executorch": known.get("executorch"),
            "runner": known.get("runner"),
            "threads": known.get("threads"),
            "program_sha256": known.get("program_sha256"),
        }


def backend_of(opened: Any, method: str) -> str:
    """The backends of a method's delegates: "XnnpackBackend", "A+B", or "portable" for none."""
    names = {delegate.backend_id for delegate in opened.program.method(method).delegates}
    return "+".join(sorted(names)) or "portable"


def _tell_log(folder: Path) -> None:
    path = folder / LOG
    if path.is_file():
        text = path.read_text(errors="replace").strip()
        if text:
            say(text)
