"""ETDB, the debugger: gdb's words for programs of ExecuTorch. See `docs/how-to/etdb.md`.

from etscope.etdb import Session

session = Session("model.etrecord", "run.etdp", "debug.bin")
session.break_("op:softmax")
print(session.run())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.etdb.session import Result, Session

__all__ = ["Result", "Session"]

__getattr__, __dir__ = lazy_names(
    __name__, {"Result": "etscope.etdb.session", "Session": "etscope.etdb.session"}
)
