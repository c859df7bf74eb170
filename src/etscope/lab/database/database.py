"""The lab's database."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial

from etscope.lab.database import devices as boards
from etscope.lab.database import jobs as found
from etscope.lab.database import jobs as history
from etscope.lab.database import jobs as life
from etscope.lab.database import schema, tokens
from etscope.lab.database.connection import Connections
from etscope.lab.database.tokens import Token
from etscope.lab.jobs.records import Device, Filter, Job, JobEvent, Outcome, Page, Series
from etscope.lab.jobs.spec import JobSpec

_PATIENCE = 15.0  # seconds: a restart of PostgreSQL takes less
_PATIENCE_AT_FIRST = 3.0


class Database:
    """Jobs, devices and tokens in SQLite or PostgreSQL. Usable from several threads, processes and
    machines at once.

    Each method is one transaction, and is done again when the database went away meanwhile: that
    neither loses a step nor does it twice. Raises `LabError` when it stays away, is full, or
    refuses; `MissingDataError` and `UsageError` where it is said.
    """

    def __init__(self, url: str, *, patience_seconds: float = _PATIENCE) -> None:
        """url: "sqlite:////path/lab.db" or "postgresql://user@host/name"; the tables are made when
        there are none. patience_seconds: how long to go on trying while the database is away.

        Raises `VersionError` for a database of a later etscope, `UsageError` for another URL.
        """
        self._connections = Connections(url, patience_seconds)
        first = min(patience_seconds, _PATIENCE_AT_FIRST)
        try:
            self._connections.write(lambda connection, _: schema.make(connection), patience=first)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Without a password."""
        return self._connections.url

    def close(self) -> None:
        """Leave it. Another call opens it again."""
        self._connections.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Jobs.

    def add(self, spec: JobSpec, *, submitter: str = "", again: bool = False) -> tuple[Job, bool]:
        """Queue a job, and whether it is new: one of the same content that is queued, at work or
        done is answered instead, unless `again`, and also when both are added at the same moment.

        Raises `UsageError` when not all of its files are known by content.
        """
        job_id = life.new_id()
        return self._connections.write(
            lambda connection, unsure: life.add(connection, job_id, spec, submitter, again, unsure)
        )

    def job(self, job_id: str) -> Job:
        """By id or an unambiguous beginning of it. `MissingDataError`, `UsageError`."""
        return self._connections.read(lambda connection: found.find(connection, job_id))

    def jobs(
        self, wanted: Filter | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        """The newest first. `UsageError` for a cursor that no page had."""
        asked = Filter() if wanted is None else wanted
        return self._connections.read(
            lambda connection: found.page(connection, asked, limit, cursor)
        )

    def events(self, job_id: str) -> list[JobEvent]:
        """What happened to a job, oldest first. Errors as of `job`."""
        return self._connections.read(lambda connection: found.events(connection, job_id))

    def queued(self, limit: int = 100) -> list[Job]:
        """Those that wait: larger priorities first, then the older ones."""
        return self._connections.read(lambda connection: found.queued(connection, limit))

    def referenced(self) -> set[str]:
        """SHA-256 of all files that jobs read or wrote: what `Store.sweep` keeps."""
        return self._connections.read(found.referenced)

    # The steps of a job.

    def claim(
        self, job_id: str, *, device: str, engine: str, token: str, lease_seconds: float
    ) -> Job | None:
        """Begin an attempt at a queued job; None when it is not queued any more. token: of this
        attempt, new for each."""
        return self._connections.write(
            lambda connection, unsure: life.claim(
                connection, job_id, device, engine, token, lease_seconds, unsure
            )
        )

    def started(self, job_id: str, token: str, worker: str) -> bool:
        """The device works on it now. False when the attempt does not count any more."""
        return self._connections.write(
            lambda connection, _: life.start(connection, job_id, token, worker)
        )

    def finish(self, outcome: Outcome) -> bool:
        """End a job: its state, what was measured, its files. False, and nothing is changed, when
        the attempt does not count any more or the job has ended."""
        return self._connections.write(
            lambda connection, unsure: life.finish(connection, outcome, unsure)
        )

    def release(self, job_id: str, token: str, message: str, *, counted: bool = True) -> bool:
        """Queue a job again, as its attempt came to no end; when somebody wanted it stopped, that
        is its end. counted: as one of its attempts. False when the attempt does not count any
        more."""
        return self._connections.write(
            lambda connection, unsure: life.release(
                connection, job_id, token, message, counted, unsure
            )
        )

    def renew(self, engine: str, lease_seconds: float) -> None:
        """The leases of an engine's jobs and devices last that long from now."""
        self._connections.write(lambda connection, _: life.renew(connection, engine, lease_seconds))

    def requeue_expired(self) -> list[str]:
        """Take jobs from engines that no longer renew their leases; the jobs' ids. They are queued
        again, not counted as an attempt; one under which that happened often has failed."""
        late = self._connections.read(life.expired_ids)
        return [
            job_id
            for job_id in late
            if self._connections.write(partial(life.requeue, job_id=job_id))
        ]

    def request_cancel(self, job_id: str) -> Job:
        """Stop a job: a queued one at once, one at work when its engine sees it. `UsageError` when
        it has ended; errors as of `job`."""
        return self._connections.write(
            lambda connection, unsure: life.request_cancel(connection, job_id, unsure)
        )

    # Devices.

    def set_device(self, device: Device) -> None:
        self._connections.write(lambda connection, _: boards.put(connection, device))

    def devices(self) -> list[Device]:
        """By name."""
        return self._connections.read(boards.every)

    def acquire_device(self, name: str, engine: str, lease_seconds: float) -> bool:
        """Whether this engine is the one that gives work to a device from now on."""
        return self._connections.write(
            lambda connection, _: boards.acquire(connection, name, engine, lease_seconds)
        )

    def release_devices(self, engine: str) -> None:
        self._connections.write(lambda connection, _: boards.release(connection, engine))

    # Results.

    def history(
        self, model: str | None = None, device: str | None = None, limit: int = 200
    ) -> list[Series]:
        """Done benchmarks, as series: of all, of a model's name, of a device. limit: points of
        each, the newest; oldest first."""
        return self._connections.read(
            lambda connection: history.history(connection, model, device, limit)
        )

    # Tokens.

    def add_token(
        self, name: str, scopes: Iterable[str] = ("read",), expires_at: datetime | None = None
    ) -> str:
        """Make a token; its secret, which is kept nowhere. `UsageError` for a name that is taken,
        scopes that there are not, an end that is over."""
        secret, wanted = tokens.new_secret(), tuple(scopes)
        self._connections.write(
            lambda connection, _: tokens.add(connection, secret, name, wanted, expires_at)
        )
        return secret

    def check_token(self, secret: str) -> Token | None:
        """The token of a secret; None for a wrong one and for one that is no longer good."""
        token, note = self._connections.read(lambda connection: tokens.find(connection, secret))
        if token is not None and note:
            name = token.name
            self._connections.write(lambda connection, _: tokens.note_use(connection, name))
        return token

    def tokens(self) -> list[Token]:
        """By name; those that are no longer good, too."""
        return self._connections.read(tokens.every)

    def revoke(self, name: str) -> None:
        """The token is worth nothing from now on. `MissingDataError` when there is none."""
        self._connections.write(lambda connection, unsure: tokens.revoke(connection, name, unsure))
