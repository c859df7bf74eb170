"""Devices, and which engine gives them work."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import and_, delete, or_, select, update
from sqlalchemy.engine import Connection

from etscope.lab.database import schema
from etscope.lab.database.connection import now
from etscope.lab.jobs.records import Device, DeviceConfig

_devices = schema.devices.c
_leases = schema.leases.c


def put(connection: Connection, device: Device) -> None:
    """Raises `IntegrityError` when another one puts the same new device at this moment."""
    config = device.config
    row: dict[str, Any] = {
        "driver": config.driver,
        "options": dict(config.options),
        "configured": dict(config.attributes),
        "attributes": dict(device.attributes),
        "state": device.state,
        "job": device.job,
        "seen_at": device.seen_at,
        "conditions": dict(device.conditions),
        "message": schema.clean(device.message),
    }
    query = update(schema.devices).where(_devices.name == config.name).values(**row)
    if connection.execute(query).rowcount == 0:
        connection.execute(schema.devices.insert().values(name=config.name, **row))


def every(connection: Connection) -> list[Device]:
    """By name."""
    return [
        Device(
            config=DeviceConfig(row.name, row.driver, row.options, row.configured),
            attributes=row.attributes,
            state=row.state,
            job=row.job,
            seen_at=row.seen_at,
            conditions=row.conditions,
            message=row.message,
        )
        for row in connection.execute(select(schema.devices).order_by(_devices.name))
    ]


def acquire(connection: Connection, name: str, engine: str, lease_seconds: float) -> bool:
    """Raises `IntegrityError` when another one takes it for the first time at this moment."""
    at = now(connection)
    until = at + timedelta(seconds=lease_seconds)
    free = or_(_leases.engine == engine, _leases.until < at)
    query = update(schema.leases).where(and_(_leases.device == name, free))
    if connection.execute(query.values(engine=engine, until=until)).rowcount:
        return True
    if connection.execute(select(_leases.engine).where(_leases.device == name)).first():
        return False
    connection.execute(schema.leases.insert().values(device=name, engine=engine, until=until))
    return True


def release(connection: Connection, engine: str) -> None:
    connection.execute(delete(schema.leases).where(_leases.engine == engine))
