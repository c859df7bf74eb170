"""What lasts: jobs, what happened to them, devices and tokens, in SQLite or PostgreSQL.

`Database` is the way in. `schema` says what is kept; `connection` begins transactions, and again
when the server went away; the other modules are functions of a transaction, a subject each.
"""

from __future__ import annotations

from etscope.lab.database.database import Database
from etscope.lab.database.tokens import SCOPES, Token

__all__ = ["SCOPES", "Database", "Token"]
