"""Devices of every driver on this machine, for the tests of the lab."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from etscope.run.native import find_runner
from etscope_lab.jobs.records import DeviceConfig
from lab_support import adb_device
from tests.support import sshd
from tests.support.waiting import PATIENCE

KINDS = ("host", "ssh", "adb", "adb with shell_v2")

_PROPERTIES = (
    "case $1 in ro.build.version.release) echo 14;; ro.product.model) echo 'Scripted Phone';; esac"
)
_BATTERY = "echo '  level: 80'; echo '  scale: 100'; echo '  status: 3'"


@contextmanager
def device_of(kind: str, folder: Path) -> Iterator[DeviceConfig]:
    """The configuration of a device that can be reached as long as this lasts; skips the test where
    it cannot be had."""
    with ExitStack() as stack:
        options: dict[str, Any] = {}
        if kind == "ssh":
            _skip_unless(sshd.missing())
            options = {**stack.enter_context(sshd.serving(folder)).options}
        elif kind.startswith("adb"):
            _skip_unless(adb_device.missing())
            programs = {"getprop": _PROPERTIES, "dumpsys": _BATTERY}
            features = "shell_v2,cmd" if "v2" in kind else ""
            options = stack.enter_context(adb_device.plugged_in(folder, features, **programs))[1]
        if kind != "host":
            options["push_runner"] = str(find_runner())
        yield DeviceConfig(f"the {kind}", kind.partition(" ")[0], options)


def ended(pid: int) -> bool:
    """Whether a process is gone, which is waited for."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not _runs(pid):
            return True
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.kill(pid, 9)  # not left behind by a test that fails
    return False


def written(path: Path) -> str:
    """The text of a file that somebody is about to write."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(FileNotFoundError):
            text = path.read_text()
            if text.endswith("\n"):
                return text.strip()
        time.sleep(0.02)
    raise AssertionError(f"nobody wrote {path}")


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _skip_unless(missing: str | None) -> None:
    if missing is not None:
        pytest.skip(missing)
