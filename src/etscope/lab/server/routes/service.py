"""The lab itself: whether it is well, and the schema of its jobs."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from etscope._version import __version__
from etscope.lab.jobs.records import Filter
from etscope.lab.jobs.spec import JobSpec
from etscope.lab.server.errors import answers
from etscope.lab.server.routes._common import lab_of, settings_of

router = APIRouter(tags=["the lab"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    version: str = Field(description="Of etscope.")
    tokens: bool = Field(description="Whether it takes a token to get in.")
    max_upload_bytes: int


@router.get("/health", response_model=Health, responses=answers())
def get_health(request: Request) -> Health:
    """Whether the lab can do its work; for everybody. 503 when its database is out of reach."""
    lab_of(request).jobs(Filter(), limit=1)
    return Health(
        version=__version__,
        tokens=request.app.state.gate.needs_tokens(),
        max_upload_bytes=settings_of(request).max_upload_bytes,
    )


@router.get("/schema", response_model=dict[str, Any], responses=answers())
def get_schema() -> dict[str, Any]:
    """The JSON Schema of a job, for everybody."""
    return JobSpec.model_json_schema()
