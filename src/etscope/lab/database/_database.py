"""The lab's database: each method is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from etscope.lab.api import Filter, Page, Series
from etscope.lab.database import _devices, _history, _jobs, _tokens
from etscope.lab.database._connection import Connections
from etscope.lab.database._tokens import Token
from etscope.lab.records import Device, Job, JobEvent
from etscope.lab.spec import JobSpec
from etscope.lab.task import Outcome


class Database:
    """Jobs, their events and files, devices and tokens. Usable from threads and processes.

    url: SQLAlchemy's: "sqlite:////folder/lab.sqlite", "postgresql://user@host/name". A new
    database gets its tables.

    Raises `UsageError` for a URL of something else, `VersionError` for a database of another
    etscope, and, as every method does, `LabError` when the database cannot be reached for some
    seconds. After that error the call may or may not have been carried out; to repeat it is safe.
    """

    def __init__(self, url: str) -> None:
        self._connections = Connections(url)

    def close(self) -> None:
        self._connections.close()

    # -- jobs

    def add(self, spec: JobSpec, *, submitter: str = "", again: bool = False) -> tuple[Job, bool]:
        """Queue a job; or, unless `again`, answer one of the same content that is queued, at work
        or done. The second value: whether it is a new one."""
        job_id = _jobs.new_id()
        return self._connections.write(
            lambda connection: _jobs.add(connection, job_id, spec, submitter, again)
        )

    def job(self, job_id: str) -> Job:
        """By id or an unambiguous beginning of it."""
        return self._connections.read(lambda connection: _jobs.find(connection, job_id))

    def jobs(
        self, wanted: Filter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page:
        """Newest first. cursor: `Page.next` of the page before."""
        return self._connections.read(
            lambda connection: _jobs.page(connection, wanted or Filter(), limit, cursor)
        )

    def events(self, job_id: str) -> list[JobEvent]:
        """Oldest first."""
        return self._connections.read(lambda connection: _jobs.events(connection, job_id))

    def queued(self, limit: int = 100) -> list[Job]:
        """Larger priorities first, then older ones."""
        return self._connections.read(lambda connection: _jobs.queued(connection, limit))

    def claim(
        self, job_id: str, *, device: str, engine: str, token: str, lease_seconds: float
    ) -> Job | None:
        """Take a queued job, as a new attempt; None when it is not queued any more."""
        return self._connections.write(
            lambda connection: _jobs.claim(connection, job_id, device, engine, token, lease_seconds)
        )

    def started(self, job_id: str, token: str, worker: str) -> bool:
        """A claimed job runs. False: it is no longer this attempt's."""
        return self._connections.write(
            lambda connection: _jobs.started(connection, job_id, token, worker)
        )

    def renew(self, engine: str, lease_seconds: float) -> None:
        """The engine is alive: its jobs and its devices stay its own for so long from now."""
        self._connections.write(lambda connection: _jobs.renew(connection, engine, lease_seconds))

    def finish(self, outcome: Outcome) -> bool:
        """End a job with what was found. False: it is no longer this attempt's."""
        return self._connections.write(lambda connection: _jobs.finish(connection, outcome))

    def release(self, job_id: str, token: str, message: str, *, counted: bool = True) -> bool:
        """Back into the queue. counted: as an attempt. False: it is no longer this attempt's."""
        return self._connections.write(
            lambda connection: _jobs.release(connection, job_id, token, message, counted=counted)
        )

    def requeue_expired(self) -> list[str]:
        """Jobs whose lease ran out go back into the queue; their ids."""
        return self._connections.write(_jobs.requeue_expired)

    def request_cancel(self, job_id: str) -> Job:
        """Cancel a queued job, note it of one at work. `UsageError` for one that ended."""
        return self._connections.write(lambda connection: _jobs.request_cancel(connection, job_id))

    def referenced(self) -> Sequence[str]:
        """The SHA-256 of every file that some job has or needs."""
        return self._connections.read(_jobs.referenced)

    def history(
        self, model: str | None = None, device: str | None = None, limit: int = 200
    ) -> list[Series]:
        """Done jobs by model's name, method, device and backend."""
        return self._connections.read(
            lambda connection: _history.history(connection, model, device, limit)
        )

    # -- devices

    def set_device(self, device: Device) -> None:
        """Remember a device as it is."""
        self._connections.write(lambda connection: _devices.put(connection, device))

    def devices(self) -> list[Device]:
        """By name."""
        return self._connections.read(_devices.every)

    def acquire_device(self, name: str, engine: str, lease_seconds: float) -> bool:
        """Whether the engine is now the only one that sends jobs to the device."""
        return self._connections.write(
            lambda connection: _devices.acquire(connection, name, engine, lease_seconds)
        )

    def release_devices(self, engine: str) -> None:
        """The engine is done with all its devices."""
        self._connections.write(lambda connection: _devices.release_all(connection, engine))

    # -- tokens

    def add_token(
        self, name: str, scopes: Sequence[str], expires_at: datetime | None = None
    ) -> str:
        """A new token; the answer is its secret, which is nowhere kept. `UsageError` when the name
        is taken."""
        secret = _tokens.new_secret()
        self._connections.write(
            lambda connection: _tokens.add(connection, name, secret, scopes, expires_at)
        )
        return secret

    def check_token(self, secret: str) -> Token | None:
        """The token of a secret, unless it ran out."""
        found = self._connections.read(lambda connection: _tokens.check(connection, secret))
        if found is None:
            return None
        token, unnoted = found
        if unnoted:
            self._connections.write(lambda connection: _tokens.note_use(connection, token.name))
        return token

    def tokens(self) -> list[Token]:
        """By name, those that ran out with them."""
        return self._connections.read(_tokens.every)

    def revoke(self, name: str) -> None:
        """A token is worth nothing from now on. `MissingDataError` when there is none."""
        self._connections.write(lambda connection: _tokens.revoke(connection, name))
