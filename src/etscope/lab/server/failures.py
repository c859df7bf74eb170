"""Errors to answers: JSON for the API, a page for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException

from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.lab.server.errors import Refused, body_of, status_of

# The pages of the server itself: signing in, and what is wrong.


_templates = Environment(
    loader=PackageLoader("etscope.lab.server"), autoescape=True, undefined=StrictUndefined
)


def failure_page(error: EtscopeError, status: int, headers: Mapping[str, str]) -> HTMLResponse:
    text = _templates.get_template("failure.html").render(error=error, status=status)
    return HTMLResponse(text, status, dict(headers))


def sign_in_page(
    csrf: str, place: str, *, error: EtscopeError | None = None, status: int = 200
) -> HTMLResponse:
    """place: the path to go to afterwards."""
    text = _templates.get_template("sign_in.html").render(csrf=csrf, place=place, error=error)
    return HTMLResponse(text, status)


def install(app: FastAPI) -> None:
    """Let `app` answer every error as this module does."""
    app.add_exception_handler(EtscopeError, _known)
    app.add_exception_handler(HTTPException, _of_framework)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(Exception, _bug)


def answer(request: Request, error: EtscopeError) -> Response:
    """The answer to a request that raised `error`."""
    status = status_of(error)
    headers = error.headers if isinstance(error, Refused) else {}
    if request.url.path.startswith("/api/"):
        return JSONResponse(body_of(error), status, headers)
    if status == 401 and request.method in ("GET", "HEAD"):
        return RedirectResponse(f"/sign-in?next={quote(_place(request), safe='/')}", 303)
    return failure_page(error, status, headers)


def _place(request: Request) -> str:
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


async def _known(request: Request, error: Exception) -> Response:
    return answer(request, error if isinstance(error, EtscopeError) else EtscopeError(str(error)))


async def _of_framework(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: unknown paths, methods, bodies that are no JSON."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    said = error.detail if isinstance(error, HTTPException) else HTTPStatus(status).phrase
    slug = MissingDataError.slug if status == 404 else UsageError.slug
    if status == 405 and (allowed := _allowed(request)) is not None:
        headers = {"Allow": allowed}
    hint = "/api/docs lists what there is" if status in (404, 405) else None
    return answer(request, Refused(status, str(said), slug=slug, hint=hint, headers=headers))


def _allowed(request: Request) -> str | None:
    """The methods of all operations at a path of the API; the framework tells those of the first
    one. None for other paths."""
    paths: dict[str, dict[str, object]] = request.app.openapi()["paths"]
    for path, operations in paths.items():
        if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)), request.url.path):
            return ", ".join(sorted(method.upper() for method in operations))
    return None


async def _of_validation(request: Request, error: Exception) -> Response:
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    broken = any(fault["type"] == "json_invalid" for fault in faults)
    where = "; ".join(
        f"{'.'.join(map(str, fault['loc'][1:])) or fault['loc'][0]}: {fault['msg']}"
        for fault in faults
    )
    message = f"broken JSON: {where}" if broken else f"values that cannot be: {where}"
    hint = "/api/docs tells what each value may be"
    return answer(request, Refused(400 if broken else 422, _visible(message), hint=hint))


async def _bug(request: Request, error: Exception) -> Response:
    return answer(request, Refused(500, "this is a bug in the lab's server", slug="error"))


def _visible(text: str) -> str:
    """Text that can be sent: of what came in, nothing is sure."""
    return text.encode("utf-8", "backslashreplace").decode()
