"""The cluster of this machine: who may use it, and what is said when it cannot start."""

from __future__ import annotations

import asyncio
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock, call

import pytest
from distributed import SpecCluster
from distributed.comm import connect
from distributed.security import Security

from etscope.errors import LabError
from etscope_lab import cluster as clusters
from etscope_lab.cluster import Message, open_cluster


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
    listener = Mock()
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
        while call.logged("1", "a") not in listener.mock_calls:
            heard.get(timeout=60)(listener)
    finally:
        opened.close()
    others = (call.workers_changed(), call.logged("0", ""))
    ours = [one for one in listener.mock_calls if one not in others]
    assert ours == [call.started("1", "here"), call.logged("1", "a")]
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
