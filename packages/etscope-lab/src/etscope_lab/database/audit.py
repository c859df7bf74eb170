"""The audit log: who changed what. Each function is called inside a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection

from etscope_lab.database import schema
from etscope_lab.database.connection import now
from etscope_lab.jobs.records import AuditEntry

_audit = schema.audit.c
_SETTINGS = "settings"


def note(connection: Connection, by: str, action: str, target: str, **detail: Any) -> None:
    """Add an entry. by: the name of a token or user; "": this machine's owner of the lab."""
    row = {"at": now(connection), "by": by, "action": action, "target": target, "detail": detail}
    connection.execute(schema.audit.insert().values(**row))


def note_settings(connection: Connection, _: bool, by: str, hashes: Mapping[str, str]) -> None:
    """Add an entry if keys of lab.yaml changed since the last one. hashes: of the value of each
    key, as values may be secrets."""
    query = select(_audit.detail).where(_audit.action == _SETTINGS)
    last = connection.execute(query.order_by(_audit.seq.desc()).limit(1)).scalar()
    before = (last or {}).get("hashes", {})
    changed = sorted(k for k in {*before, *hashes} if before.get(k) != hashes.get(k))
    if changed:
        detail = {"keys": changed, "hashes": dict(hashes)}
        note(connection, by, _SETTINGS, "lab.yaml", **detail)


def page(connection: Connection, limit: int, before: int | None) -> list[AuditEntry]:
    """Entries, the newest first. before: only those with a smaller number."""
    query = select(schema.audit).order_by(_audit.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(_audit.seq < before)
    return [
        AuditEntry(row.seq, row.at, row.by, row.action, row.target, row.detail)
        for row in connection.execute(query)
    ]
