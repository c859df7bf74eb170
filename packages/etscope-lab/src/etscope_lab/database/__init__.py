"""The lab's database: jobs, their events, devices and tokens, in SQLite or PostgreSQL."""

from __future__ import annotations

from etscope_lab.database.database import Database
from etscope_lab.jobs.records import SCOPES, Token

__all__ = ["SCOPES", "Database", "Token"]
