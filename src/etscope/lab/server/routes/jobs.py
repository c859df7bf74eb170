"""Jobs: submit, look, wait, stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool

from etscope.errors import UsageError
from etscope.lab.jobs.records import Filter, Job, JobEvent, Page, State
from etscope.lab.jobs.spec import SHA256, FileRef, JobSpec
from etscope.lab.server.errors import Refused, answers
from etscope.lab.server.routes._common import (
    TEXT,
    JobId,
    Moment,
    Nothing,
    Reader,
    Submitter,
    Text,
    json_only,
    lab_of,
)

if TYPE_CHECKING:
    from etscope.lab.lab import Lab
    from etscope.lab.server.settings import Settings


# What goes on for a while: events of a job, and its log.


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


# A job's specification as it comes over HTTP: like any other, but files are named by content.


def _plain(schema: dict[str, Any]) -> None:
    """Instead of the conditions of `FileRef`: `sha256` is required here."""
    schema.pop("anyOf", None)


class StoredFile(FileRef):
    """A file that the lab has: `PUT /files/{sha256}` came before. A text is short for it."""

    model_config = ConfigDict(json_schema_extra=_plain)
    _short_form = r"^sha256:[0-9a-f]{64}$"
    _short_words = "sha256:…: a path means nothing to the lab, a file is sent to it before"

    path: None = Field(None, description="Means nothing to the lab.")
    sha256: str = Field(pattern=SHA256, description="Of the content.")


class SubmittedSpec(JobSpec):
    """One benchmark, accuracy or A/B job. Files are named by the SHA-256 of their content."""

    model: StoredFile = Field(description="An ETRecord that holds its program, a .pte or a .bpte.")
    etrecord: StoredFile | None = Field(None, description="Of the export, when model is a program.")
    data: StoredFile | None = Field(None, description="The program's external weights (.ptd).")
    baseline: StoredFile | None = Field(
        None, description="Of an A/B job: what model is held against."
    )
    inputs: StoredFile | None = Field(
        None, description=".npz, .npy, .safetensors or .pt; else a bundle's cases, else of seed."
    )

    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.model_dump())


router = APIRouter(tags=["jobs"])

_LOG: dict[int | str, Any] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
_EVENT = {
    "type": "object",
    "required": ["id", "event", "data"],
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string", "enum": [str(state) for state in State]},
        "data": {"type": "string", "description": "JSON of a JobEvent."},
    },
}
_EVENTS: dict[int | str, Any] = {200: {"content": {"text/event-stream": {"schema": _EVENT}}}}
_job = TypeAdapter(Job)
_Label = Annotated[str, Query(pattern=r"^[^\x00-\x1f\x7f=]+=[^\x00-\x1f\x7f]*$", max_length=701)]

_Cursor = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_.:|+=-]+$", max_length=200)]
_ModelHash = Annotated[str, StringConstraints(pattern=SHA256)]
_Kind = Literal["benchmark", "accuracy", "ab"]


@router.post(
    "/jobs",
    status_code=201,
    response_model=Job,
    dependencies=[Depends(json_only)],
    responses={
        **answers(404, 413, 415, 422),
        200: {"model": Job, "description": "A job of the same content, which was there already."},
    },
)
def submit_job(
    request: Request,
    wish: SubmittedSpec,
    who: Submitter,
    again: Annotated[
        bool, Query(description="Even if there is a job of the same content.")
    ] = False,
    submitter: Annotated[
        str, Query(pattern=TEXT, max_length=200, description="Unless a token tells.")
    ] = "",
) -> Response:
    """Queue a job. Its files are named by content, and are in the lab already (`PUT /files`)."""
    name = who.name or submitter
    job, new = lab_of(request).submit_new(wish.spec(), again=again, submitter=name)
    body = _job.dump_python(job, mode="json")
    return JSONResponse(body, 201 if new else 200, {"Location": f"/api/v1/jobs/{job.id}"})


@router.get("/jobs", response_model=Page, responses=answers(404, 422))
def list_jobs(
    request: Request,
    _: Reader,
    state: Annotated[list[State], Query(description="Any of these.")] = [],  # noqa: B006
    device: Text = None,
    kind: _Kind | Nothing = None,
    model: _ModelHash | Nothing = None,
    text: Text = None,
    label: Annotated[list[_Label], Query(description="key=value; all of these.")] = [],  # noqa: B006
    since: Moment | Nothing = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: _Cursor | Nothing = None,
) -> Page:
    """Jobs, the newest first: those for which everything holds that is given. `state`: any of
    these. `model`: the SHA-256 of its file. `next` is the cursor of the rest."""
    labels = dict(pair.split("=", 1) for pair in label)
    wanted = Filter(tuple(state), device, kind, model, text, labels or None, since)
    try:
        return lab_of(request).jobs(wanted, limit=limit, cursor=cursor)
    except UsageError as error:  # of the rest, all is known to be right
        raise Refused(404, error.message, hint=error.hint) from error


@router.get("/jobs/{job_id}", response_model=Job, responses=answers(404, 422))
def get_job(request: Request, _: Reader, job_id: JobId) -> Job:
    return lab_of(request).job(job_id)


@router.get("/jobs/{job_id}/events", response_model=list[JobEvent], responses=answers(404, 422))
def list_events(request: Request, _: Reader, job_id: JobId) -> list[JobEvent]:
    """What happened to a job, oldest first."""
    return list(lab_of(request).events(job_id))


@router.get(
    "/jobs/{job_id}/events/stream",
    response_class=StreamingResponse,
    responses={**answers(404, 422), **_EVENTS},
)
def stream_events(
    request: Request,
    _: Reader,
    job_id: JobId,
    last_event_id: Annotated[
        str, Header(pattern=r"^[0-9]{1,9}$", description="What was seen already.")
    ] = "0",
) -> StreamingResponse:
    """The events of a job as they come, as server-sent events: `id` counts them, `event` is the
    state, `data` the JSON of `GET /jobs/{job_id}/events`. It ends with the job, or after a minute;
    a browser then asks again by itself."""
    job = lab_of(request).job(job_id)
    seen = int(last_event_id)
    lines = events(request.app, job.id, seen)
    return StreamingResponse(lines, media_type="text/event-stream", headers=AT_ONCE)


@router.get(
    "/jobs/{job_id}/log",
    response_class=Response,
    responses={**answers(404, 422), **_LOG},
)
def read_log(
    request: Request,
    _: Reader,
    job_id: JobId,
    offset: Annotated[int, Query(ge=0, le=2**40, description="Bytes to leave out.")] = 0,
    follow: Annotated[bool, Query(description="Until the job ends, or for a minute.")] = False,
) -> Response:
    """What the job's processes said, as UTF-8; of a job at work, so far. What follows begins at
    `offset` + the bytes that came."""
    lab = lab_of(request)
    headers = {"Content-Security-Policy": "sandbox; default-src 'none'"}
    media_type = "text/plain; charset=utf-8"
    job = lab.job(job_id)
    if follow:
        pieces = log(request.app, job.id, offset)
        headers |= AT_ONCE
        return StreamingResponse(pieces, media_type=media_type, headers=headers)
    return Response(lab.log(job.id).encode()[offset:], media_type=media_type, headers=headers)


@router.post("/jobs/{job_id}/cancel", response_model=Job, responses=answers(404, 409, 422))
def cancel_job(request: Request, _: Submitter, job_id: JobId) -> Job:
    """Stop a job: a queued one at once, one at work soon. 409: it has ended."""
    try:
        return lab_of(request).cancel(job_id)
    except UsageError as error:
        raise Refused(409, error.message, hint=error.hint) from error
