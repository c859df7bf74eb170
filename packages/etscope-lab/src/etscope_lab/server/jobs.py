"""The API's operations on jobs: submit, list, follow, cancel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool

from etscope.errors import LabError, UsageError
from etscope_lab.jobs.records import Filter, Job, JobEvent, Page, State
from etscope_lab.jobs.spec import LONGEST_FAILURE, SHA256, FileRef, JobSpec, Quality
from etscope_lab.server.errors import RequestError, error_responses
from etscope_lab.server.middleware import SANDBOX
from etscope_lab.server.parameters import (
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
    from etscope_lab.lab import Lab
    from etscope_lab.server.security import Principal
    from etscope_lab.server.settings import Settings


_KEEP_ALIVE_SECONDS = 10.0  # between comments, for proxies that close idle connections
_UNBUFFERED = {"X-Accel-Buffering": "no"}  # otherwise nginx waits for 4 KiB
_event = TypeAdapter(JobEvent)
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
_Label = Annotated[str, Query(pattern=r"^[^\x00-\x1f\x7f=]+=[^\x00-\x1f\x7f]*$", max_length=701)]
_Cursor = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_.:|+=-]+$", max_length=200)]
_ModelHash = Annotated[str, StringConstraints(pattern=SHA256)]
_Kind = Literal["benchmark", "generate", "accuracy", "ab"]


async def _event_stream(app: Starlette, job_id: str, seen: int) -> AsyncIterator[str]:
    """Yield the server-sent events of a job, after the first `seen`."""
    lab: Lab = app.state.lab
    settings: Settings = app.state.settings
    end = time.monotonic() + settings.stream_seconds
    last_sent = time.monotonic()
    yield "retry: 1000\n\n"
    while True:
        found = await run_in_threadpool(lab.events, job_id)
        for number, event in enumerate(found[seen:], seen + 1):
            data = _event.dump_json(event).decode()
            yield f"id: {number}\nevent: {event.state}\ndata: {data}\n\n"
            last_sent = time.monotonic()
        seen = max(seen, len(found))
        job_has_ended = bool(found) and found[-1].state.is_final
        if job_has_ended or time.monotonic() >= end or app.state.is_stopping():
            return
        if time.monotonic() - last_sent >= _KEEP_ALIVE_SECONDS:
            yield ": still here\n\n"
            last_sent = time.monotonic()
        await asyncio.sleep(settings.look_seconds)


async def _log_stream(app: Starlette, job_id: str, offset: int) -> AsyncIterator[bytes]:
    """Yield a job's log from a byte on, as it grows."""
    lab: Lab = app.state.lab
    settings: Settings = app.state.settings
    end = time.monotonic() + settings.stream_seconds
    while True:
        job = await run_in_threadpool(lab.job, job_id)  # before the log, which is then complete
        text = (await run_in_threadpool(lab.log, job_id)).encode()
        if len(text) > offset:
            yield text[offset:]
            offset = len(text)
        if job.state.is_final or time.monotonic() >= end or app.state.is_stopping():
            return
        await asyncio.sleep(settings.look_seconds)


class StoredFile(FileRef):
    """A file that was uploaded with `PUT /files/{sha256}`. Short form: the text "sha256:…"."""

    # Without the alternatives of `FileRef`: `sha256` is required here.
    model_config = ConfigDict(json_schema_extra=lambda schema: schema.pop("anyOf", None))
    _short_form = r"^sha256:[0-9a-f]{64}$"
    _short_words = "sha256:…: upload the file first, the lab cannot read your paths"

    path: None = Field(None, description="Not used over HTTP.")
    sha256: str = Field(pattern=SHA256, description="SHA-256 of the content.")


class SubmittedQuality(Quality):
    """A gate on the numbers of a language model, with uploaded files."""

    reference: StoredFile = Field(
        description="The program (.pte) or the ETRecord that gives the right logits."
    )
    tokens: StoredFile = Field(description="Token ids that the model continues, as text or .npy.")


class SubmittedSpec(JobSpec):
    """One benchmark, accuracy or A/B job. Files are named by the SHA-256 of their content."""

    model: StoredFile = Field(description="An ETRecord that holds its program, a .pte or a .bpte.")
    etrecord: StoredFile | None = Field(
        None, description="ETRecord of the export, if model is a program."
    )
    data: StoredFile | None = Field(None, description="The program's external weights (.ptd).")
    baseline: StoredFile | None = Field(
        None, description="For an A/B job: the model to compare with."
    )
    inputs: StoredFile | None = Field(
        None,
        description=".npz, .npy, .safetensors or .pt. Default: the test cases of a .bpte, else "
        "values generated from seed.",
    )
    prompts: StoredFile | None = Field(
        None, description="Prompts of generations: a line of token ids for each, or .npy."
    )
    quality: SubmittedQuality | None = Field(
        None, description="Limits on the logits of a language model."
    )

    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.model_dump())


@router.post(
    "/jobs",
    status_code=201,
    response_model=Job,
    dependencies=[Depends(json_only)],
    responses={
        **error_responses(404, 413, 415, 422),
        200: {"model": Job, "description": "A job of the same content exists: this is it."},
    },
)
def submit_job(
    request: Request,
    response: Response,
    wanted: SubmittedSpec,
    who: Submitter,
    again: Annotated[
        bool, Query(description="Run it even if a job of the same content exists.")
    ] = False,
    submitter: Annotated[
        str,
        Query(
            pattern=TEXT,
            max_length=200,
            description="Name of the submitter; a token's name overrides it.",
        ),
    ] = "",
    failure: Annotated[
        str,
        Query(
            pattern=TEXT,
            max_length=LONGEST_FAILURE,
            description="Why there is no program, as of a sweep: the job ends at once.",
        ),
    ] = "",
) -> Job:
    """Queue a job. Upload its files first (`PUT /files`)."""
    job, new = lab_of(request).submit_new(
        wanted.spec(),
        again=again,
        submitter=who.name or submitter,
        project=who.project,
        failure=failure,
    )
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/api/v1/jobs/{job.id}"
    return job


@router.get("/jobs", response_model=Page, responses=error_responses(404, 422))
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
    """List jobs, the newest first, that match all conditions given. `state`: any of these. `model`:
    the SHA-256 of its file. `next` is the cursor of the rest."""
    labels = dict(pair.split("=", 1) for pair in label)
    wanted = Filter(tuple(state), device, kind, model, text, labels or None, since)
    try:
        return lab_of(request).jobs(wanted, limit=limit, cursor=cursor)
    except UsageError as error:  # only the cursor can be wrong
        raise RequestError(404, error.message, hint=error.hint) from error


@router.get("/jobs/{job_id}", response_model=Job, responses=error_responses(404, 422))
def get_job(request: Request, _: Reader, job_id: JobId) -> Job:
    return lab_of(request).job(job_id)


@router.get(
    "/jobs/{job_id}/events", response_model=list[JobEvent], responses=error_responses(404, 422)
)
def list_events(request: Request, _: Reader, job_id: JobId) -> list[JobEvent]:
    """List the events of a job, the oldest first."""
    return list(lab_of(request).events(job_id))


@router.get(
    "/jobs/{job_id}/events/stream",
    response_class=StreamingResponse,
    responses={**error_responses(404, 422), **_EVENTS},
)
def stream_events(
    request: Request,
    _: Reader,
    job_id: JobId,
    last_event_id: Annotated[
        str, Header(pattern=r"^[0-9]{1,9}$", description="The last event that was received.")
    ] = "0",
) -> StreamingResponse:
    """Follow the events of a job as server-sent events: `id` counts them, `event` is the state,
    `data` the JSON of `GET /jobs/{job_id}/events`. The stream ends with the job, or after a minute;
    a browser then connects again by itself."""
    job = lab_of(request).job(job_id)
    lines = _event_stream(request.app, job.id, int(last_event_id))
    return StreamingResponse(lines, media_type="text/event-stream", headers=_UNBUFFERED)


@router.get(
    "/jobs/{job_id}/log",
    response_class=Response,
    responses={**error_responses(404, 422), **_LOG},
)
def read_log(
    request: Request,
    _: Reader,
    job_id: JobId,
    offset: Annotated[int, Query(ge=0, le=2**40, description="Bytes to skip.")] = 0,
    follow: Annotated[
        bool, Query(description="Continue until the job ends, or for a minute.")
    ] = False,
) -> Response:
    """Return the output of the job's processes as UTF-8, so far if the job is running. To continue,
    ask for `offset` + the number of bytes received."""
    lab = lab_of(request)
    headers = {"Content-Security-Policy": SANDBOX}
    media_type = "text/plain; charset=utf-8"
    job = lab.job(job_id)
    if follow:
        pieces = _log_stream(request.app, job.id, offset)
        headers |= _UNBUFFERED
        return StreamingResponse(pieces, media_type=media_type, headers=headers)
    return Response(lab.log(job.id).encode()[offset:], media_type=media_type, headers=headers)


def cancelled(lab: Lab, job_id: str, who: Principal) -> Job:
    """Stop a job for its submitter, an operator of its project, or an operator without a project.
    Raises `RequestError` for anybody else."""
    job = lab.job(job_id)
    operates = who.may("operate") and who.project in ("", job.project)
    if job.submitter not in ("", who.name) and not operates:
        raise RequestError(
            403,
            f"job {job.id} is of {job.submitter!r}, not of {who.name!r}",
            slug=LabError.slug,
            hint="its submitter or an operator can stop it",
        )
    return lab.cancel(job.id, who.name)


@router.post("/jobs/{job_id}/cancel", response_model=Job, responses=error_responses(404, 409, 422))
def cancel_job(request: Request, who: Submitter, job_id: JobId) -> Job:
    """Stop a job: a queued one at once, a running one soon. 403: it is of another submitter, and
    the token is not an operator's. 409: it has ended."""
    try:
        return cancelled(lab_of(request), job_id, who)
    except UsageError as error:
        raise RequestError(409, error.message, hint=error.hint) from error
