"""What goes to a worker and what comes back: the contract between the engine and the place where
a device is.

A task is a pure function of its order: it reads files from the store, writes files to the store,
and answers. It knows no database, so a worker needs only the scheduler and the store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from etscope.lab.jobs.records import Artifact, DeviceConfig
from etscope.lab.jobs.states import State


@dataclass(frozen=True, slots=True)
class Order:
    """One attempt at a job on a device. token: of this attempt; an answer with another one than
    the job's is of an attempt that was given up. store: URL of the artefact store."""

    job_id: str
    attempt: int
    token: str
    spec: Mapping[str, Any]
    device: DeviceConfig
    store: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended. state: a final one. summary, environment, marks, error, error_slug: as
    in `Job`. Artefacts are in the store already. busy_seconds: how long it had the device."""

    job_id: str
    token: str
    state: State
    summary: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    error: str = ""
    error_slug: str = ""
    busy_seconds: float = 0.0


def place_of(field: str, name: str) -> str:
    """Where a job's file is in the folder of `etscope.lab.worker.measure`: "files/model-net.pte".

    field: of `JobSpec.files`. name: as submitted, by anybody; only its harmless letters are taken.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", PurePosixPath(name).name)[-100:].lstrip(".")
    return f"files/{field}-{safe}" if safe else f"files/{field}"
