"""A cache of artifacts made from jobs' files: reports, tables, graphs for TensorBoard.

Each is made on first request, by a child process (`etscope_lab.pages._artifact_builders`) with a
time limit, and kept in a folder named by a hash of its input files. A page never waits for it.
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
from pathlib import Path
from typing import Any

from etscope import __version__
from etscope.errors import EtscopeError, LabError
from etscope_lab.store import Store
from etscope_lab.worker.subprocesses import Stop, run_child

_BUILDERS = "etscope_lab.pages._artifact_builders"
_AT_ONCE = 2  # artifacts that are made
_RETRY_SECONDS = 60.0  # after a failure
_ABANDONED = 4  # times the time limit: a folder of this age belongs to a server that was killed
_LOG_SHOWN = 2000  # characters of a child's output that a page shows


@dataclass(frozen=True, slots=True)
class Recipe:
    """The input of an artifact.

    kind: a key of `_artifact_builders.BUILDERS`. files: SHA-256 by the name that the child reads
    the file under. options: plain values for the child.
    """

    kind: str
    files: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        parts = [__version__, self.kind, dict(self.files), dict(self.options)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ArtifactState:
    """The state of an artifact: `folder` if it is there, `failure` if it cannot be made, neither
    while it is being made."""

    folder: Path | None = None
    failure: str | None = None


class ArtifactCache:
    """Makes artifacts in the background, `_AT_ONCE` at a time, and removes the least recently used
    ones when all have more than `most_bytes`."""

    def __init__(
        self, folder: Path, store: Store, *, seconds: float = 300, most_bytes: int = 4 << 30
    ) -> None:
        self._folder = folder
        self._store = store
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="artifacts")
        self._running: dict[str, Future[None]] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._children: set[Stop] = set()
        self._closed = False

    def lookup(self, recipe: Recipe) -> ArtifactState | None:
        """Return the state of an artifact; None if it was not requested yet."""
        kept = self._folder / recipe.key
        if kept.is_dir():
            with contextlib.suppress(OSError):
                os.utime(kept)  # used now
            return ArtifactState(kept)
        with self._lock:
            at, reason = self._failed.get(recipe.key, (0.0, ""))
            if reason and time.monotonic() - at < _RETRY_SECONDS:
                return ArtifactState(failure=reason)
            return ArtifactState() if recipe.key in self._running else None

    def request(self, recipe: Recipe) -> ArtifactState:
        """Return the state of an artifact, and start to make it unless it is there."""
        found = self.lookup(recipe)
        if found is not None:
            return found
        with self._lock:
            if recipe.key not in self._running and not self._closed:
                self._running[recipe.key] = self._pool.submit(self._make, recipe)
        return ArtifactState()

    def close(self) -> None:
        """Stop making artifacts."""
        with self._lock:
            self._closed = True
            for child in self._children:
                child.want()
        self._pool.shutdown(cancel_futures=True)

    def _make(self, recipe: Recipe) -> None:
        failure = "this is a bug in the lab"  # if another exception is raised
        try:
            self._build(recipe)
            failure = ""
        except EtscopeError as error:
            failure = str(error)
        except OSError as error:
            failure = f"the lab's cache folder cannot be used: {error}"
        finally:
            with self._lock:
                self._running.pop(recipe.key, None)
                self._failed.pop(recipe.key, None)
                if failure:
                    self._failed[recipe.key] = (time.monotonic(), failure)

    def _build(self, recipe: Recipe) -> None:
        """Make an artifact in a temporary folder, and move it to its place when it is complete."""
        self._folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="making-", dir=self._folder))
        try:
            (work / "in").mkdir()
            (work / "out").mkdir()
            for name, sha256 in recipe.files.items():
                path = work / "in" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                self._store.fetch(sha256, path)
            order = {"kind": recipe.kind, "options": dict(recipe.options)}
            (work / "order.json").write_text(json.dumps(order), encoding="utf-8")
            self._run_child(work)
            with contextlib.suppress(FileExistsError, OSError):
                (work / "out").rename(self._folder / recipe.key)
            if not (self._folder / recipe.key).is_dir():
                raise LabError("the result could not be stored")
        finally:
            shutil.rmtree(work, ignore_errors=True)
        self._sweep(recipe.key)

    def _run_child(self, work: Path) -> None:
        stop = Stop()
        with self._lock:
            if self._closed:
                raise LabError("the lab is being closed")
            self._children.add(stop)
        try:
            end = run_child(_BUILDERS, [str(work)], work, timeout=self._seconds, stop=stop)
        finally:
            with self._lock:
                self._children.discard(stop)
        if end.reason == "timeout":
            raise LabError(f"not ready within {self._seconds:g} s: given up")
        if end.reason:
            raise LabError("the lab is being closed")
        if end.code:
            reason = _text(work / "failure.txt")[:_LOG_SHOWN]
            if not reason:
                log = _text(work / "log.txt")[-_LOG_SHOWN:]
                reason = f"the process that makes it {end}: {log}".rstrip(": \n")
            raise LabError(reason)

    def _sweep(self, fresh: str) -> None:
        """Remove the least recently used artifacts until the rest is small enough, and incomplete
        ones that a killed server left."""
        found = []
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):  # another process may sweep as well
                is_partial = path.name.startswith("making-")
                age = time.time() - path.stat().st_mtime
                if is_partial and age > _ABANDONED * self._seconds:
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


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
