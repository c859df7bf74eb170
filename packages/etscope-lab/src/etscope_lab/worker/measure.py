"""The process that measures a job: `python -m etscope_lab.worker.measure FOLDER`.

Files in the folder when it starts:

    order.json        the order (`etscope_lab.jobs.records.Order`) as JSON
    files/…           the job's files, named by `etscope_lab.jobs.records.input_path`

and files that it leaves there:

    answer.json       {state, summary, environment, marks, error, error_slug, interruption}: see
                      `Outcome`
    out/…             files of the job: run.etdp, values.etdp, debug.bin, inputs.npz, outputs.npz,
                      run.json, conditions.json, calibration.json (the peaks of the device, if they
                      are known); of an A/B job also ab.json, and baseline.run.etdp;
                      of generations for several prompts also prompt-1.run.json, …
    partial.json      {summary, environment, marks} so far, of a job that goes on: what is left of
                      it when it is stopped

Its log, with the messages of the runtime, goes to stderr. Its exit code is 0 whenever there is an
answer, whatever became of the job, and `os.EX_IOERR` when the answer cannot be written.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etscope import __version__
from etscope.errors import (
    DeviceLost,
    EtscopeError,
    FormatError,
    LabError,
    MissingDataError,
    MissingDependencyError,
    RuntimeFailure,
    UsageError,
)
from etscope.formats.calibration import (
    CALIBRATION_JSON,
    find_calibration,
    parse_calibration,
    write_calibration,
)
from etscope.formats.conditions import Conditions
from etscope.formats.run_json import (
    DEVICE_LOG,
    RUN_ETDP,
    RUN_JSON,
    SavedRun,
    conditions_to_json,
    encode_run_json,
)
from etscope.run import Elsewhere, GenerationRun, Run, run
from etscope.run.app import APP, AppHost
from etscope.run.job import INTERMEDIATE_OUTPUTS, NONE, Job
from etscope.run.process import LOG
from etscope.run.program import Opened, open_program
from etscope_lab.devices.driver import Driver, app_of, opened, runner_host
from etscope_lab.jobs.records import (
    DeviceConfig,
    Interruption,
    State,
    input_path,
    statistics_of,
)
from etscope_lab.jobs.spec import MOST_ITERATIONS, JobSpec, spec_of
from etscope_lab.worker.conditions import cool_down, judged, read_conditions
from etscope_lab.worker.energy import IDLE_SECONDS, Meter
from etscope_lab.worker.generations import (
    GenerationMeasurement,
    GenerationSides,
    check_gate,
    check_language_models,
    quality_of,
    save_whole,
)
from etscope_lab.worker.sampling import Course, Watched

if TYPE_CHECKING:
    from etscope_lab.comparison.ab import Round


ORDER, ANSWER, PARTIAL, OUT = "order.json", "answer.json", "partial.json", "out"
BASELINE = "baseline."  # begins the names of the baseline's files
METRIC = "sqnr"

_PATIENCE = 0.25  # of the job's time may be spent on waiting for a device to cool
_CONDITION_SECONDS = 5.0  # between two readings of the conditions in an A/B job
_DISTURBED = 0.10  # of the executions: more are a mark
_PILOT = 5  # executions, which show how many fill a duration
_MOST_CASES = 16  # test cases with numerics: each runs the model in PyTorch again
_MS = 1e6  # ns
_ROOM = 1 << 16  # bytes; a runner's log is shorter


class TimeUp(Exception):
    """The job's time is over."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of measuring. broken: limits that did not hold, in words; with one it is not a
    valid result."""

    summary: Mapping[str, Any]
    environment: Mapping[str, Any]
    marks: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def main(name: str) -> int:
    """Execute the order in the folder of that name, and write the answer."""
    folder = Path(name)
    answer = answer_to(folder)
    try:
        _write_whole(folder, ANSWER, json.dumps(answer))
    except OSError as error:
        say(f"the answer cannot be written: {error}")
        return os.EX_IOERR
    return 0


def _write_whole(folder: Path, name: str, text: str) -> None:
    """Write a file of a job's folder, which is whole if it is there: the job may be ended at any
    time."""
    part = folder / "writing.part"
    part.write_text(text)
    part.replace(folder / name)


def answer_to(folder: Path) -> dict[str, Any]:
    """Execute the order in a folder; return the answer as plain JSON. Never raises."""
    names: dict[str, str] = {}  # as the files at these paths were submitted
    done, state, message, slug = Measured({}, {}), State.DONE, "", ""
    interruption = None
    try:
        order = json.loads((folder / ORDER).read_bytes())
        spec = spec_of(order["spec"])
        config = DeviceConfig(**order["device"])
        files = {field: folder / input_path(field, ref.name) for field, ref in spec.files.items()}
        names = {str(path): spec.files[field].name or field for field, path in files.items()}
        out = folder / OUT
        out.mkdir(exist_ok=True)
        done = measured(spec, config, files, out)
        done = with_calibration(done, config, order.get("calibrations", ()), out)
        if done.broken:
            state, message = State.INVALID, "; ".join(done.broken)
    except Exception as error:
        done = partial_result(folder)
        state, slug = state_of(error), RuntimeFailure.slug
        if isinstance(error, EtscopeError):
            print(f"error: {error}", file=sys.stderr)
            message, slug = _sentence(error), error.slug
        elif isinstance(error, TimeUp):
            print(f"error: {error}", file=sys.stderr)
            message = str(error)
        else:
            traceback.print_exc()
            message = f"the lab failed: {type(error).__name__}: {error}"
            slug = LabError.slug
        if disk_is_full(error):
            state, slug, interruption = State.FAILED, LabError.slug, Interruption.LAB
            message = f"a disk is full: {message}"
        elif isinstance(error, RuntimeFailure) and error.killed:
            interruption = Interruption.KILLED
        for path, submitted in names.items():
            message = message.replace(path, submitted)
    return {
        "state": state.value,
        "summary": done.summary,
        "environment": done.environment,
        "marks": list(done.marks),
        "error": message,
        "error_slug": slug,
        "interruption": interruption,
    }


def with_calibration(
    done: Measured, config: DeviceConfig, known: Sequence[Mapping[str, Any]], out: Path
) -> Measured:
    """Keep the peaks of the device with a job's files: those from the lab (`known`), or those of
    this machine. If they cannot be read, a mark says why.
    """
    if not (out / RUN_JSON).is_file():
        return done
    facts = json.loads((out / RUN_JSON).read_bytes())
    run = SavedRun({**facts, "device": config.name, "environment": done.environment})
    try:
        given = [parse_calibration(one) for one in known]
        found = find_calibration(run, given)
    except EtscopeError as error:
        return replace(done, marks=(*done.marks, f"no calibration: {error.message}"))
    if found is not None:
        write_calibration(found, out / CALIBRATION_JSON)
    return done


def partial_result(folder: Path) -> Measured:
    """Return what a job had measured when it was ended; nothing if it kept nothing."""
    try:
        found = json.loads((folder / PARTIAL).read_bytes())
        marks = tuple(map(str, found["marks"]))
        return Measured(dict(found["summary"]), dict(found["environment"]), marks)
    except (OSError, ValueError, KeyError, TypeError):
        return Measured({}, {})


def state_of(error: Exception) -> State:
    """The state of a job that ended with an error."""
    if isinstance(error, DeviceLost):
        return State.DEVICE_LOST
    if isinstance(error, TimeUp):
        return State.TIMEOUT
    if isinstance(error, (RuntimeFailure, LabError, MissingDependencyError)):
        return State.FAILED
    return State.USER_ERROR if isinstance(error, EtscopeError) else State.FAILED


def disk_is_full(error: BaseException | None) -> bool:
    """True when an error, one that it was made of, or the log of a runner says that a disk is
    full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if isinstance(error, RuntimeFailure) and os.strerror(errno.ENOSPC) in error.log:
            return True
        error = error.__cause__ or error.__context__
    return False


def check_room(folder: Path) -> None:
    """Raise `OSError` if nothing can be written into a folder. A runner on a full disk cannot say
    in its log why it failed, which is on that disk."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(_ROOM))


def _sentence(error: EtscopeError) -> str:
    """An error on one line: where, what, the last line of the runtime's log, and the hint."""
    text = error.message
    if isinstance(error, FormatError) and error.path is not None:
        text = f"{error.path}: {text}"
    if isinstance(error, RuntimeFailure) and error.log.strip():
        text += f": {error.log.strip().splitlines()[-1].strip()}"
    return text if error.hint is None else f"{text} ({error.hint})"


def say(text: str) -> None:
    """Write a line into the job's log."""
    print(text, file=sys.stderr, flush=True)


def _say_fault(done: Round) -> None:
    if done.error:
        say(f"round {done.number}: {done.error}")


def measured(spec: JobSpec, config: DeviceConfig, files: Mapping[str, Path], out: Path) -> Measured:
    """Do a job on a device.

    files: by field of the specification. out: folder for the job's files.

    Raises the errors of `etscope.run.run`, `TimeUp`, `DeviceLost`, and `LabError` for an invalid
    configuration of the device.
    """
    end = time.monotonic() + spec.timeout_seconds
    say(f"device {config.name} ({config.driver})")
    with opened(config) as driver:
        return _Measurement(spec, config, files, out, driver, end).run()


@dataclass(eq=False)
class _WatchedHost:
    """A device's runner host that also watches the job's time, log and conditions.

    end: of the job's time, on the monotonic clock. pause: seconds between two readings of the
    conditions after a run; during a run there are more. ran: number of runs that ended.
    untraced_end: when the last run that recorded nothing ended, seconds since the epoch.
    """

    host: Elsewhere
    driver: Driver
    spec: JobSpec
    end: float
    out: Path
    readings: list[Conditions] = field(default_factory=list)
    pause: float = 0.0
    meter: Meter | None = None
    ran: int = 0
    untraced_end: float = 0.0

    def __post_init__(self) -> None:
        self._carrier = Watched(self.driver, self.look)
        self.host = replace(self.host, carrier=self._carrier)

    def missing(self, runner: str) -> str | None:
        return self.host.missing(runner)

    def execute(self, job: Job, folder: Path, runner: str, timeout: float | None) -> None:
        left = self.left()
        if left <= 0:
            raise self.time_up()
        count, unit = sum(call.executions for call in job.calls), "executions"
        if job.generation is not None:
            count, unit = job.generation.warmup + job.generation.runs, "generations"
        what = "values" if job.debug_level != NONE else "times" if job.trace else "nothing"
        by = "the app" if isinstance(self.host, AppHost) else f"the {runner} runner"
        say(f"run: {count} {unit} on {by}, recording {what}")
        try:
            self.host.execute(job, folder, runner, left)
        except EtscopeError as error:
            if self.left() <= 0:
                raise self.time_up() from error
            if isinstance(error, RuntimeFailure):
                check_room(folder)
            raise
        finally:
            log = folder / LOG
            if log.is_file() and (text := log.read_text("utf-8", "replace").strip()):
                say(text)
                if isinstance(self.host, AppHost) and self.host.app.prints_dump:
                    (self.out / DEVICE_LOG).write_text(text, encoding="utf-8")
        self.ran += 1
        if not job.trace:
            self.untraced_end = self._carrier.spans[-1][1]
        if not self.readings or time.time() - self.readings[-1].at >= self.pause:
            self.look()

    def look(self) -> None:
        self.readings.append(read_conditions(self.driver))
        if self.meter is not None:
            self.meter.look()

    def left(self) -> float:
        """Seconds of the job's time that are left."""
        return self.end - time.monotonic()

    def time_up(self) -> TimeUp:
        return TimeUp(f"the job did not end within {self.spec.timeout_seconds:g} s")


class _Measurement:
    """One job that is being measured."""

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
        app = app_of(config) if spec.runner in ("auto", APP) else None
        if app is None and spec.runner == APP:
            raise UsageError(f"the device {config.name} has no app")
        self._app = None if app is None else AppHost(driver, {}, app=app)
        self._traces = spec.traced_iterations and (app is None or app.leaves("dump"))
        host = self._app or runner_host(driver, self._attributes)
        meter = None
        if "energy" in spec.metrics:
            meter = Meter(config.name, driver, self._attributes)
        self._host = _WatchedHost(host, driver, spec, end, out, meter=meter)
        self._marks: list[str] = []
        self._samples: npt.NDArray[np.int64] | None = None  # of the untraced run of one model
        # Before the device rests: errors of opening are then known at once.
        self._opened = {"model": open_program(files["model"], files.get("etrecord"))}
        if "baseline" in files:
            self._opened["baseline"] = open_program(files["baseline"])
        model = self._opened["model"]
        if spec.generation is None:
            self._methods: tuple[str, ...] = (model.method_name(spec.method),)
        else:
            self._methods = check_language_models(spec, self._opened.values(), files)
        if spec.quality is not None:
            check_gate(model, files)
        if spec.kind == "accuracy":
            check_comparable(model)

    def run(self) -> Measured:
        spec, host = self._spec, self._host
        summary = self._about()
        left = max(host.left(), 0)
        rest = 0.0 if host.meter is None else IDLE_SECONDS
        seconds = min(max(spec.cool_down_seconds, rest), left)
        if seconds:
            say(f"the device rests for {seconds:g} s")
        patience = _PATIENCE * (left - seconds)
        if host.meter is None:
            host.readings.append(cool_down(self._driver, seconds, spec.limits, patience))
        else:
            with host.meter.resting():
                host.readings.append(cool_down(self._driver, seconds, spec.limits, patience))
        before = judged(host.readings, spec.limits.model_copy(update={"max_cv": None}), None)
        if before.broken:  # measuring would be in vain
            self._write("conditions.json", [asdict(one) for one in host.readings])
            return Measured(summary, self._environment({}), before.marks, before.broken)
        measure = self._measure_one
        if spec.generation is not None:
            is_ab = spec.kind == "ab"
            measure = self._measure_generations_ab if is_ab else self._measure_generations
        elif spec.kind == "ab":
            measure = self._measure_ab
        facts, found = measure()
        host.look()
        self._marks += () if self._app is None else self._app.marks
        self._write("conditions.json", self._course(facts, found))
        cv = found.get("latency", {}).get("cv")
        judgement = judged(host.readings, spec.limits, cv, facts.get("threads"))
        marks = (*judgement.marks, *self._marks)
        for word in (*judgement.broken, *marks):
            say(f"note: {word}")
        environment = self._environment(facts)
        return Measured({**summary, **found}, environment, marks, judgement.broken)

    def _course(self, facts: Mapping[str, Any], found: dict[str, Any]) -> list[dict[str, Any]]:
        """Judge how the run of one model went over its time, which adds to the marks and to
        `found`; return the readings as plain JSON."""
        readings = self._host.readings
        if self._samples is None:
            return [asdict(one) for one in readings]
        end = self._host.untraced_end
        course = Course.of(self._samples, end, readings, facts.get("threads"))
        if self._host.meter is not None:
            begin = end - float(self._samples.sum()) / 1e9
            energy = self._host.meter.energy((begin, end), len(self._samples))
            if len(energy) == 1:
                self._marks.append(f"no energy: {energy['reason']}")
            else:
                found["energy"] = energy
        share, reason = course.disturbed()
        if share > _DISTURBED:
            self._marks.append(f"{share:.0%} of the executions were disturbed: {reason}")
        if self._spec.duration_seconds is not None:
            found["sustained"] = course.sustained()
        return course.to_json(readings)

    def _about(self) -> dict[str, Any]:
        return {
            "method": "+".join(self._methods),
            "backend": backends_of(self._opened["model"], self._methods),
        }

    # -- one model

    def _measure_one(self) -> tuple[dict[str, Any], dict[str, Any]]:
        spec = self._spec
        numerics = spec.kind == "accuracy" or "numerics" in spec.metrics
        level: str = spec.debug_level
        if spec.kind == "accuracy" or (numerics and self._opened["model"].record is not None):
            level = INTERMEDIATE_OUTPUTS
        trace = bool(self._traces or level != NONE)
        with self._ran(
            "model",
            trace=trace,
            debug_level=level,
            iterations=self._iterations(),
            profiled_iterations=(spec.traced_iterations or 1) if trace else None,
        ) as done:
            if done.is_traced and done.opened.record is not None:
                done.trace.verify()  # a record of ExecuTorch's own tools holds no fingerprints
            found = self._numbers(done)
            if numerics:
                found |= self._numerics(done, found)
            done.save(self._out, programs=False)
            saved = json.loads((self._out / RUN_JSON).read_bytes())
            facts = {**saved, **self._facts(done)}
            (self._out / RUN_JSON).write_bytes(encode_run_json(facts))
            return facts, found

    def _iterations(self) -> int:
        """The number of executions; those of a duration by a pilot run, at its speed."""
        if self._spec.duration_seconds is None:
            return self._spec.iterations
        with self._ran("model", trace=False, iterations=_PILOT) as done:
            round_ns = sum(float(np.median(one.samples_ns)) for one in done.latencies)
        fit = int(self._spec.duration_seconds * 1e9 / max(round_ns, 1.0))
        if fit > MOST_ITERATIONS:
            self._marks.append(f"ended after {MOST_ITERATIONS:,} executions, the most of a job")
        return min(max(fit, 1), MOST_ITERATIONS)

    def _numbers(self, done: Run) -> dict[str, Any]:
        found: dict[str, Any] = {}
        untraced = [one for one in done.latencies if one.traced is None]
        traced = [one.samples_ns for one in done.latencies if one.traced == "times"]
        # Of all test cases; without times, nothing says when they were executed.
        samples = np.concatenate([one.samples_ns for one in untraced])
        if (samples > 0).all():
            self._samples = samples
        if "latency" in self._spec.metrics:
            first = untraced[0]
            found["latency"] = statistics_of(samples, first.load_ns, first.first_ns)
        if self._traces:
            median = float(np.median(np.concatenate(traced))) / _MS if traced else None
            found["traced_p50_ms"] = median
        memory = done.facts()["memory"] if "memory" in self._spec.metrics else None
        if memory is not None:
            found["memory"] = memory
        verification = verification_of(done)
        if verification is not None:
            found["verification"] = verification
        return found

    def _numerics(self, done: Run, found: Mapping[str, Any]) -> dict[str, Any]:
        """The numerics, if they can be computed. For an accuracy job that cannot compare anything
        it is an error when they cannot."""
        try:
            say("comparing with the reference")
            return {"numerics": numerics_of(done)}
        except MissingDataError as error:
            if self._spec.kind == "accuracy" and "verification" not in found:
                raise MissingDataError(
                    f"nothing could be compared: {error.message}", hint=error.hint
                ) from error
            self._marks.append(f"no numerics: {error.message}")
            return {}

    # -- generations

    def _measure_generations(self) -> tuple[dict[str, Any], dict[str, Any]]:
        def keep(rows: list[dict[str, Any]]) -> None:
            summary = {**self._about(), "generation": rows}
            environment = self._environment({})
            content = {"summary": summary, "environment": environment, "marks": self._marks}
            _write_whole(self._out.parent, PARTIAL, json.dumps(content))

        measurement = GenerationMeasurement(
            self._spec, self._opened["model"], self._files, self._out, self._host, self._facts, keep
        )
        with self._answers():
            done = measurement.run()
        self._marks += done.marks
        found: dict[str, Any] = {"generation": done.rows}
        if (gate := self._spec.quality) is not None:
            say("comparing the logits with the reference's")
            model, host = self._opened["model"], self._host
            with self._answers():
                found["quality"] = quality_of(
                    gate, self._spec, model, self._files, host, host.left()
                )
        if "latency" in self._spec.metrics and done.latency is not None:
            found["latency"] = done.latency
        if "memory" in self._spec.metrics and done.memory is not None:
            found["memory"] = done.memory
        return done.facts, found

    # -- two models

    def _measure_ab(self) -> tuple[dict[str, Any], dict[str, Any]]:
        from etscope_lab.comparison.ab import measure_ab

        self._host.pause = _CONDITION_SECONDS
        facts: dict[str, dict[str, Any]] = {}
        memory: dict[str, Any] | None = None

        def run_side(side: str, number: int) -> Sequence[int]:
            nonlocal memory
            say(f"round {number}: {side}")
            with self._ran(side, trace=False) as done:
                facts.setdefault(side, self._facts(done))
                if side == "model":
                    memory = memory or done.facts()["memory"]
                return [int(one) for latency in done.latencies for one in latency.samples_ns]

        result = measure_ab(self._spec, run_side, _say_fault)
        raw = result.raw()
        self._write("ab.json", raw)
        samples = [one for each in result.rounds for one in each.samples_ns.get("model", ())]
        first = facts["model"]["latencies"][0]
        found: dict[str, Any] = {"ab": result.summary()}
        if "latency" in self._spec.metrics:
            found["latency"] = statistics_of(samples, first["load_ns"], first["first_ns"])
        if memory is not None and "memory" in self._spec.metrics:
            found["memory"] = memory
        if self._traces:
            for side, prefix in (("model", ""), ("baseline", BASELINE)):
                with self._ran(
                    side, trace=True, separate=False, iterations=self._spec.traced_iterations
                ) as done:
                    done.save_etdump(self._out / f"{prefix}{RUN_ETDP}")
        for side, prefix in (("model", ""), ("baseline", BASELINE)):
            (self._out / f"{prefix}{RUN_JSON}").write_bytes(encode_run_json(facts[side]))
        return facts["model"], found

    def _measure_generations_ab(self) -> tuple[dict[str, Any], dict[str, Any]]:
        from etscope.analysis.statistics.compare_samples import Policy
        from etscope_lab.comparison.ab import family_summary, judge_family, measure_ab

        spec = self._spec
        self._host.pause = _CONDITION_SECONDS
        sides = GenerationSides(spec, self._opened, self._files, self._host)

        def run_side(side: str, number: int) -> Sequence[int]:
            say(f"round {number}: {side}")
            with self._answers():
                return sides.run(side, number)

        rounds = measure_ab(spec, run_side, _say_fault).rounds
        results = judge_family(sides.rounds(rounds), Policy(spec.min_effect, spec.confidence))
        summary = family_summary(results)
        raw = {name: one.raw()["runs"] for name, one in results.items()}
        main = results[summary["metric"]]
        self._write("ab.json", {**summary, "runs": main.raw()["runs"], "runs_by_metric": raw})
        found: dict[str, Any] = {"ab": summary}
        facts = {side: self._facts(done) for side, done in sides.first.items()}
        first_of = next(iter(results.values()))  # from token to token
        samples = [one for each in first_of.rounds for one in each.samples_ns.get("model", ())]
        if "latency" in spec.metrics:
            pace = sides.first["model"].pace
            first = pace.cold_first_token_ns or 0
            found["latency"] = statistics_of(samples, pace.load_ns, first)
        memory = facts["model"].get("memory")
        if "memory" in spec.metrics and memory is not None:
            found["memory"] = memory
        for side, prefix in (("model", ""), ("baseline", BASELINE)):
            if spec.traced_iterations:
                with self._answers(), sides.trace(side) as done:
                    kept = (RUN_ETDP, RUN_JSON)
                    name_of = prefix.__add__
                    save_whole(done, self._out, self._facts(done), name_of, kept)
            else:
                (self._out / f"{prefix}{RUN_JSON}").write_bytes(encode_run_json(facts[side]))
        return facts["model"], found

    # -- a run

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Raise `RuntimeFailure` for files that the device left damaged."""
        ran = self._host.ran
        try:
            yield
        except FormatError as error:
            if self._host.ran == ran:
                raise
            raise RuntimeFailure(f"the device's answer is damaged: {error.message}") from error

    @contextmanager
    def _ran(self, side: str, **more: Any) -> Iterator[Run]:
        """Run a side's program with the job's inputs; the run's files are removed at the end."""
        spec = self._spec
        options: dict[str, Any] = {
            "data": self._files.get("data"),
            "method": spec.method,
            "iterations": spec.iterations,
            "warmup": spec.warmup,
            "seed": spec.seed,
            "threads": spec.threads,
            "runner": spec.runner if self._app is None else "native",
            "place": self._host,
            **more,
        }
        with self._answers():
            done = run(self._opened[side], self._files.get("inputs"), **options)
        with done:
            yield done

    # -- files

    def _facts(self, done: Run | GenerationRun) -> dict[str, Any]:
        """Return the facts of a run, for run.json, with the submitted name of the program."""
        names = {self._opened[side]: self._spec.files[side].name for side in self._opened}
        return {
            **done.facts(),
            "program": names.get(done.opened) or self._spec.title,
            "conditions": conditions_to_json(self._host.readings[0]),
        }

    def _write(self, name: str, content: Any) -> None:
        text = json.dumps(content, indent=1) + "\n"
        _write_whole(self._out.parent, f"{self._out.name}/{name}", text)

    def _environment(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "device": dict(self._attributes),
            "etscope": __version__,
            "executorch": facts.get("executorch"),
            "runner": facts.get("runner"),
            "threads": facts.get("threads"),
            "program_sha256": facts.get("program_sha256"),
        }


def backends_of(opened: Opened, methods: Sequence[str]) -> str:
    """The backends of the methods' delegates: "XnnpackBackend", "A+B", or "portable" for none."""
    delegates = [one for name in methods for one in opened.program.method(name).delegates]
    names = {delegate.backend_id for delegate in delegates}
    return "+".join(sorted(names)) or "portable"


def check_comparable(opened: Opened) -> None:
    """Raise `MissingDataError` when there is nothing to compare a program's values with: no record,
    and no bundle with expected outputs."""
    suites = () if opened.bundle is None else opened.bundle.suites
    if opened.record is None and not any(
        case.expected_outputs for suite in suites for case in suite.cases
    ):
        raise MissingDataError(
            "there is nothing to compare this program's values with",
            hint="give an ETRecord, or a bundled program with expected outputs",
        )


def verification_of(done: Run) -> dict[str, int] | None:
    """Count the test cases of a bundle that passed and failed; None when it expects no outputs."""
    try:
        cases = [case for case in done.verify().cases if case.checks]
    except MissingDataError:
        return None
    passed = sum(case.passed for case in cases)
    return {"passed": passed, "failed": len(cases) - passed}


def numerics_of(done: Run) -> dict[str, Any]:
    """Compare the values that the run recorded with PyTorch's for the same inputs.

    Raises `MissingDataError` without a reference, or with nothing to compare.
    """
    if done.opened.record is None:
        raise MissingDataError("the job has no ETRecord, and so no reference")
    if len(done.calls) == 1:
        found = [done.numerics(METRIC)]
    else:
        inspector = done.inspector()  # a call's run in the dump has its number
        found = [
            inspector.diagnose_numerics(
                METRIC, method=call.method, run=number, inputs=list(call.inputs)
            )
            for number, call in enumerate(done.calls[:_MOST_CASES])
        ]
    compared = [row for one in found for row in one.rows if row.total is not None]
    if not compared:
        raise MissingDataError("no value of the run could be compared with the reference")
    metric = found[0].metric
    worst = max(compared, key=lambda row: metric.badness(row.total))
    return {
        "metric": METRIC,
        "worst": worst.total if worst.total is not None and np.isfinite(worst.total) else None,
        "worst_op": worst.op,
        "fine": all(one.is_fine for one in found),
        "compared": len(compared),
        "verdict": next((one.verdict for one in found if not one.is_fine), found[0].verdict),
        "cases": len(found),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
