"""The resident memory of this process."""

from __future__ import annotations

import os
import sys

__all__ = ["Resident"]

_MARK = b"VmHWM:"
_PEAK = "resident memory of this process, from the kernel's high-water mark of each stage (VmHWM)"
_SO_FAR = (
    "the highest resident memory of this process so far (getrusage): a stage that does not raise "
    "it has the peak of an earlier one"
)


class Resident:
    """Peaks of the resident memory of this process, in bytes, between calls of `take`.

    source: what the numbers are, or None on a system without them. On Linux, the kernel's
    high-water mark is set back at each call. The files stay open: opening them takes longest.
    """

    def __init__(self) -> None:
        self.source: str | None = _PEAK
        try:
            self._open()
            self._set_back()
        except OSError:
            self.source = _SO_FAR if self._highest() else None

    def take(self) -> int:
        """Return the peak since the last call; the peak so far where the kernel has no mark to set
        back; 0 without a source."""
        if self.source != _PEAK:
            return self._highest()
        content = os.pread(self._status.fileno(), 1 << 12, 0)
        self._set_back()
        begin = content.index(_MARK) + len(_MARK)
        return int(content[begin : content.index(b"kB", begin)]) * 1024

    def _open(self) -> None:
        self._status = open("/proc/self/status", "rb", buffering=0)  # noqa: PTH123, SIM115
        self._clear = open("/proc/self/clear_refs", "wb", buffering=0)  # noqa: PTH123, SIM115

    def _set_back(self) -> None:
        self._clear.write(b"5")

    @staticmethod
    def _highest() -> int:
        if sys.platform == "win32":
            return 0
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
