"""Errors of the API: one body for all of them, and the status that each error has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from etscope import errors

# The first class that an error is of. A hint of an answer to a request is the error's own.
_STATUS: tuple[tuple[type[errors.EtscopeError], int], ...] = (
    (errors.MissingDataError, 404),
    (errors.MissingFileError, 404),
    (errors.UsageError, 400),
    (errors.FormatError, 422),
    (errors.MismatchError, 409),
    (errors.LabError, 503),
    (errors.MissingDependencyError, 503),
    (errors.RuntimeFailure, 503),
)


class ErrorBody(BaseModel):
    """What every answer with a status of 400 or more says."""

    error: str = Field(description="One sentence for people.")
    slug: str = Field(description="The section of docs/errors.md.")
    hint: str | None = Field(None, description="What to do.")


class Refused(errors.EtscopeError):
    """A request that is answered with this status. `slug` is of the error that a client raises."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        slug: str = errors.UsageError.slug,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.slug = slug
        self.headers = dict(headers or {})


def status_of(error: errors.EtscopeError) -> int:
    if isinstance(error, Refused):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def body_of(error: errors.EtscopeError) -> dict[str, Any]:
    return {"error": error.message, "slug": error.slug, "hint": error.hint}


_WORDS = {
    400: "The request makes no sense.",
    401: "No token, or a wrong one.",
    403: "The token's scope is too small, or the request comes from another site.",
    404: "There is no such job, file or device.",
    409: "It does not go with the state that things are in.",
    413: "Too large.",
    415: "Not a type that is taken.",
    422: "A value that cannot be.",
    429: "Too many wrong tokens from this address.",
    503: "The lab's database or store is out of reach or full.",
}


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of an operation, for its OpenAPI."""
    return {
        status: {"model": ErrorBody, "description": _WORDS[status]}
        for status in sorted({400, 401, 403, 429, 503, *statuses})
    }
