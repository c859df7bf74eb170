"""The lab: benchmark models on devices, keep what was measured, and look at it.

from etscope_lab import JobSpec, Lab

with Lab.open() as lab:  # a folder of this machine; `Client(url)` is the same of a server
    job = lab.submit(JobSpec(model="model.etrecord", device="host"))
    print(lab.wait(job.id).summary)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etscope_lab.client import Client
    from etscope_lab.jobs.records import State
    from etscope_lab.jobs.spec import JobSpec
    from etscope_lab.lab import Lab

__all__ = ["Client", "JobSpec", "Lab", "State"]

_MODULES = {
    "Client": "etscope_lab.client",
    "JobSpec": "etscope_lab.jobs.spec",
    "Lab": "etscope_lab.lab",
    "State": "etscope_lab.jobs.records",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: `etscope lab --help` loads none."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
