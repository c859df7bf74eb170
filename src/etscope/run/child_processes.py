"""Processes that must not outlive the one that starts them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys


def end_with_parent() -> None:
    """Ask Linux to end this process when its parent dies, of SIGKILL for one."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG in <sys/prctl.h>
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End what is left of a process that began a group, and of the group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
