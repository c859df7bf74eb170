"""This machine and one over ssh, which say that nothing else runs on them.

Results of a busy device are not judged, and tests run beside others. Only what these devices say of
load and clock is made up: programs, times and files are real. Drivers: "lab_support.quiet_devices:
QuietHost" and "…:QuietSsh", with the options of `host` and `ssh`.
"""

from __future__ import annotations

from collections.abc import Sequence

from etscope.run.ssh import Ssh
from etscope_lab.devices.host import Host

_LOADS = ("/proc/loadavg", "/proc/stat", "/sys/devices/system/cpu")


def _quiet(found: dict[str, str]) -> dict[str, str]:
    kept = {path: text for path, text in found.items() if not path.startswith(_LOADS)}
    return {**kept, "/proc/loadavg": "0.00 0.00 0.00 1/100 1\n"}


class QuietHost(Host):
    def read(self, paths: Sequence[str]) -> dict[str, str]:
        return _quiet(super().read(paths))


class QuietSsh(Ssh):
    def read(self, paths: Sequence[str]) -> dict[str, str]:
        return _quiet(super().read(paths))
