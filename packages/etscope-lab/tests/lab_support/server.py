"""A lab with jobs in it, and its server: for tests of the API, the client and the pages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etscope_lab.jobs.records import Job, Outcome, State
from etscope_lab.jobs.spec import JobSpec
from etscope_lab.lab import Lab
from etscope_lab.server.app import address_of, listen, server_of
from etscope_lab.server.settings import Settings
from tests.support.artifacts import artifacts

LATENCY = {
    "load_ms": 3.0, "first_ms": 1.5, "iterations": 5, "p10_ms": 1.0, "p50_ms": 1.1, "p90_ms": 1.3,
    "mean_ms": 1.1, "stdev_ms": 0.1, "mad_ms": 0.05, "cv": 0.09, "min_ms": 0.9, "max_ms": 1.4,
}  # fmt: skip


def program() -> Path:
    """A real program, small."""
    return artifacts("two_methods").pte


def a_job(lab: Lab, **fields: object) -> Job:
    """A queued job of a real program."""
    return lab.submit(JobSpec.model_validate({"model": str(program()), **fields}), again=True)


def a_done_job(lab: Lab, files: dict[str, bytes], energy: object = None, **fields: object) -> Job:
    """A job that a device did, with these files."""
    queued = a_job(lab, **fields)
    claimed = lab.database.claim(queued.id, device="host", engine="tests", token=queued.id)
    assert claimed is not None
    assert lab.database.started(queued.id, queued.id, "worker-1")
    kept = tuple(lab.store.put_stream([data], name) for name, data in files.items())
    summary = {"method": "forward", "backend": "portable", "latency": LATENCY}
    summary |= {} if energy is None else {"energy": energy}
    assert lab.database.finish(
        Outcome(queued.id, queued.id, State.DONE, summary, {"executorch": "1.5.1"}, (), kept)
    )
    return lab.job(queued.id)


@contextmanager
def running(lab: Lab, settings: Settings | None = None, port: int = 0) -> Iterator[str]:
    """The address of the lab's server, which runs in a thread meanwhile."""
    settings = settings or Settings()
    with listen(settings.host, port) as listening:
        server = server_of(lab, settings)

        def run() -> None:
            asyncio.run(server.serve(sockets=[listening]))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield address_of(listening, settings.host)
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()
