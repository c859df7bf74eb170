"""Jobs: submit, look, wait, stop."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import StringConstraints, TypeAdapter

from etscope.errors import UsageError
from etscope.lab.jobs.api import Filter, Page
from etscope.lab.jobs.records import Job, JobEvent
from etscope.lab.jobs.spec import SHA256
from etscope.lab.jobs.states import State
from etscope.lab.server.errors import Refused, answers
from etscope.lab.server.routes import _streams
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
from etscope.lab.server.submitted import SubmittedSpec

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
    lines = _streams.events(request.app, job.id, seen)
    return StreamingResponse(lines, media_type="text/event-stream", headers=_streams.AT_ONCE)


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
        pieces = _streams.log(request.app, job.id, offset)
        headers |= _streams.AT_ONCE
        return StreamingResponse(pieces, media_type=media_type, headers=headers)
    return Response(lab.log(job.id).encode()[offset:], media_type=media_type, headers=headers)


@router.post("/jobs/{job_id}/cancel", response_model=Job, responses=answers(404, 409, 422))
def cancel_job(request: Request, _: Submitter, job_id: JobId) -> Job:
    """Stop a job: a queued one at once, one at work soon. 409: it has ended."""
    try:
        return lab_of(request).cancel(job_id)
    except UsageError as error:
        raise Refused(409, error.message, hint=error.hint) from error
