"""What must last: jobs, their events and files, devices, tokens. SQLite or PostgreSQL."""

from __future__ import annotations

from etscope.lab.database._database import Database
from etscope.lab.database._tokens import Token

__all__ = ["Database", "Token"]
