"""Runs of a matrix on other devices than this machine: what a package that has devices offers.

The entry point `lab` of the group `etscope.devices` is such a package's `Devices`; etscope-lab has
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from etscope.analysis.statistics.compare_samples import Verdict
from etscope.errors import MissingDependencyError

__all__ = ["DeviceJob", "Devices"]

ENTRY_POINTS = "etscope.devices"


@dataclass(frozen=True, slots=True)
class DeviceJob:
    """A program to run on a device.

    name: of the job in lists. device: its name, or attributes. inputs: a file of the method's
    inputs.
    """

    name: str
    device: str
    program: Path
    record: Path
    method: str
    inputs: Path
    threads: int


class Devices(Protocol):
    """Runs programs on devices. The same job runs once, also when it is asked for again."""

    def start(self, job: DeviceJob) -> None:
        """Queue a job, and do not wait for it."""
        ...

    def run(self, job: DeviceJob, folder: Path) -> Sequence[float]:
        """Wait for a job, keep its run in a folder, and return the times of its executions without
        tracing, ns. Raises `EtscopeError` with the reason if the job has no result."""
        ...

    def compare(self, job: DeviceJob, baseline: DeviceJob) -> Verdict:
        """Time two programs in turn, and return the verdict on the job's times against the
        baseline's."""
        ...


def devices() -> Devices:
    """Return the devices of the installed lab. Raises `MissingDependencyError` without one."""
    for entry in entry_points(group=ENTRY_POINTS, name="lab"):
        found: Devices = entry.load()()
        return found
    raise MissingDependencyError("the lab is not installed", hint="pip install 'etscope[lab]'")
