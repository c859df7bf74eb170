"""One attempt at a job, executed by the Dask worker of its device.

The job runs in a child process (`etscope_lab.worker.measure`). The worker fetches and stores its
files, watches its time, and decides on one of the final states.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from etscope.errors import EtscopeError, LabError, MissingDataError
from etscope_lab.devices.peaks import CalibrationOrder, DeviceCalibration
from etscope_lab.jobs.records import (
    DeviceConfig,
    Interruption,
    Order,
    Outcome,
    State,
    input_path,
)
from etscope_lab.jobs.spec import spec_of
from etscope_lab.store import Store
from etscope_lab.worker.subprocesses import GRACE, End, Stop, run_child

MEASURE = "etscope_lab.worker.measure"
PROBE = "etscope_lab.worker.conditions"
CALIBRATE = "etscope_lab.devices.calibration"

PARTIAL = "partial.json"  # of `etscope_lab.worker.measure`

_LIVE_LIMIT = 1 << 20  # characters of a log that are sent while the job runs
_ANSWER_LIMIT = 64 << 20  # bytes
_CALIBRATION_SECONDS = 900.0
_PREFIX = "etscope-job-"
_JUST_MADE = 60  # seconds that a new folder may exist without its lock
_MEDIA = {".json": "application/json", ".txt": "text/plain; charset=utf-8"}
_lock = threading.Lock()
_stops: dict[str, Stop] = {}  # by token
_STOPS_KEPT = 1000
_lost: set[str] = set()  # names of devices that went away during a job of this process

Tell = Callable[[Mapping[str, Any]], None]
"""Sends the engine a message while the job runs: `{"kind": "started" | "log", "token": …, …}`."""


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """A device as its driver found it. error: "" when it is reachable."""

    attributes: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


class AlreadyBegun(Exception):
    """An attempt is executed again. The scheduler does that when a worker was killed; the engine
    has to know, since it counts the attempts at a job."""


def work(order: Order, tell: Tell | str = lambda message: None) -> Outcome:
    """Execute an order. Faults of the job, the device or the store are in the outcome, never
    raised.

    tell: a function for messages, or the Dask topic to send them to. Orders for a lost device are
    answered `device_lost` with `busy_seconds` 0, until `check` finds it again. Raises
    `AlreadyBegun`, and does nothing, for an order that a worker has begun before.
    """
    if isinstance(tell, str):
        from distributed import get_worker

        send: Tell = partial(get_worker().log_event, tell)
    else:
        send = tell
    begun = time.monotonic()
    if order.device.name in _lost:
        return Outcome(order.job_id, order.token, State.DEVICE_LOST, error="not started")
    with _stoppable(order.token) as stop:
        if stop.wanted:
            return Outcome(order.job_id, order.token, State.CANCELLED)
        try:
            if not Store(order.store).begin(order.token):
                raise AlreadyBegun
            by = f"{socket.gethostname()}:{os.getpid()}"
            send({"kind": "started", "token": order.token, "by": by})
            with _job_folder() as folder, _device_alone(order.store, order.device, stop) as lock:
                outcome = _attempt(order, folder, stop, send, lock)
        except (EtscopeError, OSError) as error:  # of the store or the disk
            known = error if isinstance(error, EtscopeError) else None
            what = known.message if known else getattr(error, "strerror", None) or str(error)
            file = getattr(error, "filename", None) or "temporary folder"
            outcome = Outcome(
                order.job_id,
                order.token,
                State.FAILED,
                error=f"the lab could not do this job: {what}" + ("" if known else f" ({file})"),
                error_slug=LabError.slug,
                # A file that is missing or damaged stays so, whoever does the job.
                interruption=Interruption.LAB
                if known is None or isinstance(known, LabError)
                else None,
            )
    if outcome.state is State.DEVICE_LOST:
        _lost.add(order.device.name)
    return replace(outcome, busy_seconds=time.monotonic() - begun)


def stop(token: str) -> None:
    """Stop the attempt with this token; if it has not started yet, as soon as it starts."""
    with _lock:
        _stops.setdefault(token, Stop()).want()
        for old in list(_stops)[:-_STOPS_KEPT]:
            if _stops[old].wanted:
                del _stops[old]


def check(config: DeviceConfig, timeout: float = 60.0) -> DeviceCheck:
    """Check a device in a child process, for `timeout` seconds at most."""
    try:
        with _job_folder() as folder:
            (folder / "device.json").write_text(json.dumps(asdict(config)))
            end = run_child(PROBE, [str(folder)], folder, timeout=timeout, stop=Stop())
            answer = _answer(folder)
            if answer is None:
                late = f"did not answer within {timeout:g} s"
                why = late if end.reason else _last_words(folder) or str(end)
                return DeviceCheck(error=f"{config.name}: {why}")
            found = DeviceCheck(**answer)
    except (EtscopeError, OSError) as error:
        return DeviceCheck(error=f"{config.name}: {error}")
    if not found.error:
        _lost.discard(config.name)
    return found


def calibrate(order: CalibrationOrder) -> DeviceCalibration | str:
    """Calibrate a device in a child process. Return what to keep; or a text, why there is nothing,
    if another attempt may succeed, because the device was lost or the lab stopped."""
    with _stoppable(order.token) as stop:
        if stop.wanted or order.device.name in _lost:
            return ""
        try:
            with (
                _job_folder() as folder,
                _device_alone(order.store, order.device, stop) as lock,
            ):
                (folder / "order.json").write_text(json.dumps(asdict(order)))
                end = run_child(
                    CALIBRATE, [str(folder)], folder,
                    timeout=_CALIBRATION_SECONDS, stop=stop, keep=lock,
                )  # fmt: skip
                answer = _answer(folder) or {}
                why = _last_words(folder) or str(end)
        except (EtscopeError, OSError) as error:  # of the lab's disk
            return str(error)
    if end.reason == "timeout":
        answer = {"error": f"it took more than {_CALIBRATION_SECONDS:g} s"}
    failure = str(answer.get("error") or ("" if answer.get("content") else why))
    if end.reason == "stopped" or answer.get("again"):
        return failure
    return DeviceCalibration(
        device=order.device.name,
        runner=order.runner,
        description=order.description,
        threads=tuple(sorted({*order.threads, *answer.get("threads", ())})),
        at=datetime.now(timezone.utc),
        content=None if failure else answer["content"],
        error=failure,
    )


def _attempt(order: Order, folder: Path, stop: Stop, send: Tell, lock: Sequence[int]) -> Outcome:
    store = Store(order.store)
    spec = spec_of(order.spec)
    (folder / "files").mkdir()
    for name, ref in spec.files.items():
        if ref.sha256 is None:
            raise MissingDataError(f"the job's {name} is not in the store")
        try:
            store.fetch(ref.sha256, folder / input_path(name, ref.name))
        except MissingDataError as error:
            if store.is_empty:
                raise LabError(
                    f"no files are in the lab's store {store.url}: is its disk mounted?"
                ) from error
            raise
    (folder / "out").mkdir()
    (folder / "order.json").write_text(json.dumps(asdict(order)))
    unsent = _LIVE_LIMIT

    def hear(text: str) -> None:
        nonlocal unsent
        text = text[:unsent]
        if text:
            unsent -= len(text)
            send({"kind": "log", "token": order.token, "text": text})

    limit = spec.timeout_seconds
    end = run_child(MEASURE, [str(folder)], folder, timeout=limit, stop=stop, hear=hear, keep=lock)
    outcome = _outcome(order, limit, folder, end)
    # Of a job that was ended only what it kept itself is whole.
    whole = not end.reason or _answer(folder, PARTIAL) is not None
    files = sorted((folder / "out").iterdir()) if whole else []
    log = folder / "log.txt"
    log.touch()
    kept = []
    for path in [*files, log]:
        media_type = _MEDIA.get(path.suffix, "application/octet-stream")
        kept.append(store.put_file(path, path.name, media_type))
    return replace(outcome, artifacts=tuple(kept))


def _outcome(order: Order, timeout: float, folder: Path, end: End) -> Outcome:
    """Return the outcome of a job after its child process ended."""
    plain = Outcome(order.job_id, order.token, State.FAILED, error_slug="runtime-failure")
    if end.reason and (kept := _answer(folder, PARTIAL)) is not None:
        summary, environment = (dict(kept.get(name) or {}) for name in ("summary", "environment"))
        plain = replace(plain, summary=summary, environment=environment)
    if end.reason == "stopped":
        return replace(plain, state=State.CANCELLED, error="stopped on request", error_slug="")
    if end.reason == "timeout":
        error = f"the job did not end within {timeout:g} s"
        return replace(plain, state=State.TIMEOUT, error=error)
    answer = _answer(folder)
    if answer is None:
        if end.code == os.EX_IOERR:  # the log does not say so: it cannot be written either
            raise LabError(f"the disk of {folder.parent} is full or cannot be written")
        words = _last_words(folder)
        error = f"the process that measures {end}" + (f": {words}" if words else "")
        killed = Interruption.KILLED if end.was_killed else None
        return replace(plain, error=error, interruption=killed)
    try:
        why = answer.get("interruption")
        state = State(answer["state"])
        if not state.is_final:
            raise ValueError(f"state {state}")
        return replace(
            plain,
            state=state,
            summary=dict(answer.get("summary") or {}),
            environment=dict(answer.get("environment") or {}),
            marks=tuple(map(str, answer.get("marks") or ())),
            error=str(answer.get("error") or ""),
            error_slug=str(answer.get("error_slug") or ""),
            interruption=None if why is None else Interruption(why),
        )
    except (KeyError, TypeError, ValueError) as error:
        return replace(plain, error=f"the process that measures gave no usable answer: {error}")


def _answer(folder: Path, name: str = "answer.json") -> dict[str, Any] | None:
    """The child's answer; None when there is none."""
    path = folder / name
    try:
        if path.stat().st_size > _ANSWER_LIMIT:
            return None
        answer = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def _last_words(folder: Path) -> str:
    """The last line of the log."""
    with suppress(OSError), (folder / "log.txt").open("rb") as file:
        file.seek(max(0, (folder / "log.txt").stat().st_size - 4096))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
        return next((line[:500] for line in reversed(lines) if line), "")
    return ""


@contextmanager
def _stoppable(token: str) -> Iterator[Stop]:
    with _lock:
        stop = _stops.setdefault(token, Stop())
    try:
        yield stop
    finally:
        with _lock:
            _stops.pop(token, None)


@contextmanager
def _job_folder() -> Iterator[Path]:
    """Make a temporary folder and remove it at the end; first remove killed workers' folders."""
    for old in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), (old / ".lock").open("r+") as lock:
            about = old.stat()
            if about.st_uid != os.getuid() or time.time() - about.st_mtime < _JUST_MADE:
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its worker lives
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _device_alone(store: str, device: DeviceConfig, stop: Stop) -> Iterator[Sequence[int]]:
    """Hold the device's lock, which the child keeps, too: the child of a killed worker has to end
    first. It ends by itself (see `subprocesses`); if the lock is not free by then, go on without.
    """
    what = json.dumps([store, asdict(device)], sort_keys=True)
    name = hashlib.sha256(what.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"etscope-device-{os.getuid()}-{name}"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield ()
        return
    try:
        end = time.monotonic() + 4 * GRACE
        while True:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if stop.wanted or time.monotonic() >= end:
                break
            stop.wait(0.05)
        yield (handle,)
    finally:
        os.close(handle)
