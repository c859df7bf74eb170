"""What all pages have in common: templates, headers, assets, errors as pages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from etscope._version import __version__
from etscope.errors import EtscopeError
from etscope.lab.pages import _texts
from etscope.lab.server.errors import status_of
from etscope.views.tables.text_cells import visible

_HERE = Path(__file__).parent
# By name, with the folder that has it: what hatch_build.py builds is beside what is written.
ASSETS = {
    "lab.css": (_HERE / "assets", "text/css; charset=utf-8"),
    "theme.js": (_HERE / "assets", "text/javascript; charset=utf-8"),
    "lab.js": (_HERE / "_built", "text/javascript; charset=utf-8"),
    "charts.css": (_HERE / "_built", "text/css; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Site:
    """Renders templates. Every text is escaped, and what cannot be seen is shown as an escape."""

    def __init__(self, csrf_token: Callable[[Request], str]) -> None:
        self._csrf_token = csrf_token
        self._templates = Environment(
            loader=PackageLoader("etscope.lab.pages"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(_texts.FILTERS)
        self._templates.globals.update(asset=asset_path, version=__version__)

    def page(
        self,
        request: Request,
        template: str,
        /,
        status: int = 200,
        *,
        framed: bool = False,
        **context: Any,
    ) -> HTMLResponse:
        """The page that a template makes. framed: it may stand in a frame of another page.

        In the template `base` is what stands before every path, and `csrf()` the token of forms.
        """
        base = str(request.scope.get("root_path", "")).rstrip("/")
        text = self._templates.get_template(template).render(
            base=base,
            path=_own_path(request, base),
            csrf=lambda: self._csrf_token(request),
            **context,
        )
        policy = POLICY.replace("ancestors 'none'", "ancestors 'self'") if framed else POLICY
        return HTMLResponse(text, status, headers(**{"Content-Security-Policy": policy}))

    def failure(self, request: Request, error: EtscopeError) -> HTMLResponse:
        """A page that says what is wrong."""
        status = status_of(error)
        return self.page(request, "failure.html", status, error=error, status_code=status)


def asset(name: str) -> Response | None:
    """A file of the pages; None for one that is not there."""
    folder, media_type = ASSETS.get(name, (None, ""))
    if folder is None or not (folder / name).is_file():
        return None
    # The address has a hash of the content.
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    nosniff = {"X-Content-Type-Options": "nosniff"}
    return Response((folder / name).read_bytes(), media_type=media_type, headers=kept | nosniff)


def asset_path(name: str) -> str:
    """The path of an asset, another one when its content is."""
    return f"/assets/{name}?{_mark(name)}"


@cache
def _mark(name: str) -> str:
    path = ASSETS[name][0] / name
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else "missing"


def _shown(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


def _own_path(request: Request, base: str) -> str:
    path = str(request.scope.get("path", "/"))
    return path[len(base) :] if base and path.startswith(f"{base}/") else path


def headers(**more: str) -> Mapping[str, str]:
    """The headers of an answer that is no page: `more` overrides."""
    return {**_HEADERS, **more}
