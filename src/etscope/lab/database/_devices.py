"""Devices as last seen, and which engine sends jobs to each."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from etscope.lab.database import _tables as tables
from etscope.lab.database._jobs import now
from etscope.lab.database._rows import device_of
from etscope.lab.records import Device

devices = tables.devices
holds = tables.holds


def put(connection: Connection, device: Device) -> None:
    values = {
        "driver": device.config.driver,
        "options": dict(device.config.options),
        "own_attributes": dict(device.config.attributes),
        "attributes": dict(device.attributes),
        "state": device.state,
        "job": device.job,
        "seen_at": device.seen_at,
        "conditions": dict(device.conditions),
        "message": device.message,
    }
    name = device.config.name
    changed = connection.execute(update(devices).where(devices.c.name == name).values(values))
    if changed.rowcount == 0:
        try:
            with connection.begin_nested():
                connection.execute(insert(devices).values(name=name, **values))
        except IntegrityError:  # somebody else was faster, just now
            connection.execute(update(devices).where(devices.c.name == name).values(values))


def every(connection: Connection) -> list[Device]:
    rows = connection.execute(select(devices).order_by(devices.c.name))
    return [device_of(row) for row in rows]


def acquire(connection: Connection, name: str, engine: str, seconds: float) -> bool:
    """Whether `engine` now is the one that sends jobs to the device: nobody else, or a lease that
    ran out."""
    at = now()
    until = at + timedelta(seconds=seconds)
    taken = connection.execute(
        update(holds)
        .where(holds.c.device == name, or_(holds.c.engine == engine, holds.c.lease_until < at))
        .values(engine=engine, lease_until=until)
    )
    if taken.rowcount:
        return True
    if connection.scalar(select(holds.c.engine).where(holds.c.device == name)) is not None:
        return False
    try:
        with connection.begin_nested():
            connection.execute(insert(holds).values(device=name, engine=engine, lease_until=until))
    except IntegrityError:  # somebody else was faster, just now
        return False
    return True


def release_all(connection: Connection, engine: str) -> None:
    connection.execute(delete(holds).where(holds.c.engine == engine))
