"""Types of the API's parameters, and what its operations share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Path, Request
from pydantic import AwareDatetime, BeforeValidator, StringConstraints
from pydantic.json_schema import SkipJsonSchema

from etscope_lab.jobs.spec import SHA256, TEXT
from etscope_lab.server.errors import RequestError
from etscope_lab.server.security import Principal, content_type_of, needs, reader_if_any

if TYPE_CHECKING:
    from etscope_lab.lab import Lab
    from etscope_lab.server.settings import Settings

ID = r"^[0-9A-Za-z_-]+$"

JobId = Annotated[
    str,
    Path(pattern=ID, max_length=64, description="A job's id, or an unambiguous beginning of it."),
]
Sha256 = Annotated[str, Path(pattern=SHA256, description="Of the content, in hex.")]
# A parameter that is not given is None, but a URL cannot say None: keep it out of the schema.
Nothing = SkipJsonSchema[None]
Text = Annotated[str, StringConstraints(pattern=TEXT, max_length=200)] | Nothing

_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def _only_rfc_3339(value: Any) -> Any:
    """Reject the other forms of times that pydantic accepts, such as numbers."""
    if value is None or (isinstance(value, str) and _RFC_3339.fullmatch(value)):
        return value
    raise ValueError("write a time like 2026-11-30T12:00:00Z")


Moment = Annotated[AwareDatetime, BeforeValidator(_only_rfc_3339)]

Anybody = Annotated[Principal | None, Depends(reader_if_any)]
Reader = Annotated[Principal, Depends(needs("read"))]
Submitter = Annotated[Principal, Depends(needs("submit"))]
Operator = Annotated[Principal, Depends(needs("operate"))]
Admin = Annotated[Principal, Depends(needs("admin"))]


def lab_of(request: Request) -> Lab:
    lab: Lab = request.app.state.lab
    return lab


def settings_of(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def json_only(request: Request) -> None:
    """Reject bodies without the content type of JSON: a form of another site could send them."""
    if content_type_of(request) != "application/json":
        raise RequestError(415, "send the body as application/json")
