"""The lab: benchmark models on devices, keep what was measured, and look at it.

from etscope_lab import JobSpec, Lab

with Lab.open() as lab:  # a folder of this machine; `Client(url)` is the same of a server
    job = lab.submit(JobSpec(model="model.etrecord", device="host"))
    print(lab.wait(job.id).summary)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope._lazy import lazy_names

if TYPE_CHECKING:
    from etscope_lab.client import Client
    from etscope_lab.jobs.records import State
    from etscope_lab.jobs.spec import JobSpec
    from etscope_lab.lab import Lab

__all__ = ["Client", "JobSpec", "Lab", "State"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Client": "etscope_lab.client",
        "JobSpec": "etscope_lab.jobs.spec",
        "Lab": "etscope_lab.lab",
        "State": "etscope_lab.jobs.records",
    },
)
