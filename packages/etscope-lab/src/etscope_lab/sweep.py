"""Sweeps: one file for many jobs, a cell for each combination of its lists.

A cell is an ordinary job. Its labels say which sweep and which combination it is, so the board
of a sweep is a view of the lab's jobs: it fills as jobs end, and needs nothing else. The job of a
program that cannot be made ends at once, with the error.
"""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from etscope.errors import EtscopeError, FormatError, UsageError, reading
from etscope.formats.bytes.files import atomic_write, make_folder
from etscope.model.table import Column, Kind, Table
from etscope_lab.jobs.records import Filter, Job, LabApi, short_commit
from etscope_lab.jobs.spec import LONGEST_FAILURE, JobSpec, faults_of, spec_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from etscope_lab.config import Home

SWEEP = "sweep"  # label of each cell, with the sweep's name
# Labels of a cell. revision: as the sweep names a commit; the label `commit` has its hash.
AXES = ("model", "revision", "backend", "quantize", "options", "threads")
_PROGRAMS = (".pte", ".bpte", ".etrecord")
COMMIT = "commit"  # label with the hash of the commit that was built
PROGRAM, _HASH = "program", 16  # label with the beginning of the program's hash
_FOLDER = Path(".etscope", "sweeps")  # of exported programs
_MOST_CELLS = 2000
_PAGE = 500
_DONE = "sweeps-done.json"  # in the lab's folder
_LOOK = 20.0  # seconds between two looks at the clock

_logger = logging.getLogger("etscope_lab")
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Sweep(BaseModel):
    """The keys of a sweep's file.

    models: programs (.pte, .bpte, .etrecord), or what `etscope export` takes, which is exported for
    each of backends, quantize and options. commits, build: the command that writes the models of a
    commit, as for `etscope lab bisect`. options: further options of the export, each with a name.
    job: other fields of each job. schedule: a cron line, UTC.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Name
    models: tuple[str, ...] = Field(min_length=1)
    backends: tuple[str, ...] = ("xnnpack",)
    quantize: tuple[str, ...] = ("float",)
    options: Mapping[str, Mapping[str, Any]] = {"": {}}
    commits: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("host",)
    threads: tuple[int, ...] = ()
    job: Mapping[str, Any] = {}
    schedule: str | None = None

    @field_validator("schedule")
    @classmethod
    def _is_cron(cls, value: str | None) -> str | None:
        if value is not None:
            from cronsim import CronSim, CronSimError

            try:
                CronSim(value, datetime.now(timezone.utc))
            except CronSimError as error:
                raise ValueError(f"{value!r} is not a cron line: {error}") from error
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> Sweep:
        if bool(self.commits) != bool(self.build):
            raise ValueError("commits and build go together")
        if self.commits and not all(map(_is_program, self.models)):
            raise ValueError("models of commits are the programs (.etrecord) that build writes")
        if len({(_short(one), _is_program(one)) for one in self.models}) < len(self.models):
            raise ValueError("two models have the same name: rename a file")
        return self


def read_sweep(path: str | Path) -> Sweep:
    """Read a sweep's file. Raises `MissingFileError`, and `FormatError` that names wrong keys."""
    with reading("sweep", path):
        try:
            return Sweep.model_validate(tomllib.loads(Path(path).read_text("utf-8")))
        except tomllib.TOMLDecodeError as error:
            raise FormatError(f"not TOML: {error}", path=path) from error
        except ValidationError as error:
            raise FormatError(faults_of(error, "sweep"), path=path) from error


def _is_program(model: str) -> bool:
    return model.endswith(_PROGRAMS)


@dataclass(frozen=True, slots=True)
class Cell:
    """A combination as a job. failure: why its program cannot be made, which is then also the
    content of its model."""

    spec: JobSpec
    failure: str = ""


def cells_of(sweep: Sweep, labels: Mapping[str, str]) -> Iterator[Cell]:
    """Make the programs of a sweep, paths relative to the current folder, and yield its cells.
    labels: further labels of each job.

    Raises `UsageError` for fields of `job` that are wrong, and too many cells.
    """
    variants = [*product(sweep.backends, sweep.quantize, sweep.options)]
    sources = [*product(sweep.models, sweep.commits or ("",))]
    places = [*product(sweep.devices, sweep.threads or (None,))]
    made = sum(1 if _is_program(model) else len(variants) for model, _ in sources)
    if made * len(places) > _MOST_CELLS:
        raise UsageError(f"{made * len(places):,} cells; a sweep has {_MOST_CELLS:,} at most")
    for source, commit in sources:
        of_source = [("", "", "")] if _is_program(source) else variants
        for backend, quantize, options in of_source:
            axes = {
                "model": _short(source), "revision": commit, "backend": backend,
                "quantize": quantize, "options": options,
            }  # fmt: skip
            failure = ""
            try:
                program, found = _program(sweep, source, axes)
            except EtscopeError as error:
                failure = " ".join(str(error).split())[:LONGEST_FAILURE]
                program, found = _kept(sweep, source, axes, failure), {}
            placed = {axis: text for axis, text in axes.items() if text}
            named = {**placed, **found, **labels}
            for device, threads in places:
                here = named if threads is None else {**named, "threads": str(threads)}
                yield Cell(_spec(sweep, program, here, device, threads), failure)


def _spec(
    sweep: Sweep, program: Path, labels: Mapping[str, str], device: str, threads: int | None
) -> JobSpec:
    """The job of a cell. Histories know its program by model and variant, the same for all
    commits."""
    parts = [labels[axis] for axis in ("model", "backend", "quantize", "options") if axis in labels]
    plain = {
        **sweep.job,
        "model": {"path": str(program), "name": f"{'-'.join(parts)}{program.suffix}"},
        "device": device,
        "labels": {**sweep.job.get("labels", {}), **labels, SWEEP: sweep.name},
    }
    return spec_of(plain if threads is None else {**plain, "threads": threads})


def _short(model: str) -> str:
    """A model's name for labels: "net" of "models/net.py:make" and "out/net.etrecord"."""
    target, _, attribute = model.rpartition(":")
    path = Path(target or model)
    stem = path.parent.name if path.stem == "model" and path.parent.name else path.stem
    return f"{stem}.{attribute}" if target and attribute not in ("make", "model", stem) else stem


def _program(sweep: Sweep, source: str, axes: Mapping[str, str]) -> tuple[Path, Mapping[str, str]]:
    """Return the program of a cell, after building or exporting it, and labels of its content."""
    if axes["revision"]:
        from etscope_lab.commits import Programs, commit_of

        programs = Programs("sweep", source, sweep.build)
        try:
            commit = commit_of(axes["revision"])
            content = programs.sha256(commit)[:_HASH]
            return programs.path(commit), {PROGRAM: content, COMMIT: commit}
        finally:
            programs.close()
    if _is_program(source):
        with reading("program", source):
            return Path(source), {PROGRAM: _hash(Path(source).read_bytes())}
    from etscope.export import load_model
    from etscope.support.quiet import quiet

    scheme = {"quantize": False if axes["quantize"] == "float" else axes["quantize"]}
    with quiet():
        exported = load_model(source).export(
            backend=axes["backend"], **scheme, **sweep.options[axes["options"]]
        )
    folder, name = _FOLDER / sweep.name / axes["model"], _variant(axes)
    record = exported.save(folder, name, bundle=False)[1]
    # Records of equal programs differ.
    return record, {PROGRAM: _hash(exported.program_bytes())}


def _variant(axes: Mapping[str, str]) -> str:
    """A name of the files of a cell's program."""
    return "-".join(filter(None, list(axes.values())[1:])).replace(",", "-").replace("/", "-")


def _kept(sweep: Sweep, source: str, axes: Mapping[str, str], failure: str) -> Path:
    """Write why there is no program to a file with the suffix of one, for the job's model."""
    suffix = Path(source).suffix if _is_program(source) else ".etrecord"
    path = _FOLDER / sweep.name / axes["model"] / f"{_variant(axes)}.failed{suffix}"
    make_folder(path.parent)
    path.write_text(failure, "utf-8")
    return path


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_HASH]


# -- the board


def jobs_of(lab: LabApi, name: str) -> list[Job]:
    """The newest job of each cell of a sweep, in the order of the axes."""
    newest: dict[tuple[str, ...], Job] = {}
    cursor: str | None = None
    while True:
        page = lab.jobs(Filter(labels={SWEEP: name}), limit=_PAGE, cursor=cursor)
        known = len(newest)
        for job in page.jobs:  # the newest first
            newest.setdefault((*axes_of(job), job.spec.device.name or job.device or ""), job)
        cursor = page.next
        if cursor is None or len(newest) == known:  # the rest are earlier runs
            return [newest[key] for key in sorted(newest)]


def work_of(spec: JobSpec) -> str:
    """A key of a cell's work, equal for another export of the same program."""
    return spec.model_dump_json(exclude={"model", "name", "priority"})


def axes_of(job: Job) -> tuple[str, ...]:
    """The values of a cell's axes, "" for those that its sweep does not have."""
    return tuple(job.spec.labels.get(axis, "") for axis in AXES)


def board(name: str, jobs: Sequence[Job]) -> Table:
    """Return a row for each cell of a sweep: its place on the axes, state and times."""
    latencies = [job.summary.get("latency") or {} for job in jobs]
    memories = [job.summary.get("memory") or {} for job in jobs]
    axes = [*zip(*map(axes_of, jobs), strict=True)] or [()] * len(AXES)
    columns: dict[Column, list[Any]] = {
        Column(axis): list(values) for axis, values in zip(AXES, axes, strict=True) if any(values)
    }
    columns |= {
        Column(COMMIT, priority=5): [short_commit(job.spec.labels.get(COMMIT, "")) for job in jobs],
        Column("device"): [job.device or job.spec.device.name for job in jobs],
        Column("state"): [str(job.state) for job in jobs],
        Column("p50", Kind.DURATION, "ms"): [one.get("p50_ms") for one in latencies],
        Column("p90", Kind.DURATION, "ms", priority=5): [one.get("p90_ms") for one in latencies],
        Column("memory", Kind.BYTES, priority=5): [one.get("peak_rss_bytes") for one in memories],
        Column("marks", Kind.COUNT, priority=5): [len(job.marks) for job in jobs],
        Column("job"): [job.id for job in jobs],
        Column("error", priority=6): [job.error for job in jobs],
    }
    ended = sum(job.state.is_final for job in jobs)
    notes = (f"{ended} of {len(jobs)} jobs have ended.",)
    return Table.of(columns, title=f"Sweep {name}", notes=notes)


# -- schedules


class Schedules(threading.Thread):
    """Submits the sweeps of lab.yaml at their times, from `start` to `close`.

    Each runs in a separate process, which exports in the folder of the sweep's file. The label
    `run` is the time that was due, so two servers of a lab submit the same jobs, which run once.
    A file of the lab's folder holds the last time of each sweep, so a server that comes back
    submits the last time that was missed.
    """

    def __init__(self, home: Home) -> None:
        super().__init__(name="etscope-lab-sweeps", daemon=True)
        self._home, self._ended = home, threading.Event()
        self._file = home.folder / _DONE
        self._done: dict[str, datetime] = {}  # by the sweep's name in lab.yaml
        with suppress(OSError, ValueError, AttributeError):  # else from now on
            kept = json.loads(self._file.read_bytes())
            self._done = {name: datetime.fromisoformat(at) for name, at in kept.items()}

    def close(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        while True:
            for name, due in self.due(datetime.now(timezone.utc)):
                self.submit(name, due)
                if not self._ended.is_set():
                    self.keep(name, due)
            if self._ended.wait(_LOOK):
                return

    def _path(self, name: str) -> Path:
        return self._home.folder / Path(name).expanduser()

    def keep(self, name: str, done: datetime) -> None:
        """Note that a sweep needs no submission for this time and earlier ones."""
        self._done[name] = done
        try:
            with atomic_write(self._file) as file:
                file.write(json.dumps({n: str(at) for n, at in self._done.items()}).encode())
        except EtscopeError as error:
            _logger.warning("a missed time of a sweep is not made up: %s", error)

    def due(self, until: datetime) -> list[tuple[str, datetime]]:
        """The sweeps, by name, that are due since they were last submitted, each at the last of its
        times. A sweep that is new is due from now on."""
        found = []
        for name in self._home.config.sweeps:
            path = self._path(name)
            if name not in self._done:
                self.keep(name, until)
            try:
                schedule = read_sweep(path).schedule
            except EtscopeError as error:
                _logger.warning("sweep %s is not submitted: %s", path, error)
                continue
            if schedule is None:
                continue
            from cronsim import CronSim

            last = next(CronSim(schedule, until, reverse=True), None)
            if last is not None and last > self._done[name]:
                found.append((name, last))
        return found

    def submit(self, name: str, due: datetime) -> None:
        """Submit a sweep with the label of its time; its output goes to this process's."""
        path = self._path(name)
        words = [sys.executable, "-m", "etscope", "lab", "--home", str(self._home.folder)]
        words += ["submit", path.name, "--async", "--label", f"run={due:%Y-%m-%dT%H:%MZ}"]
        try:
            process = subprocess.Popen(words, cwd=path.parent, stdin=subprocess.DEVNULL)
        except OSError as error:
            _logger.warning("sweep %s is not submitted: %s", path, error)
            return
        while process.poll() is None:
            if self._ended.wait(0.2):
                process.terminate()
        if process.returncode:
            _logger.warning("sweep %s ended with exit code %d", path, process.returncode)
