"""What the operations share: the lab, the types of their parameters, streams."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Path, Request
from pydantic import AwareDatetime, BeforeValidator, StringConstraints
from pydantic.json_schema import SkipJsonSchema

from etscope.lab.server.errors import Refused
from etscope.lab.server.security import Principal, needs

if TYPE_CHECKING:
    from etscope.lab.lab import Lab
    from etscope.lab.server.settings import Settings

# No control characters: PostgreSQL takes no NUL, and a log or a terminal none of them.
TEXT = r"^[^\x00-\x1f\x7f]*$"
ID = r"^[0-9A-Za-z_-]+$"

JobId = Annotated[
    str,
    Path(pattern=ID, max_length=64, description="Of a job, or an unambiguous beginning of it."),
]
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="Of the content, in hex.")]
# A parameter that is not given is None; no text in a URL is.
Nothing = SkipJsonSchema[None]
Text = Annotated[str, StringConstraints(pattern=TEXT, max_length=200)] | Nothing

_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def _moment(value: Any) -> Any:
    """Of what pydantic takes for a time, only RFC 3339: numbers are none."""
    if value is None or (isinstance(value, str) and _MOMENT.fullmatch(value)):
        return value
    raise ValueError("a time is like 2026-11-30T12:00:00Z")


Moment = Annotated[AwareDatetime, BeforeValidator(_moment)]

Reader = Annotated[Principal, Depends(needs("read"))]
Submitter = Annotated[Principal, Depends(needs("submit"))]
Admin = Annotated[Principal, Depends(needs("admin"))]


def lab_of(request: Request) -> Lab:
    lab: Lab = request.app.state.lab
    return lab


def settings_of(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def json_only(request: Request) -> None:
    """Refuse bodies that do not say that they are JSON: those a form of another site could send."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise Refused(415, "the body is sent as application/json")
