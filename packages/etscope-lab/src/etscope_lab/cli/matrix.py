"""`etscope matrix --lab`: the rows of a matrix as jobs of the lab."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etscope.analysis.statistics.compare_samples import Verdict
from etscope.errors import LabError
from etscope.formats.run_json import RUN_ETDP, RUN_JSON, read_run_json
from etscope.search.devices import DeviceJob
from etscope_lab.cli.options import LabOptions
from etscope_lab.cli.submit import wait_for
from etscope_lab.jobs.records import Job, State
from etscope_lab.jobs.spec import JobSpec, spec_of

_LAB = LabOptions(None, None, None)  # that of $ETSCOPE_LAB_SERVER, or of this machine


class LabDevices:
    """The lab's devices, for `etscope.search.matrix`."""

    def start(self, job: DeviceJob) -> None:
        with _LAB.open() as lab:
            lab.submit(_spec(job))

    def run(self, job: DeviceJob, folder: Path) -> Sequence[float]:
        with _LAB.open() as lab:
            done = _done(wait_for(lab, lab.submit(_spec(job))))
            dump, saved = lab.fetch(done.id, folder, [RUN_ETDP, RUN_JSON])
        shutil.copy(job.program, dump.with_name("model.pte"))
        shutil.copy(job.record, dump.with_name("model.etrecord"))
        untraced = read_run_json(saved).untraced
        return [float(time) for one in untraced for time in one.samples_ns]

    def compare(self, job: DeviceJob, baseline: DeviceJob) -> Verdict:
        with _LAB.open() as lab:
            other = {"kind": "ab", "baseline": str(baseline.program)}
            done = _done(wait_for(lab, lab.submit(_spec(job, **other))))
        return Verdict(done.summary["ab"]["verdict"])


def _spec(job: DeviceJob, **more: Any) -> JobSpec:
    return spec_of(
        {
            "name": job.name,
            "model": str(job.program),
            "etrecord": str(job.record),
            "device": job.device,
            "method": job.method,
            "inputs": str(job.inputs),
            "threads": job.threads,
            **more,
        }
    )


def _done(job: Job) -> Job:
    if job.state is not State.DONE:
        raise LabError(f"job {job.id} is {job.state}: {job.error}", hint="etscope lab log JOB")
    return job
