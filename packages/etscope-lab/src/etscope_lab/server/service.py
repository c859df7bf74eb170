"""The API's operations on devices, measurements over time, tokens and the service itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field

from etscope import __version__
from etscope.errors import LabError, UsageError
from etscope_lab.database import Token
from etscope_lab.jobs.records import Alarm, AlarmState, AuditEntry, Device, Series
from etscope_lab.jobs.spec import TEXT, JobSpec
from etscope_lab.monitoring import Part, Status, parts, registry_of
from etscope_lab.server.errors import RequestError, error_responses
from etscope_lab.server.parameters import (
    ID,
    Admin,
    Anybody,
    Moment,
    Nothing,
    Operator,
    Reader,
    Submitter,
    Text,
    json_only,
    lab_of,
    settings_of,
)

router = APIRouter()
metrics = APIRouter()
_devices = APIRouter(tags=["devices and history"])
_tokens = APIRouter(tags=["tokens"])
_service = APIRouter(tags=["the lab"])

_Number = Annotated[int, Field(ge=1, le=2**53)]
_Id = Annotated[str, Query(pattern=ID, max_length=64, description="A job's id.")]


@_devices.get("/devices", responses=error_responses())
def list_devices(request: Request, who: Reader) -> list[Device]:
    """List the devices and their state. Only the scope "admin" sees the options of their drivers
    (addresses, users, keys)."""
    devices = list(lab_of(request).devices())
    if who.may("admin"):
        return devices
    return [replace(one, config=replace(one.config, options={})) for one in devices]


class DeviceRequest(BaseModel):
    """Take a device out of service, or back."""

    model_config = ConfigDict(extra="forbid")

    disabled: str = Field(
        pattern=TEXT, max_length=200, description="Why it gets no more jobs; empty: it gets jobs."
    )


@_devices.post(
    "/devices/{name}",
    status_code=204,
    dependencies=[Depends(json_only)],
    responses=error_responses(404, 413, 415, 422),
)
def set_device(
    request: Request,
    who: Operator,
    name: Annotated[str, Path(pattern=TEXT, max_length=200)],
    wanted: DeviceRequest,
) -> Response:
    """Give a device no more jobs, or jobs again; the job at work ends there."""
    lab_of(request).disable_device(name, wanted.disabled, who.name)
    return Response(status_code=204)


@_devices.get("/history", responses=error_responses(422))
def get_history(
    request: Request,
    _: Reader,
    model: Text = None,
    device: Text = None,
    limit: Annotated[
        int,
        Query(
            ge=1, le=5000, description="Number of points of each series; the newest are returned."
        ),
    ] = 200,
    most: Annotated[
        int | None,
        Query(ge=1, le=5000, description="Number of series; those with the newest results."),
    ] = None,
) -> list[Series]:
    """List the results of done jobs: a series for each model, method, device and backend, with the
    verdict on each point (`standing`). `unjudged` says why a series has no verdicts."""
    return list(lab_of(request).history(model, device, limit=limit, most=most))


@_devices.get("/alarms", responses=error_responses(422))
def list_alarms(
    request: Request, _: Reader, state: Annotated[list[AlarmState] | Nothing, Query()] = None
) -> list[Alarm]:
    """List the models that became slower, or may have: the newest first."""
    return list(lab_of(request).alarms(state or ()))


class AlarmRequest(BaseModel):
    """A change of an alarm by a person."""

    model_config = ConfigDict(extra="forbid")

    state: Literal["open", "acknowledged", "closed"]


@_devices.post(
    "/alarms/{alarm_id}",
    dependencies=[Depends(json_only)],
    responses=error_responses(404, 409, 413, 415, 422),
)
def set_alarm(
    request: Request,
    who: Submitter,
    alarm_id: Annotated[str, Path(pattern=ID, max_length=64)],
    wanted: AlarmRequest,
) -> Alarm:
    """Acknowledge, close or open an alarm again. 409: its A/B job has not ended, or it was
    dismissed."""
    try:
        return lab_of(request).set_alarm(alarm_id, AlarmState(wanted.state), who.name)
    except UsageError as error:
        raise RequestError(409, error.message, hint=error.hint) from error


@_devices.get("/compare", responses=error_responses(404, 409, 422))
def compare_jobs(request: Request, _: Reader, first: _Id, second: _Id) -> dict[str, Any]:
    """Compare two done jobs: the verdict on their times, and what differs."""
    return dict(lab_of(request).compare(first, second))


TOKEN_NAME = r"^[0-9A-Za-z][0-9A-Za-z._@-]*$"
_Name = Annotated[str, Path(pattern=TOKEN_NAME, max_length=100)]


class TokenRequest(BaseModel):
    """A token to make."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=TOKEN_NAME, max_length=100)
    scopes: list[Literal["read", "submit", "operate", "admin"]] = Field(
        ["read"], min_length=1, max_length=4
    )
    project: str = Field("", pattern=f"{TOKEN_NAME}|^$", max_length=100)
    expires_at: Moment | None = None


class NewToken(BaseModel):
    """A new token. secret: what the client sends; no other response has it."""

    name: str
    secret: str


@_tokens.get("/tokens", responses=error_responses())
def list_tokens(request: Request, _: Admin) -> list[Token]:
    """List the tokens, without their secrets."""
    return lab_of(request).database.tokens()


@_tokens.post(
    "/tokens",
    status_code=201,
    dependencies=[Depends(json_only)],
    responses=error_responses(409, 413, 415, 422),
)
def add_token(request: Request, who: Admin, wanted: TokenRequest) -> NewToken:
    database = lab_of(request).database
    try:
        secret = database.add_token(
            wanted.name, wanted.scopes, wanted.expires_at, project=wanted.project, by=who.name
        )
    except UsageError as error:
        raise RequestError(409, error.message, hint=error.hint) from error
    return NewToken(name=wanted.name, secret=secret)


@_tokens.delete("/tokens/{name}", status_code=204, responses=error_responses(404, 422))
def revoke_token(request: Request, who: Admin, name: _Name) -> Response:
    """Revoke a token, and end the sessions that were started with it."""
    lab_of(request).database.revoke(name, who.name)
    return Response(status_code=204)


@_service.get("/audit", responses=error_responses(422))
def list_audit(
    request: Request,
    _: Admin,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[_Number | Nothing, Query(description="Entries with smaller numbers.")] = None,
) -> list[AuditEntry]:
    """List who cancelled jobs, changed tokens and devices, and which settings changed: the newest
    first."""
    return list(lab_of(request).audit(limit, before))


class Health(BaseModel):
    """The state of the lab. parts: of each part; the reasons are for senders that may read."""

    status: Status
    parts: dict[str, Part]
    version: str = Field(description="The version of etscope.")
    tokens: bool = Field(description="Whether requests need a token.")
    max_upload_bytes: int


@_service.get("/health", responses=error_responses())
def get_health(request: Request, who: Anybody) -> Health:
    """Check each part of the lab; without a token. "degraded": jobs may wait. 503: the database or
    the store cannot be reached."""
    found = parts(lab_of(request))
    failing = {name: one for name, one in found.items() if one.status == "failing"}
    if failing:
        reasons = [f"{name}: {one.message}" if who else name for name, one in failing.items()]
        raise RequestError(503, f"the lab is failing: {'; '.join(reasons)}", slug=LabError.slug)
    return Health(
        status="ok" if all(one.status == "ok" for one in found.values()) else "degraded",
        parts=found if who else {name: Part(one.status) for name, one in found.items()},
        version=__version__,
        tokens=request.app.state.authenticator.needs_tokens(),
        max_upload_bytes=settings_of(request).max_upload_bytes,
    )


@metrics.get("/metrics", response_class=Response, include_in_schema=False)
def get_metrics(request: Request, _: Reader) -> Response:
    """Return the lab's metrics for Prometheus, which sends a token that may read."""
    text = generate_latest(registry_of(lab_of(request)))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@_service.get("/schema", responses=error_responses())
def get_schema() -> dict[str, Any]:
    """Return the JSON Schema of a job; without a token."""
    return JobSpec.model_json_schema()


for _part in (_devices, _tokens, _service):
    router.include_router(_part)
