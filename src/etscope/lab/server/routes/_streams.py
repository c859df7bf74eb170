"""What goes on for a while: events of a job, and its log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool

from etscope.lab.jobs.records import JobEvent

if TYPE_CHECKING:
    from etscope.lab.lab import Lab
    from etscope.lab.server.settings import Settings

_ALIVE_SECONDS = 10.0  # a word now and then, for proxies that wait no longer
AT_ONCE = {"X-Accel-Buffering": "no"}  # a header that nginx knows: it would wait for 4 KiB
_event = TypeAdapter(JobEvent)


async def events(app: Starlette, job_id: str, seen: int) -> AsyncIterator[str]:
    """Server-sent events of a job, from the one after the first `seen`."""
    lab: Lab = app.state.lab
    settings: Settings = app.state.settings
    end = time.monotonic() + settings.stream_seconds
    said = time.monotonic()
    yield "retry: 1000\n\n"
    while True:
        found = await run_in_threadpool(lab.events, job_id)
        for number, event in enumerate(found[seen:], seen + 1):
            data = _event.dump_json(event).decode()
            yield f"id: {number}\nevent: {event.state}\ndata: {data}\n\n"
            said = time.monotonic()
        seen = max(seen, len(found))
        if (found and found[-1].state.is_final) or _is_over(app, end):
            return
        if time.monotonic() - said >= _ALIVE_SECONDS:
            yield ": still here\n\n"
            said = time.monotonic()
        await asyncio.sleep(settings.look_seconds)


async def log(app: Starlette, job_id: str, offset: int) -> AsyncIterator[bytes]:
    """A job's log from a byte on, as it grows."""
    lab: Lab = app.state.lab
    settings: Settings = app.state.settings
    end = time.monotonic() + settings.stream_seconds
    while True:
        job = await run_in_threadpool(lab.job, job_id)  # before its log: then that is whole
        text = (await run_in_threadpool(lab.log, job_id)).encode()
        if len(text) > offset:
            yield text[offset:]
            offset = len(text)
        if job.state.is_final or _is_over(app, end):
            return
        await asyncio.sleep(settings.look_seconds)


def _is_over(app: Starlette, end: float) -> bool:
    """Whether a stream has lasted long enough, or the server is about to end."""
    return time.monotonic() >= end or app.state.ending()
