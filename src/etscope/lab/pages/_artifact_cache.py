"""What is made of a job's files when somebody looks: reports, tables, graphs for TensorBoard.

Each is made once, by a child process (`etscope.lab.pages._artifact_builders`) with a time limit,
and kept in a folder under a key of the files' content. A page never waits for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from etscope._version import __version__
from etscope.errors import EtscopeError, LabError, MissingDataError
from etscope.formats.run_json import RUN_JSON
from etscope.lab.jobs.records import Job
from etscope.lab.pages._artifact_builders import INPUTS, MODEL, RECORD
from etscope.lab.store import Store
from etscope.lab.worker.subprocesses import End, Stop, run_child

_MAKE = "etscope.lab.pages._artifact_builders"
_FAILURE_LASTS = 60.0  # seconds until something that failed is tried again
_HALF_MADE = 4  # times as long as making may take: nobody works on such a thing any more
_SAID = 2000  # characters of what a child said that a page shows


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to make. kind: a name of `_make.MAKERS`. files: SHA-256 by the name that the child
    finds them under. options: plain values for the child."""

    kind: str
    files: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        parts = [__version__, self.kind, dict(self.files), dict(self.options)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Made:
    """The state of a piece: `folder` when it is there, `failure` when it cannot be made, neither
    while it is made."""

    folder: Path | None = None
    failure: str | None = None


class Workshop:
    """Makes pieces in the background, `workers` at a time; what was not looked at for longest goes
    when all are more than `most_bytes`."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        *,
        workers: int = 2,
        seconds: float = 300,
        most_bytes: int = 4 << 30,
    ) -> None:
        self._folder = folder
        self._store = store
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="workshop")
        self._at_work: dict[str, Future[None]] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._children: set[Stop] = set()
        self._closed = False

    def look(self, recipe: Recipe) -> Made | None:
        """The piece if it is there, or why it cannot be; None when nobody asked for it yet."""
        kept = self._folder / recipe.key
        if kept.is_dir():
            with contextlib.suppress(OSError):
                os.utime(kept)  # looked at now
            return Made(kept)
        with self._lock:
            return self._state(recipe.key)

    def ask(self, recipe: Recipe) -> Made:
        """The state of the piece; its making is begun unless it is there."""
        found = self.look(recipe)
        if found is not None:
            return found
        with self._lock:
            if recipe.key not in self._at_work and not self._closed:
                self._at_work[recipe.key] = self._pool.submit(self._make, recipe)
        return Made()

    def close(self) -> None:
        """End what is being made."""
        with self._lock:
            self._closed = True
            for child in self._children:
                child.want()
        self._pool.shutdown(cancel_futures=True)

    def _state(self, key: str) -> Made | None:
        at, reason = self._failed.get(key, (0.0, ""))
        if reason and time.monotonic() - at < _FAILURE_LASTS:
            return Made(failure=reason)
        return Made() if key in self._at_work else None

    def _make(self, recipe: Recipe) -> None:
        failure = "this is a bug in the lab"  # unless one of what follows says better
        try:
            self._run(recipe)
            failure = ""
        except EtscopeError as error:
            failure = str(error)
        except OSError as error:
            failure = f"the lab's folder for what it makes cannot be used: {error}"
        finally:
            self._note_end(recipe, failure)

    def _note_end(self, recipe: Recipe, failure: str) -> None:
        with self._lock:
            self._at_work.pop(recipe.key, None)
            self._failed.pop(recipe.key, None)
            if failure:
                self._failed[recipe.key] = (time.monotonic(), failure)

    def _run(self, recipe: Recipe) -> None:
        """Make a piece in a folder of its own, and move it to its place when it is whole."""
        self._folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="making-", dir=self._folder))
        try:
            (work / "in").mkdir()
            (work / "out").mkdir()
            for name, sha256 in recipe.files.items():
                place = work / "in" / name
                place.parent.mkdir(parents=True, exist_ok=True)
                self._store.fetch(sha256, place)
            order = {"kind": recipe.kind, "options": dict(recipe.options)}
            (work / "order.json").write_text(json.dumps(order), encoding="utf-8")
            self._child(work)
            with contextlib.suppress(FileExistsError, OSError):
                (work / "out").rename(self._folder / recipe.key)
            if not (self._folder / recipe.key).is_dir():
                raise LabError("what was made could not be kept")
        finally:
            shutil.rmtree(work, ignore_errors=True)
        self._sweep(recipe.key)

    def _child(self, work: Path) -> None:
        stop = Stop()
        with self._lock:
            if self._closed:
                raise LabError("the lab is being closed")
            self._children.add(stop)
        try:
            end = run_child(_MAKE, [str(work)], work, timeout=self._seconds, stop=stop)
        finally:
            with self._lock:
                self._children.discard(stop)
        if end.reason == "timeout":
            raise LabError(f"not ready within {self._seconds:g} s: given up")
        if end.reason:
            raise LabError("the lab is being closed")
        if end.code:
            raise LabError(_reason(work, end))

    def _sweep(self, fresh: str) -> None:
        """Remove what was not looked at for longest, until the rest is small enough; and what a
        server that was killed left half made."""
        found = []
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):  # another process may sweep as well
                half = path.name.startswith("making-")
                if half and time.time() - path.stat().st_mtime > _HALF_MADE * self._seconds:
                    shutil.rmtree(path, ignore_errors=True)
                    continue
                size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                found.append((path.stat().st_mtime, size, path))
        left = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if left <= self._most_bytes:
                break
            if path.name != fresh and not path.name.startswith("making-"):
                shutil.rmtree(path, ignore_errors=True)
                left -= size


def _reason(work: Path, end: End) -> str:
    """Why a child failed: its own words, or how it ended and the end of what it said."""
    if own := _text(work / "failure.txt"):
        return own[:_SAID]
    return f"the process that makes it {end}: {_text(work / 'log.txt')[-_SAID:]}".rstrip(": \n")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


# Which of a job's files go into what is made of them.


DUMP = "run.etdp"
VALUES = "values.etdp"
_MEASURED = (DUMP, VALUES, "debug.bin", RUN_JSON)
# Of the second side of an A/B job.
_BASELINE = "baseline."


def has_dump(job: Job) -> bool:
    return DUMP in job.artifacts or VALUES in job.artifacts


def operators(job: Job) -> Recipe:
    """The table of operators. Raises `MissingDataError` without a dump."""
    if not has_dump(job):
        raise MissingDataError("the job has no ETDump", hint="traced_iterations: 1 or more")
    wanted = {name: sha for name, sha in _files(job).items() if not name.startswith(INPUTS)}
    return Recipe("operators", wanted)


def report(job: Job) -> Recipe:
    """The one-file report; of a job that measured nothing, the model's graphs alone."""
    return Recipe("report", _files(job), {"title": job.spec.title, "method": job.spec.method})


def tensorboard(job: Job) -> Recipe:
    """The log directory for TensorBoard."""
    return Recipe("tensorboard", _files(job), {"method": job.spec.method})


def sides(job: Job) -> Recipe | None:
    """The operators of an A/B job's two sides, when both were traced."""
    other = f"{_BASELINE}{DUMP}"
    if DUMP not in job.artifacts or other not in job.artifacts or job.spec.baseline is None:
        return None
    files = _files(job)
    found: dict[str, Any] = {f"second/{name}": files[name] for name in (DUMP, MODEL)}
    found["first/" + DUMP] = job.artifacts[other].sha256
    found["first/" + MODEL] = job.spec.baseline.sha256
    policy = {"min_effect": job.spec.min_effect, "confidence": job.spec.confidence}
    return Recipe("differences", found, policy)


def _files(job: Job) -> Mapping[str, str]:
    spec = job.spec
    found = {name: job.artifacts[name].sha256 for name in _MEASURED if name in job.artifacts}
    for name, ref in ((MODEL, spec.model), (RECORD, spec.etrecord)):
        if ref is not None and ref.sha256 is not None:
            found[name] = ref.sha256
    inputs = spec.inputs
    if inputs is not None and inputs.sha256 is not None:
        suffix = PurePosixPath(inputs.name).suffix
        known = suffix if suffix in (".npz", ".npy", ".safetensors", ".pt") else ".npz"
        found[f"{INPUTS}{known}"] = inputs.sha256
    return found
