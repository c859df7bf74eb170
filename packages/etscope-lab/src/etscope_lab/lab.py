"""The lab in this process: jobs in its database, files in its store."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.analysis.statistics.compare_samples import Policy
from etscope.errors import MissingDataError, MissingFileError, UsageError
from etscope_lab.config import Home
from etscope_lab.counters import count_end
from etscope_lab.database import Database
from etscope_lab.jobs.records import (
    TOLD,
    Alarm,
    AlarmState,
    Artifact,
    AuditEntry,
    Device,
    Filter,
    Job,
    JobEvent,
    Page,
    Series,
    State,
)
from etscope_lab.jobs.spec import FileRef, JobSpec, base_name
from etscope_lab.retention import Retention
from etscope_lab.store import Store

if TYPE_CHECKING:
    from etscope_lab.engine import Engine
    from etscope_lab.watch import Watch

_PIECE = 1 << 20  # bytes
_POLL = 0.5  # seconds: the delay after which the end of a job of another process is seen


class Lab:
    """A lab over a database and a store; `Client` has the same methods. For several threads.

    Raises `MissingDataError` for a job, device or file that does not exist, `UsageError` for
    invalid arguments.

    Jobs stay queued until an engine works on them (`start_engine`, which `etscope lab serve`
    calls), in this process or another one of the same lab.
    """

    def __init__(self, home: Home, database: Database, store: Store) -> None:
        self.home = home
        self.database = database
        self.store = store
        self.engine: Engine | None = None
        self._watch: Watch | None = None
        self._retention: Retention | None = None
        self._changed = threading.Condition()

    @classmethod
    def open(cls, home: Home | str | os.PathLike[str] | None = None) -> Lab:
        """Open the lab of a home folder; see `Home.open` for the default. Raises the errors of
        `Home`, `Database` and `Store`."""
        found = home if isinstance(home, Home) else Home.open(home)
        return cls(found, Database(found.database_url), Store(found.store_url))

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the watch and the engine, if any, in an orderly way, and close the database."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        if self._retention is not None:
            self._retention.close()
        engine, self.engine = self.engine, None
        if engine is not None:
            engine.close()
        self.database.close()

    def start_engine(
        self,
        devices: Sequence[str] | None = None,
        scheduler: str | None = None,
        only: Sequence[str] | None = None,
    ) -> Engine:
        """Work on queued jobs, and watch their series, in the background, until `close`.

        devices: names of the lab's configured devices; None: all. scheduler: the address of the
        Dask cluster for the devices' workers (`etscope lab worker`); None: the configured one,
        or workers on this machine. only: ids of the jobs to work on; None: all.
        """
        from etscope_lab.engine import Engine, EngineOptions

        options = EngineOptions(devices=devices, scheduler=scheduler, only=only)
        if self.engine is not None:
            self.engine.close()
        self.engine = Engine(self.home, self.database, options, changed=self._notify)
        self.engine.start()
        if only is None and self.home.config.watch.enabled:
            from etscope_lab.watch import Watch

            self._watch = Watch(self.home, self.database, self)
            self._watch.start()
        if only is None and self.home.config.keep_days is not None:
            self._retention = Retention(self.database, self.store, self.home.config.keep_days)
            self._retention.start()
        return self.engine

    def submit(
        self, spec: JobSpec, *, again: bool = False, submitter: str = "", project: str = ""
    ) -> Job:
        """Queue a job, after copying its files by path into the store. A job of the same content
        that is queued, at work or done is returned instead, unless `again`."""
        return self.submit_new(spec, again=again, submitter=submitter, project=project)[0]

    def submit_new(
        self,
        spec: JobSpec,
        *,
        again: bool = False,
        submitter: str = "",
        project: str = "",
        failure: str = "",
    ) -> tuple[Job, bool]:
        """Do `submit`; return the job, and True if it is new. failure: why it has no program; then
        it ends at once, as a user's error. Raises `LabError` if as many jobs of the project wait as
        may."""
        limits = self.home.config.projects.get(project)
        most = None if limits is None else limits.max_queued
        files = {field: self._taken(ref) for field, ref in spec.files.items()}
        job, new = self.database.add(
            spec.with_files(files), submitter=submitter, project=project, again=again, most=most,
            failure=failure,
        )  # fmt: skip
        if job.state is State.USER_ERROR:
            count_end(job.state)
            return job, new
        # From here on no file of the job is removed; one may have been since it was looked for.
        needed = files.items() if new else ()
        gone = [field for field, ref in needed if not self.store.has(str(ref.sha256))]
        try:
            for field in gone:
                self._taken(spec.files[field])
        except MissingDataError:  # only who submits has it
            self.database.request_cancel(job.id)
            raise
        if new and self.engine is not None:
            self.engine.wake()
        return job, new

    def job(self, job_id: str) -> Job:
        """The job of an id or an unambiguous beginning of one."""
        return self.database.job(job_id)

    def jobs(
        self, wanted: Filter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page:
        return self.database.jobs(wanted or Filter(), limit=limit, cursor=cursor)

    def events(self, job_id: str) -> Sequence[JobEvent]:
        return self.database.events(self.job(job_id).id)

    def log(self, job_id: str) -> str:
        """The log of the job's processes; of a running job, so far."""
        job = self.job(job_id)
        if "log.txt" in job.artifacts:
            pieces = self._pieces(job.artifacts["log.txt"])
            return b"".join(pieces).decode("utf-8", "replace")
        with contextlib.suppress(FileNotFoundError):
            return self.home.live_log(job.id).read_text("utf-8", "replace")
        return ""

    def cancel(self, job_id: str, by: str = "") -> Job:
        """Stop a job. Raises `UsageError` when it has ended."""
        job = self.database.request_cancel(self.job(job_id).id, by)
        if job.state.is_final:  # it was queued; the engine counts others
            count_end(job.state)
        self._notify()
        if self.engine is not None:
            self.engine.wake()
        return job

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Wait for the end of a job; return it. Raises `TimeoutError` after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not (job := self.job(job_id)).state.is_final:
                left = _POLL if end is None else end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"job {job.id} is {job.state} after {timeout:g} s")
                self._changed.wait(min(left, _POLL))
        return job

    def read(self, job_id: str, artifact: str) -> Iterator[bytes]:
        return self._pieces(self.job(job_id).artifact(artifact))

    def fetch(
        self, job_id: str, folder: str | os.PathLike[str], names: Sequence[str] = ()
    ) -> list[Path]:
        """Copy files of a job into a folder: all, or some by name. Their content is checked."""
        folder = Path(folder)
        job = self.job(job_id)
        found = [job.artifact(name) for name in names or sorted(job.artifacts)]
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / Path(artifact.name).name for artifact in found]
        for artifact, path in zip(found, paths, strict=True):
            self.store.fetch(artifact.sha256, path)
        return paths

    def devices(self) -> Sequence[Device]:
        """Return the configured devices, with their state in the database; then devices that are
        only in the database.
        """
        seen = {device.config.name: device for device in self.database.devices()}
        configured = {
            config.name: Device(config, dict(config.attributes), "offline", message="never seen")
            for config in self.home.config.devices
        }
        return list({**configured, **seen}.values())

    def disable_device(self, name: str, why: str, by: str = "") -> None:
        """Give a device no more jobs, or again if `why` is "". Raises `MissingDataError`."""
        self.database.disable_device(name, why, by)

    def audit(self, limit: int = 100, before: int | None = None) -> Sequence[AuditEntry]:
        """Return who changed what, the newest first."""
        return self.database.audit(limit, before)

    def history(
        self,
        model: str | None = None,
        device: str | None = None,
        *,
        limit: int = 200,
        most: int | None = None,
    ) -> Sequence[Series]:
        """Done jobs as series, those with the newest results first. limit: points of each, the
        newest. most: number of series."""
        from etscope_lab.comparison.changes import judged

        policy = Policy(self.home.config.watch.min_effect)
        alarms = self.database.alarms(model=model)
        return [
            judged(replace(one, alarms=tuple(a for a in alarms if a.series == one.key)), policy)
            for one in self.database.history(model, device, limit, most)
        ]

    def alarms(self, states: Sequence[AlarmState] = ()) -> Sequence[Alarm]:
        return self.database.alarms(states)

    def set_alarm(self, alarm_id: str, state: AlarmState, by: str = "") -> Alarm:
        """Acknowledge, close or open an alarm again. Raises `UsageError` for another state, and
        for an alarm whose A/B job has not ended."""
        alarm = self.database.alarm(alarm_id)
        if state not in TOLD or alarm.state not in TOLD:
            raise UsageError(
                f"alarm {alarm.id} is {alarm.state} and cannot be {state}",
                hint=f"alarms that people were told of are {', '.join(map(str, TOLD))}",
            )
        changed = self.database.change_alarm(alarm.id, alarm.state, state=state, by=by)
        if changed is None:
            raise UsageError(f"alarm {alarm.id} was changed at the same moment", hint="look again")
        return changed

    def compare(self, first: str, second: str) -> Mapping[str, Any]:
        """The verdict on the times of two done jobs, and what differs."""
        from etscope_lab.comparison.compare import compare

        return compare(self, first, second, store=self.store)

    def sweep(self, older_than_seconds: float) -> int:
        """Remove the files of jobs that are older than the lab keeps them; then files older than
        `older_than_seconds`: those in the store that no job reads or wrote, and leftovers of killed
        servers and engines in the home's folder. Return the number of objects removed from the
        store."""
        for folder in ("uploads", "live"):
            for path in (self.home.folder / folder).glob("*"):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > older_than_seconds:
                        path.unlink()
        removed = 0
        if (days := self.home.config.keep_days) is not None:
            removed = Retention(self.database, self.store, days).sweep()
        return removed + self.store.sweep(self.database.remove_unused, older_than_seconds)

    def _taken(self, ref: FileRef) -> FileRef:
        """A file by its content, after copying it into the store if it is named by path."""
        if ref.path is not None:
            path = Path(ref.path).expanduser()
            if not path.is_file():
                raise MissingFileError(f"file not found: {ref.path}")
            kept = self.store.put_file(path, ref.name or base_name(path.name))
            return FileRef(sha256=kept.sha256, name=kept.name)
        if ref.sha256 is not None and not self.store.hold(ref.sha256):
            raise MissingDataError(
                f"the lab has no file of sha256 {ref.sha256}", hint="submit it by its path"
            )
        return ref

    def _pieces(self, artifact: Artifact) -> Iterator[bytes]:
        with self.store.open(artifact.sha256) as file:
            while piece := file.read(_PIECE):
                yield piece

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
        if self._watch is not None:
            self._watch.wake()
