"""Alarms in the database. Each function is called inside a transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Select, and_, select, update
from sqlalchemy.engine import Connection, Row

from etscope.errors import MissingDataError, UsageError
from etscope_lab.database import schema
from etscope_lab.database.connection import now
from etscope_lab.jobs.records import Alarm, AlarmState

_alarms = schema.alarms.c


def add(connection: Connection, unsure: bool, alarm: Alarm) -> bool:
    """Add an alarm. False if there is another of its series and newest job."""
    key = _series_key(alarm.series)
    same = and_(_alarms.series_key == key, _alarms.newest == alarm.newest)
    known = connection.execute(select(_alarms.id).where(same)).scalar()
    if known is not None:
        return unsure and known == alarm.id
    values = {one.name: getattr(alarm, one.name) for one in fields(Alarm)}
    connection.execute(
        schema.alarms.insert().values({**values, "state": alarm.state.value, "series_key": key})
    )
    return True


def change(
    connection: Connection,
    unsure: bool,
    alarm_id: str,
    expected: AlarmState,
    changes: Mapping[str, Any],
) -> Alarm | None:
    """Change an alarm that is in the expected state; None if it is in another."""
    mine = and_(_alarms.id == alarm_id, _alarms.state == expected.value)
    values = {name: getattr(value, "value", value) for name, value in changes.items()}
    query = update(schema.alarms).where(mine).values(**values, changed_at=now(connection))
    done = connection.execute(query.returning(_alarms.id)).first()
    found = _alarm(connection.execute(_select().where(_alarms.id == alarm_id)).one())
    has_all = all(getattr(found, name) == value for name, value in changes.items())
    return found if done or (unsure and has_all) else None


def page(connection: Connection, states: Sequence[AlarmState], model: str | None) -> list[Alarm]:
    """Alarms in these states, or all, the newest first."""
    query = _select().order_by(_alarms.opened_at.desc(), _alarms.id)
    if states:
        query = query.where(_alarms.state.in_([state.value for state in states]))
    found = [_alarm(row) for row in connection.execute(query)]
    return [one for one in found if model is None or one.series["model"] == model]


def find(connection: Connection, alarm_id: str) -> Alarm:
    """The alarm of an id or an unambiguous beginning of one. `MissingDataError`, `UsageError`."""
    wanted = _alarms.id.startswith(alarm_id, autoescape=True)
    rows = connection.execute(_select().where(wanted).limit(2)).all()
    if not rows or not alarm_id:
        raise MissingDataError(
            f"the lab has no alarm {alarm_id[:80]!r}", hint="etscope lab alarms shows the alarms"
        )
    if len(rows) > 1 and rows[0].id != alarm_id:
        raise UsageError(f"several alarms begin with {alarm_id!r}", hint="give more of the id")
    return _alarm(rows[0])


def _select() -> Select[Any]:
    return select(*(schema.alarms.c[one.name] for one in fields(Alarm)))


def _alarm(row: Row[Any]) -> Alarm:
    values = row._asdict()
    return Alarm(**{**values, "state": AlarmState(row.state), "told": tuple(row.told)})


def _series_key(series: Mapping[str, Any]) -> str:
    text = json.dumps(schema.plain(series), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
