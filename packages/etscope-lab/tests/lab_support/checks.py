"""What must hold of a lab, whatever happened to it; and jobs for simulated devices."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etscope_lab.jobs.records import Job, State
from etscope_lab.jobs.spec import JobSpec
from etscope_lab.lab import Lab
from lab_support.simulated_device import said
from tests.support.artifacts import artifacts
from tests.support.waiting import PATIENCE, until


def submit(lab: Lab, number: int = 1, project: str = "", **more: Any) -> list[Job]:
    """Queue small jobs for any simulated device; no two are the same."""
    path = str(artifacts("cnn_xnnpack").pte)
    given: dict[str, Any] = {
        "device": "sim-*",
        "iterations": 3,
        "warmup": 1,
        "traced_iterations": 0,
        **more,
    }
    return [
        lab.submit(
            JobSpec(model=path, labels={"number": str(n)}, **given), again=True, project=project
        )
        for n in range(number)
    ]


def ended(lab: Lab, jobs: Sequence[Job]) -> list[Job]:
    """The jobs when all have ended."""
    return [lab.wait(job.id, PATIENCE) for job in jobs]


def check_all_done_once(lab: Lab, jobs: Sequence[Job], controls: Sequence[Path]) -> None:
    """No job is lost, none was done twice, every file is whole, no device had two at once."""
    with tempfile.TemporaryDirectory() as folder:
        for job in ended(lab, jobs):
            assert job.state is State.DONE, (job.error, lab.events(job.id))
            states = [event.state for event in lab.events(job.id)]
            assert states.count(State.DONE) == 1
            assert sum(state.is_final for state in states) == 1
            assert {"run.json", "log.txt"} <= set(job.artifacts)
            lab.fetch(job.id, Path(folder))  # checks their content
    check_no_leftovers(lab)
    for control in controls:
        assert said(control, "overlap") == []


def check_no_leftovers(lab: Lab) -> None:
    """Every object of the store has the content that its name says, and nothing is half-written."""
    import hashlib

    store = Path(lab.home.store_url)
    objects = [path for path in (store / "sha256").rglob("*") if path.is_file()]
    for path in objects:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    # They go after the job's end is in the database.
    until(lambda: not list(lab.home.folder.glob("live/*")))
