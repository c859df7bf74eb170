"""A lab with jobs in every state, for the tests of its pages: real files, faked lives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etscope_lab.jobs.records import Artifact, Job, Outcome, State, statistics_of
from etscope_lab.jobs.spec import JobSpec, spec_of
from etscope_lab.lab import Lab
from tests.support.artifacts import artifacts

HOSTILE = "<img src=x onerror=alert(1)>\u202e</script>"
MARKS = ("the governor cannot be read", "a <virtual> machine")
SAMPLES = [20_000, 21_000, 22_000, 40_000]


def spec(**values: Any) -> JobSpec:
    """Of the small network's program."""
    return spec_of({"model": str(artifacts("cnn_xnnpack").pte), **values})


def ended(
    lab: Lab,
    wanted: JobSpec,
    state: State = State.DONE,
    files: Sequence[Artifact] = (),
    summary: Mapping[str, Any] | None = None,
    **more: Any,
) -> Job:
    """A job that went through all steps."""
    job = running(lab, wanted)
    lab.database.finish(
        Outcome(job.id, f"token {job.id}", state, summary or {}, artifacts=tuple(files), **more)
    )
    return lab.job(job.id)


def running(lab: Lab, wanted: JobSpec) -> Job:
    job = lab.submit(wanted, again=True)
    token = f"token {job.id}"
    lab.database.claim(job.id, device="host", engine="e", token=token)
    lab.database.started(job.id, token, "worker-1")
    return lab.job(job.id)


def latency() -> dict[str, Any]:
    return statistics_of(SAMPLES, 3_000_000, 9_000_000)


def measured(lab: Lab) -> list[Artifact]:
    """The files of a measured job."""
    made = artifacts("cnn_xnnpack")
    run = {
        "latencies": [
            {
                "traced": None,
                "method": "forward",
                "iterations": 4,
                "load_ns": 3_000_000,
                "first_ns": 9_000_000,
                "samples_ns": SAMPLES,
            }
        ],
        "calls": [],
    }
    reading = {"at": 100.0, "temperature_c": 41.5, "sensor": "cpu", "load": 1.0, "cores": 2}
    paths: list[tuple[Path | None, str]] = [(made.etdump_timing, "run.etdp")]
    return [
        *(lab.store.put_file(path, name) for path, name in paths if path is not None),
        lab.store.put_stream([json.dumps(run).encode()], "run.json"),
        lab.store.put_stream([json.dumps([reading]).encode()], "conditions.json"),
        lab.store.put_stream([b"round 1\n\x1b[31mred\n<b>"], "log.txt"),
    ]
