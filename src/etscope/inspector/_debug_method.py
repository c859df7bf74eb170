"""`Inspector.debug`: a session of the debugger on what an Inspector has open."""

from __future__ import annotations

import importlib
from typing import Any

from etscope.analysis.profile.trace import Trace
from etscope.units import TimeScale

# The debugger stands above the Inspector, so it is known here by name only.
_DEBUGGER = "etscope.etdb._session"


class Debugging:
    """What an Inspector has of the debugger."""

    trace: Trace
    _source_time_scale: TimeScale

    def debug(self, inputs: Any = None) -> Any:
        """A session of ETDB (an `etscope.etdb.Session`) on this dump, its record and debug buffer.

        inputs: what the reference is run on, as the model takes it; by default the record's.
        Each command is a method of the session, and `execute` takes lines; see docs/etdb.md.
        """
        return importlib.import_module(_DEBUGGER).session_of_trace(
            self.trace, inputs=inputs, source_unit=self._source_time_scale.value
        )
