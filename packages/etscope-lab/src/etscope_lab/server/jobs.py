"""The API's operations on jobs: submit, list, follow, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import StringConstraints

from etscope.errors import LabError, UsageError
from etscope_lab.jobs.records import Filter, Job, JobEvent, Page, State
from etscope_lab.jobs.spec import LONGEST_FAILURE, SHA256, TEXT, JobSpec
from etscope_lab.server.errors import RequestError, error_responses
from etscope_lab.server.middleware import SANDBOX
from etscope_lab.server.parameters import (
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


router = APIRouter(tags=["jobs"])
_LOG: dict[int | str, Any] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
_Label = Annotated[str, Query(pattern=r"^[^\x00-\x1f\x7f=]+=[^\x00-\x1f\x7f]*$", max_length=701)]
_Cursor = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_.:|+=-]+$", max_length=200)]
_ModelHash = Annotated[str, StringConstraints(pattern=SHA256)]
_Kind = Literal["benchmark", "generate", "accuracy", "ab"]


@router.post(
    "/jobs",
    status_code=201,
    dependencies=[Depends(json_only)],
    responses={
        **error_responses(404, 413, 415, 422),
        200: {"model": Job, "description": "A job of the same content exists: this is it."},
    },
)
def submit_job(
    request: Request,
    response: Response,
    wanted: JobSpec,
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
    """Queue a job. Upload its files first (`PUT /files`), and name them by their SHA-256."""
    if paths := [field for field, ref in wanted.files.items() if ref.sha256 is None]:
        raise RequestError(
            422, f"{paths[0]}: the lab cannot read your paths", hint="upload the file first"
        )
    job, new = lab_of(request).submit_new(
        wanted,
        again=again,
        submitter=who.name or submitter,
        project=who.project,
        failure=failure,
    )
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/api/v1/jobs/{job.id}"
    return job


@router.get("/jobs", responses=error_responses(404, 422))
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


@router.get("/jobs/{job_id}", responses=error_responses(404, 422))
def get_job(request: Request, _: Reader, job_id: JobId) -> Job:
    return lab_of(request).job(job_id)


@router.get("/jobs/{job_id}/events", responses=error_responses(404, 422))
def list_events(request: Request, _: Reader, job_id: JobId) -> list[JobEvent]:
    """List the events of a job, the oldest first."""
    return list(lab_of(request).events(job_id))


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
) -> Response:
    """Return the output of the job's processes as UTF-8, so far if the job is running. To continue,
    ask for `offset` + the number of bytes received."""
    text = lab_of(request).log(job_id).encode()[offset:]
    headers = {"Content-Security-Policy": SANDBOX}
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)


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


@router.post("/jobs/{job_id}/cancel", responses=error_responses(404, 409, 422))
def cancel_job(request: Request, who: Submitter, job_id: JobId) -> Job:
    """Stop a job: a queued one at once, a running one soon. 403: it is of another submitter, and
    the token is not an operator's. 409: it has ended."""
    try:
        return cancelled(lab_of(request), job_id, who)
    except UsageError as error:
        raise RequestError(409, error.message, hint=error.hint) from error
