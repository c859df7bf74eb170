"""Error responses: JSON for the API, a page in a browser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from etscope import errors
from etscope.errors import EtscopeError

# The first class that an error is an instance of decides.
_STATUS: tuple[tuple[type[EtscopeError], int], ...] = (
    (errors.MissingDataError, 404),
    (errors.MissingFileError, 404),
    (errors.UsageError, 400),
    (errors.FormatError, 422),
    (errors.MismatchError, 409),
    (errors.LabError, 503),
    (errors.MissingDependencyError, 503),
    (errors.RuntimeFailure, 503),
)
_DESCRIPTIONS = {
    400: "The request is malformed.",
    401: "The token is missing or wrong.",
    403: "The token's scope is too small, or the request comes from another site.",
    404: "The job, file or device does not exist.",
    409: "The request conflicts with the current state.",
    413: "The body is too large.",
    415: "The content type or file type is not accepted.",
    422: "A value is invalid.",
    429: "Too many wrong tokens from this address.",
    503: "The lab's database or store cannot be reached or is full.",
}
_templates = Environment(
    loader=PackageLoader("etscope_lab.server"), autoescape=True, undefined=StrictUndefined
)


class ErrorBody(BaseModel):
    """The body of every response with a status of 400 or more."""

    error: str = Field(description="What is wrong, in one sentence.")
    slug: str = Field(description="The section of docs/reference/errors.md.")
    hint: str | None = Field(None, description="What to do.")


class RequestError(EtscopeError):
    """A request that is answered with this status. `slug` identifies the error that the client
    raises.
    """

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


def status_of(error: EtscopeError) -> int:
    if isinstance(error, RequestError):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def error_body(error: EtscopeError) -> dict[str, Any]:
    return {"error": error.message, "slug": error.slug, "hint": error.hint}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of an operation, for its OpenAPI."""
    return {
        status: {"model": ErrorBody, "description": _DESCRIPTIONS[status]}
        for status in sorted({400, 401, 403, 429, 503, *statuses})
    }


def sign_in_page(
    csrf: str,
    path: str,
    *,
    error: EtscopeError | None = None,
    status: int = 200,
    issuer: str | None = None,
) -> HTMLResponse:
    """Return the sign-in page; `path` is opened afterwards. issuer: where users can sign in."""
    text = _templates.get_template("sign_in.html").render(
        csrf=csrf, path=path, error=error, issuer=issuer
    )
    return HTMLResponse(text, status)


def install_error_handlers(app: FastAPI) -> None:
    """Make `app` answer every error in the ways of this module."""

    @app.exception_handler(EtscopeError)
    async def known(request: Request, error: EtscopeError) -> Response:
        return _error_response(request, error)

    @app.exception_handler(HTTPException)
    async def framework(request: Request, error: HTTPException) -> Response:
        """Answer unknown paths and methods, and bodies that are not JSON."""
        status, headers = error.status_code, error.headers
        slug = errors.MissingDataError.slug if status == 404 else errors.UsageError.slug
        if status == 405 and (allowed := _allowed_methods(request)) is not None:
            headers = {"Allow": allowed}
        hint = "/api/docs lists the API's operations" if status in (404, 405) else None
        return _error_response(
            request, RequestError(status, str(error.detail), slug=slug, hint=hint, headers=headers)
        )

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        faults = error.errors()
        is_json = all(fault["type"] != "json_invalid" for fault in faults)
        details = "; ".join(
            f"{'.'.join(map(str, fault['loc'][1:])) or fault['loc'][0]}: {fault['msg']}"
            for fault in faults
        )
        message = f"invalid values: {details}" if is_json else f"invalid JSON: {details}"
        # The request may hold text that cannot be encoded.
        message = message.encode("utf-8", "backslashreplace").decode()
        hint = "/api/docs describes each value"
        return _error_response(request, RequestError(422 if is_json else 400, message, hint=hint))

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        message = "this is a bug in the lab's server"
        return _error_response(request, RequestError(500, message, slug="error"))


def _error_response(request: Request, error: EtscopeError) -> Response:
    status = status_of(error)
    headers = error.headers if isinstance(error, RequestError) else {}
    path = request.url.path
    if path.startswith("/api/") or path == "/metrics":  # for programs
        return JSONResponse(error_body(error), status, headers)
    if status == 401 and request.method in ("GET", "HEAD"):
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"/sign-in?next={quote(path + query, safe='/')}", 303)
    text = _templates.get_template("failure.html").render(error=error, status=status)
    return HTMLResponse(text, status, headers)


def _allowed_methods(request: Request) -> str | None:
    """Return the methods of all operations at a path of the API, None for other paths. The
    framework's own header has only the first operation's methods."""
    paths: dict[str, dict[str, object]] = request.app.openapi()["paths"]
    for path, operations in paths.items():
        if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)), request.url.path):
            return ", ".join(sorted(method.upper() for method in operations))
    return None
