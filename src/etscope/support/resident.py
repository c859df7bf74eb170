"""The resident memory of this process."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["Resident", "status_bytes"]

_PEAK = "resident memory of this process, from the kernel's high-water mark of each stage (VmHWM)"
_SO_FAR = (
    "the highest resident memory of this process so far (getrusage): a stage that does not raise "
    "it has the peak of an earlier one"
)


def status_bytes(field: str) -> int | None:
    """Return a field of Linux' /proc/self/status in bytes; None on other systems. `getrusage`
    includes the parent's memory."""
    with suppress(OSError), open("/proc/self/status", "rb") as file:  # noqa: PTH123 - half the time
        for line in file:
            if line.startswith(field.encode()):
                return int(line.split()[1]) * 1024
    return None


class Resident:
    """Peaks of the resident memory of this process, in bytes, between calls of `take`.

    source: what the numbers are, or None on a system without them. On Linux, the kernel's
    high-water mark is set back at each call.
    """

    def __init__(self) -> None:
        self.source: str | None = _PEAK
        try:
            self._set_back()
        except OSError:
            self.source = _SO_FAR if self._highest() else None

    def take(self) -> tuple[int, int]:
        """Return the peak since the last call, and the memory now; both are the peak so far where
        the kernel has no mark to set back, and 0 without a source."""
        if self.source != _PEAK:
            return self._highest(), self._highest()
        found = status_bytes("VmHWM") or 0, status_bytes("VmRSS") or 0
        self._set_back()
        return found

    @staticmethod
    def _set_back() -> None:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    @staticmethod
    def _highest() -> int:
        if sys.platform == "win32":
            return 0
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
