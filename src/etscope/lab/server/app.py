"""The application: the API, its documentation, signing in, and the pages."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from etscope._version import __version__
from etscope.errors import MissingDataError
from etscope.lab.pages import router as pages
from etscope.lab.server import files, jobs, security, service
from etscope.lab.server.errors import install_error_handlers
from etscope.lab.server.middleware import BodyLimit, SafeHeaders, SameOrigin
from etscope.lab.server.settings import Settings

if TYPE_CHECKING:
    from etscope.lab.lab import Lab

API = "/api/v1"
_DESCRIPTION = """Benchmark models on the devices of this lab.

Submit a job with `POST /api/v1/jobs`; upload its files first, by content, with `PUT
/api/v1/files/{sha256}`. Every error response has the same body: `error`, `slug`, `hint`."""

# The API's documentation page: Swagger UI, whose files come from a package and so from this server.
_documentation = APIRouter(include_in_schema=False)
_FILES = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>etscope lab: API</title>
<link rel="stylesheet" href="/api/docs/swagger-ui.css">
<link rel="icon" href="data:,">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/api/docs/swagger-ui-bundle.js"></script>
<script src="/api/docs/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "/api/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
});
"""


@_documentation.get("/api/docs", response_model=None)
def documentation(request: Request) -> HTMLResponse:
    return HTMLResponse(_PAGE)


@_documentation.get("/api/docs/{name}", response_model=None)
def documentation_file(name: str) -> Response:
    if name == "start.js":
        return Response(_START, media_type="text/javascript; charset=utf-8")
    if name not in _FILES:
        raise MissingDataError("there is no such file")
    data = resources.files("fastapi_swagger.resources").joinpath(name).read_bytes()
    headers = {"Cache-Control": "public, max-age=86400"}
    return Response(data, media_type=_FILES[name], headers=headers)


def create_app(lab: Lab, settings: Settings | None = None) -> FastAPI:
    """Return the application that serves a lab. It does not close the lab.

    `app.state` has `lab`, `settings`, `authenticator` and `is_stopping`.
    """
    settings = settings or Settings()
    app = FastAPI(
        title="etscope lab",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.lab, app.state.settings = lab, settings
    app.state.is_stopping = lambda: False  # replaced by the server's own
    app.state.authenticator = security.Authenticator(lab.database, settings)
    for operations in (jobs, files, service):
        app.include_router(operations.router, prefix=API)
    app.include_router(_documentation)
    app.include_router(security.router)
    app.include_router(pages.router(lab))
    install_error_handlers(app)
    # A request passes the one added last first.
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(SameOrigin, settings=settings)
    app.add_middleware(SafeHeaders)
    return app
