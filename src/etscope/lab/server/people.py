"""The pages of the server itself: signing in, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from etscope.errors import EtscopeError

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
