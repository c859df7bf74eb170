"""The lab's database.

Tokens: only hashes of their secrets are kept. A secret is 256 random bits, which cannot be guessed,
however fast a guess is checked. So SHA-256 is enough; the slow hashes that passwords need would
make every request slow and protect nothing. A secret begins with a key, which is not secret and
finds its row; the hashes are then compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import delete, select, update
from sqlalchemy.engine import Connection, Row

from etscope.errors import MissingDataError, UsageError
from etscope_lab.database import alarms, audit, files, jobs, migrations, schema
from etscope_lab.database.connection import Connections, lock, now, upsert
from etscope_lab.database.jobs import SeriesKey
from etscope_lab.devices.peaks import DeviceCalibration
from etscope_lab.jobs.records import (
    SCOPES,
    SERIES_KEY,
    Alarm,
    AlarmState,
    AuditEntry,
    Device,
    DeviceConfig,
    Filter,
    Job,
    JobEvent,
    Outcome,
    Page,
    Series,
    State,
    Token,
)
from etscope_lab.jobs.spec import JobSpec

_PATIENCE = 15.0  # seconds: a restart of PostgreSQL takes less
_PATIENCE_AT_FIRST = 3.0
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._@-]{0,99}")
_SECRET = re.compile(r"etl_([0-9a-f]{12})_[0-9A-Za-z_-]{43}")
_LATE_US = 60_000_000  # a result appears when its transaction ends, after the time that it has
_USED = timedelta(minutes=1)  # the precision of a token's last use
_AT_ONCE = 200  # jobs whose steps are one transaction

_Result = TypeVar("_Result")

_devices, _leases, _tokens = schema.devices.c, schema.leases.c, schema.tokens.c
_calibrations = schema.calibrations.c


class Database:
    """Jobs, devices and tokens in SQLite or PostgreSQL. Usable from several threads, processes and
    machines at once.

    Each method is one transaction. It is repeated if the connection breaks; no step is then lost or
    done twice. Raises `LabError` when the database stays away, is full or refuses;
    `MissingDataError` and `UsageError` where a method says so.
    """

    def __init__(self, url: str, *, patience_seconds: float = _PATIENCE) -> None:
        """url: "sqlite:////path/lab.db" or "postgresql://user@host/name"; missing tables are
        made, tables of an earlier version migrated. patience_seconds: how long to retry while the
        database is away.

        Raises `VersionError` for a database of a later etscope, `LabError` for one that an earlier
        etscope works on, `UsageError` for another URL.
        """
        self._known_series: dict[SeriesKey, int] = {}  # with the time of the last result
        self._lock = threading.Lock()
        self._connections = Connections(url, min(patience_seconds, _PATIENCE_AT_FIRST))
        try:
            self._connections.write(migrations.prepare)
        except BaseException:
            self.close()
            raise
        self._connections.patience = patience_seconds

    @property
    def url(self) -> str:
        """The URL without a password."""
        return self._connections.url

    def close(self) -> None:
        """Close all connections. A later call opens new ones."""
        self._connections.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- jobs

    def together(self, actions: Sequence[Callable[[], _Result]]) -> list[_Result]:
        """Call functions that call methods of this object, in one transaction. All of them are
        called again when that is repeated."""
        return self._connections.together(actions)

    def last_event(self) -> int:
        """The number of the last event of all jobs: it grows when one is queued, or should stop."""
        return self._connections.read(jobs.last_event)

    def add(
        self,
        spec: JobSpec,
        *,
        submitter: str = "",
        project: str = "",
        again: bool = False,
        most: int | None = None,
        failure: str = "",
    ) -> tuple[Job, bool]:
        """Queue a job; return it and True when it is new. A job of the same content that is
        queued, at work or done is returned instead, unless `again` or its files were removed, also
        when both are added at the same moment. failure: why it has no program; then it ends at
        once, as a user's error.

        most: jobs of the project that may wait. Raises `LabError` beyond it, `UsageError` when not
        all files are named by SHA-256.
        """
        owner, new_id = (submitter, project), secrets.token_hex(8)
        return self._connections.write(jobs.add, new_id, spec, owner, again, most, failure)

    def job(self, job_id: str) -> Job:
        """The job of an id or an unambiguous beginning of one. Raises `MissingDataError` without
        one, `UsageError` for several."""
        return self._connections.read(jobs.find, job_id)

    def jobs(
        self, wanted: Filter | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        """Jobs, newest first. Raises `UsageError` for an invalid cursor."""
        return self._connections.read(jobs.page, wanted or Filter(), limit, cursor)

    def events(self, job_id: str) -> list[JobEvent]:
        """The events of a job, oldest first. Errors as of `job`."""
        return self._connections.read(jobs.events, job_id)

    def queued(self, limit: int = 100) -> list[Job]:
        """Queued jobs: larger priorities first, then older ones; at most `limit` of a project."""
        return self._connections.read(jobs.queued, limit)

    def counts(self, *states: State) -> dict[tuple[State, str], int]:
        """The number of jobs by state and project, if there are any."""
        return self._connections.read(jobs.counts, states)

    def remove_unused(self, shas: Collection[str], remove: Callable[[str], bool]) -> int:
        """Call `remove` with those of the files (SHA-256) that no job reads or wrote; return how
        often it was True. No job is added meanwhile, so they should be few."""
        return self._connections.write(files.remove_unused, shas, remove)

    def forget_files(
        self, after: datetime, before: datetime, limit: int
    ) -> tuple[datetime | None, set[str]]:
        """Forget the files of at most `limit` jobs that ended between two times; see
        `etscope_lab.retention`. Return the end of the last one, and the files."""
        return self._connections.write(files.forget_files, after, before, limit)

    def history(
        self,
        model: str | None = None,
        device: str | None = None,
        limit: int = 200,
        most: int | None = None,
    ) -> list[Series]:
        """Done benchmarks as series, those with the newest results first: all, or only of a model's
        name or a device. limit: points of each, the newest; they are sorted oldest first. most:
        number of series."""
        keys = self._series(model, device)[:most]
        return [one for one in self._connections.read(jobs.history, keys, limit) if one.points]

    def series(self, model: str | None = None, device: str | None = None) -> list[Series]:
        """The series of `history`, without their points."""
        return [
            Series(**dict(zip(SERIES_KEY, key, strict=True)), points=())
            for key in self._series(model, device)
        ]

    def _series(self, model: str | None, device: str | None) -> list[SeriesKey]:
        """Their keys are kept, as finding them reads all results. Other processes add some, so new
        results are looked at each time."""
        with self._lock:
            since = max(self._known_series.values(), default=0) - _LATE_US
            self._known_series |= self._connections.read(jobs.series_since, max(since, 0))
            known = sorted(self._known_series, key=self._known_series.__getitem__, reverse=True)
        names = tuple(None if one is None else schema.clean(one) for one in (model, device))
        places = SERIES_KEY.index("model"), SERIES_KEY.index("device")
        return [
            key
            for key in known
            if all(name in (None, key[at]) for name, at in zip(names, places, strict=True))
        ]

    def ended_after(
        self, at: datetime, seq: int, limit: int
    ) -> tuple[list[Job], tuple[datetime, int]]:
        """The first jobs that ended after a moment, or at it with a larger number; and the place of
        the last one, from which the next call goes on."""
        return self._connections.read(jobs.ended_after, at, seq, limit)

    def measured_since(self, since: datetime) -> dict[tuple[str, str], tuple[int, int]]:
        """Model and device of the series with results of jobs that ended since then: the number of
        these results, and of their newest job."""
        return self._connections.read(jobs.measured_since, since)

    # -- alarms

    def alarms(self, states: Sequence[AlarmState] = (), model: str | None = None) -> list[Alarm]:
        """Alarms in these states, or all, the newest first. model: of this model's series."""
        return self._connections.read(alarms.page, states, model)

    def add_alarm(self, alarm: Alarm) -> bool:
        """Add an alarm; False if there is one of this series and newest job already."""
        return self._connections.write(alarms.add, alarm)

    def change_alarm(self, alarm_id: str, expected: AlarmState, **changes: Any) -> Alarm | None:
        """Change fields of an alarm that is in the expected state; None if it is in another."""
        return self._connections.write(alarms.change, alarm_id, expected, changes)

    def alarm(self, alarm_id: str) -> Alarm:
        """The alarm of an id or an unambiguous beginning of one. Raises `MissingDataError`."""
        return self._connections.read(alarms.find, alarm_id)

    # -- the steps of a job

    def claim(
        self,
        job_id: str,
        *,
        device: str,
        engine: str,
        token: str,
        limit: tuple[str, int] | None = None,
    ) -> Job | None:
        """Start an attempt at a queued job; None if the job is no longer queued, or as many are at
        work as may. token: identifies this attempt; each attempt has a new one. limit: of a
        project, by its name.
        """
        return self._connections.write(jobs.claim, job_id, device, engine, token, limit)

    def started(self, job_id: str, token: str, worker: str) -> bool:
        """Note that the device works on the job. False when the attempt no longer counts."""
        return self._connections.write(jobs.start, job_id, token, worker)

    def finish(self, outcome: Outcome) -> bool:
        """End a job: its state, its results, its files. Returns False and changes nothing when the
        attempt no longer counts or the job has ended."""
        return self._connections.write(jobs.finish, outcome)

    def release(self, job_id: str, token: str, message: str, *, counted: bool = True) -> bool:
        """Queue a job again after an attempt without an outcome, or end it when its cancellation
        was requested. counted: as one of its attempts. False when the attempt no longer counts."""
        return self._connections.write(jobs.release, job_id, token, message, counted)

    def renew(self, engine: str, lease_seconds: float) -> None:
        """Extend the lease that an engine has of its jobs and devices to that long from now."""
        self._connections.write(jobs.renew, engine, lease_seconds)

    def abandon(self, engine: str) -> None:
        """End the lease of an engine that has ended: `requeue_expired` then takes its jobs, and
        `acquire_devices` its devices."""
        self._connections.write(jobs.renew, engine, -1.0)

    def requeue_expired(self) -> list[str]:
        """Take jobs from engines that stopped renewing their lease; return the jobs' ids. They are
        queued again, which is not counted as an attempt; a job fails when that happens often."""
        late = self._connections.read(jobs.expired_ids)
        found: list[str] = []
        for first in range(0, len(late), _AT_ONCE):
            these = late[first : first + _AT_ONCE]
            taken = self.together(
                [partial(self._connections.write, jobs.requeue_expired, one) for one in these]
            )
            found += [one for one, was_taken in zip(these, taken, strict=True) if was_taken]
        return found

    def cancelled_of(self, engine: str) -> set[str]:
        """The ids of an engine's jobs that should stop."""
        return self._connections.read(jobs.cancelled_of, engine)

    def request_cancel(self, job_id: str, by: str = "") -> Job:
        """Stop a job: a queued one at once, one at work when its engine sees it. by: for its
        history. Raises `UsageError` when it has ended; other errors as of `job`."""
        return self._connections.write(jobs.request_cancel, job_id, by)

    # -- devices

    def set_devices(self, *devices: Device) -> None:
        rows = [
            {
                "name": device.config.name,
                "driver": device.config.driver,
                "options": dict(device.config.options),
                "configured": dict(device.config.attributes),
                "attributes": dict(device.attributes),
                "state": device.state,
                "job": device.job,
                "seen_at": device.seen_at,
                "conditions": dict(device.conditions),
                "message": schema.clean(device.message),
            }
            for device in devices
        ]
        self._connections.write(lambda connection, _: upsert(connection, schema.devices, rows))

    def devices(self) -> list[Device]:
        """All devices by name."""
        query = select(schema.devices).order_by(_devices.name)
        peaks = select(_calibrations.device, _calibrations.summary).order_by(_calibrations.runner)
        found: dict[str, list[Mapping[str, Any]]] = {}
        for one in self._connections.read(lambda connection: connection.execute(peaks).all()):
            found.setdefault(one.device, []).append(one.summary)
        return [
            Device(
                config=DeviceConfig(row.name, row.driver, row.options, row.configured),
                attributes=row.attributes,
                state="disabled" if row.disabled and row.state != "busy" else row.state,
                job=row.job,
                seen_at=row.seen_at,
                conditions=row.conditions,
                message=row.disabled or row.message,
                calibrations=tuple(found.get(row.name, ())),
            )
            for row in self._connections.read(lambda connection: connection.execute(query).all())
        ]

    def disable_device(self, name: str, why: str, by: str = "") -> None:
        """Give a device no more jobs, or again if `why` is "". Raises `MissingDataError` for a
        device that no engine has had."""

        def put(connection: Connection, _: bool) -> None:
            query = update(schema.devices).where(_devices.name == name)
            if not connection.execute(query.values(disabled=why)).rowcount:
                raise MissingDataError(
                    f"the lab has no device {name[:80]!r}",
                    hint="etscope lab devices shows the devices; a new one is known once the "
                    "server has reached it",
                )
            action = "disable device" if why else "enable device"
            audit.note(connection, by, action, name, why=why)

        self._connections.write(put)

    def disabled_devices(self) -> set[str]:
        """The names of devices that get no jobs."""
        query = select(_devices.name).where(_devices.disabled != "")
        return self._connections.read(lambda one: set(one.execute(query).scalars()))

    def keep_calibration(self, found: DeviceCalibration) -> None:
        """Keep a device's calibration in the place of an earlier one of the same runner."""
        row = {one.name: getattr(found, one.name) for one in fields(found)}
        rows = [{**row, "summary": found.summary()}]
        self._connections.write(lambda one, _: upsert(one, schema.calibrations, rows))

    def calibrations(self, *devices: str) -> list[DeviceCalibration]:
        """The calibrations of devices, by runner."""
        query = select(*(_calibrations[one.name] for one in fields(DeviceCalibration)))
        query = query.where(_calibrations.device.in_(devices)).order_by(_calibrations.runner)
        return [
            DeviceCalibration(**{**row._asdict(), "threads": tuple(row.threads)})
            for row in self._connections.read(lambda connection: connection.execute(query).all())
        ]

    def acquire_devices(self, names: Iterable[str], engine: str) -> set[str]:
        """Make this engine the one that gives work to devices, while it renews its lease. Return
        those of them that no other engine has."""

        def acquire(connection: Connection, _: bool) -> set[str]:
            lock(connection, "devices")
            alive = set(connection.execute(jobs.alive(connection)).scalars())
            held = {row.device: row.engine for row in connection.execute(select(schema.leases))}
            wanted = {schema.clean(name) for name in names}
            mine = {one for one in wanted if held.get(one) not in alive - {engine}}
            if rows := [
                {"device": one, "engine": engine} for one in mine if held.get(one) != engine
            ]:
                upsert(connection, schema.leases, rows)
            return mine

        return self._connections.write(acquire)

    def engines(self) -> set[str]:
        """The engines that have devices now."""

        def alive(connection: Connection) -> set[str]:
            query = select(_leases.engine).where(_leases.engine.in_(jobs.alive(connection)))
            return set(connection.execute(query.distinct()).scalars())

        return self._connections.read(alive)

    def release_devices(self, engine: str) -> None:
        def release(connection: Connection, _: bool) -> None:
            for table in (schema.leases, schema.engines):
                connection.execute(delete(table).where(table.c.engine == engine))

        self._connections.write(release)

    # -- shares

    def note_use(self, seconds: Mapping[str, float], half_life: float) -> None:
        """Add the device time of projects; what was used before halves in this many seconds."""

        def add(connection: Connection, unsure: bool) -> None:
            lock(connection, "shares")
            now_used, at = jobs.used(connection, half_life)
            rows = [
                {"project": one, "seconds": now_used.get(one, 0.0) + more, "at": at}
                for one, more in seconds.items()
            ]
            upsert(connection, schema.shares, rows)

        self._connections.write(add)

    def used(self, half_life: float) -> dict[str, float]:
        """The device time of projects, of which half is forgotten in that many seconds."""
        return self._connections.read(jobs.used, half_life)[0]

    # -- tokens

    def add_token(
        self,
        name: str,
        scopes: Iterable[str] = ("read",),
        expires_at: datetime | None = None,
        *,
        project: str = "",
        by: str = "",
    ) -> str:
        """Make a token and return its secret, which is not kept. by: for the audit log.

        Raises `UsageError` for a name that is taken, unknown scopes, or an end in the past.
        """
        secret = f"etl_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"
        wanted = set(scopes)

        def add(connection: Connection, _: bool) -> None:
            at = now(connection)
            _check_token(name, wanted, expires_at, at)
            if project and not _NAME.fullmatch(project):
                raise UsageError(f"{project[:80]!r} is not a name of a project")
            other = connection.execute(
                select(schema.tokens).where(_tokens.name == name)
            ).one_or_none()
            if other is None:
                row = {
                    "name": name,
                    "key": _key_of(secret),
                    "sha256": _hash(secret),
                    "scopes": sorted(wanted, key=SCOPES.index),
                    "created_at": at,
                    "expires_at": expires_at,
                    "project": project,
                }
                connection.execute(schema.tokens.insert().values(**row))
                audit.note(connection, by, "add token", name, scopes=row["scopes"], project=project)
            elif other.sha256 != _hash(secret):  # else an earlier try was committed
                raise UsageError(
                    f"a token named {name!r} exists already",
                    hint=f"etscope lab token revoke {name} ends that token",
                )

        self._connections.write(add)
        return secret

    def check_token(self, secret: str) -> Token | None:
        """Return the token of a secret; None if the secret is wrong or the token expired."""
        key = _key_of(secret)
        if key is None:
            return None

        def find(connection: Connection) -> tuple[Token | None, bool]:
            """Return the token, and True if its use must be recorded."""
            query = select(schema.tokens).where(_tokens.key == key)
            row = connection.execute(query).one_or_none()
            kept = "" if row is None else row.sha256
            if not hmac.compare_digest(_hash(secret), kept) or row is None:
                return None, False
            at = now(connection)
            if row.expires_at is not None and row.expires_at <= at:
                return None, False
            return _token(row), row.last_used_at is None or row.last_used_at + _USED <= at

        def note_use(connection: Connection, _: bool) -> None:
            query = update(schema.tokens).where(_tokens.key == key)
            connection.execute(query.values(last_used_at=now(connection)))

        token, note = self._connections.read(find)
        if note:
            self._connections.write(note_use)
        return token

    def tokens(self) -> list[Token]:
        """All tokens by name, expired ones too."""
        query = select(schema.tokens).order_by(_tokens.name)
        return self._connections.read(
            lambda connection: [_token(row) for row in connection.execute(query)]
        )

    def revoke(self, name: str, by: str = "") -> None:
        """Make a token invalid from now on. by: for the audit log. Raises `MissingDataError` when
        there is none."""

        def remove(connection: Connection, unsure: bool) -> None:
            query = delete(schema.tokens).where(_tokens.name == schema.clean(name))
            if connection.execute(query).rowcount:
                audit.note(connection, by, "revoke token", name)
            elif not unsure:
                raise MissingDataError(
                    f"no token has the name {name!r}",
                    hint="etscope lab token list shows the tokens",
                )

        self._connections.write(remove)

    # -- the audit log

    def audit(self, limit: int = 100, before: int | None = None) -> list[AuditEntry]:
        """Return who changed what, the newest first. before: only smaller numbers than this."""
        return self._connections.read(audit.page, limit, before)

    def note_settings(self, by: str, hashes: Mapping[str, str]) -> None:
        """Note in the audit log which keys of lab.yaml changed. hashes: of the keys' values."""
        self._connections.write(audit.note_settings, by, hashes)


def _check_token(name: str, scopes: set[str], expires_at: datetime | None, at: datetime) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} is not a name for a token",
            hint="a name has up to 100 of A-Z a-z 0-9 . _ @ -, and begins with a letter or digit",
        )
    unknown = sorted(scopes - set(SCOPES))
    if unknown or not scopes:
        raise UsageError(
            f"a token has no scope {unknown[0]!r}" if unknown else "a token needs a scope",
            hint=f"scopes are {', '.join(SCOPES)}",
        )
    if expires_at is not None:
        if expires_at.tzinfo is None:
            raise UsageError(f"the expiry of the token, {expires_at}, has no time zone")
        if expires_at <= at:
            raise UsageError(f"the expiry of the token, {expires_at}, is in the past")


def _key_of(secret: str) -> str | None:
    match = _SECRET.fullmatch(secret)
    return None if match is None else match[1]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _token(row: Row[Any]) -> Token:
    values = {one.name: getattr(row, one.name) for one in fields(Token)}
    return Token(**{**values, "scopes": frozenset(row.scopes)})
