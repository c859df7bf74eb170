"""The cluster of this machine: who may use it, and what is said when it cannot start."""

from __future__ import annotations

import asyncio
import os
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from distributed import SpecCluster
from distributed.comm import connect
from distributed.security import Security

from etscope.errors import LabError
from etscope_lab import cluster as clusters
from etscope_lab.cluster import AttemptLogged, AttemptStarted, Message, WorkersChanged, open_cluster
from tests.support.warm import SOURCES


def test_only_who_has_the_certificate_gets_in() -> None:
    opened = open_cluster(["d"], topic="t", say=lambda message: None)
    try:
        [worker] = opened.offered().values()
        for address in (opened._client.scheduler.address, worker):
            assert address.startswith("tls://127.0.0.1:")
            assert _reaches(address, opened._client.security)
            assert not _reaches(address, Security.temporary())
            assert not _reaches(address.replace("tls:", "tcp:"), Security())
    finally:
        opened.close()


def _reaches(address: str, security: Security) -> bool:
    async def ask() -> bool:
        comm = await connect(address, timeout=30, **security.get_connection_args("client"))
        try:
            await comm.write({"op": "identity", "reply": True})
            return "type" in await asyncio.wait_for(comm.read(), 60)
        finally:
            comm.abort()

    with ThreadPoolExecutor(1) as beside:  # this thread may have a browser's event loop
        try:
            return beside.submit(lambda: asyncio.run(ask())).result()
        except OSError:
            return False


def test_messages_that_no_worker_of_ours_says_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: queue.Queue[Message] = queue.Queue()
    opened = open_cluster(["d"], topic="t", say=heard.put, in_process=True)
    try:
        while heard.empty():  # until the scheduler knows that somebody listens
            opened._client.log_event("t", {"kind": "log", "token": "0", "text": ""})
            time.sleep(0.01)  # it has to get to hear this
        for message in (
            "hello",
            {"kind": "log", "token": "1"},
            {"kind": "log", "token": ["1"], "text": "a"},
            {"kind": "started", "token": "1", "by": None},
            {"kind": "unheard", "token": "1", "text": "a"},
            {"kind": "started", "token": "1", "by": "here"},
            {"kind": "log", "token": "1", "text": "a"},
        ):
            opened._client.log_event("t", message)
        said: list[Message] = []
        while AttemptLogged("1", "a") not in said:
            said.append(heard.get(timeout=60))
    finally:
        opened.close()
    ours = [
        one for one in said if not isinstance(one, WorkersChanged) and one != AttemptLogged("0", "")
    ]
    assert ours == [AttemptStarted("1", "here"), AttemptLogged("1", "a")]
    left_out = [r.getMessage() for r in caplog.records if "malformed" in r.getMessage()]
    assert len(left_out) == 5
    assert "'hello'" in left_out[0]


def test_workers_that_do_not_start_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [RuntimeError("Nanny failed to start worker process"), OSError("no memory")]
    real = clusters._local

    def fails(*arguments: object) -> SpecCluster:
        if left:
            raise left.pop()
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(clusters, "_AGAIN", (0.0, 0.0))
    monkeypatch.setattr(clusters, "_local", fails)
    opened = open_cluster(["d"], topic="t", say=lambda message: None, in_process=True)
    assert list(opened.offered()) == ["d"]
    assert opened._local is not None
    cluster = opened._local.cluster
    for server in (cluster.scheduler, *cluster.workers.values()):
        callbacks = server.periodic_callbacks  # Dask's own statistics took 5 % of a core
        assert "tick" in callbacks
        assert min(callback.callback_time for callback in callbacks.values()) >= 250  # ms
    opened.close()
    left.extend(OSError(f"no memory ({n})") for n in range(3))
    with pytest.raises(LabError, match="cannot be started on this machine: no memory"):
        open_cluster(["d"], topic="t", say=lambda message: None)


def test_a_script_that_its_workers_would_run_again(tmp_path: Path) -> None:
    script = tmp_path / "bare.py"
    script.write_text("from etscope_lab.lab import Lab\nLab.open().start_engine()\n")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(SOURCES),
        "ETSCOPE_LAB": str(tmp_path / "lab"),
    }
    ended = subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 1, ended.stderr
    assert "LabError: bare.py starts the lab's workers" in ended.stderr
    assert "freeze_support" not in ended.stderr
