"""The application: the API, its documentation, signing in, and the pages."""

from __future__ import annotations

import importlib.util
from importlib import resources
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from etscope._version import __version__
from etscope.errors import MissingDataError
from etscope.lab.server import failures, sign_in
from etscope.lab.server.middleware import BodyLimit, SafeHeaders, SameOrigin
from etscope.lab.server.routes import devices, files, jobs, service, tokens
from etscope.lab.server.security import Gate
from etscope.lab.server.settings import Settings

if TYPE_CHECKING:
    from etscope.lab.lab import Lab


# The API's documentation page: Swagger UI, with files that come with a package and so from this
# server.


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
_KEPT = {"Cache-Control": "public, max-age=86400"}


@_documentation.get("/api/docs", response_model=None)
def page(request: Request) -> HTMLResponse:
    return HTMLResponse(_PAGE)


@_documentation.get("/api/docs/{name}", response_model=None)
def file(name: str) -> Response:
    if name == "start.js":
        return Response(_START, media_type="text/javascript; charset=utf-8")
    if name not in _FILES:
        raise MissingDataError("there is no such file")
    data = resources.files("fastapi_swagger.resources").joinpath(name).read_bytes()
    return Response(data, media_type=_FILES[name], headers=_KEPT)


API = "/api/v1"

_ABOUT = """Benchmark models on the devices of this lab.

Submit a job with `POST /api/v1/jobs`; its files go before it, by content, with `PUT
/api/v1/files/{sha256}`. Every error answer has the same body: `error`, `slug`, `hint`."""


def create_app(lab: Lab, settings: Settings | None = None) -> FastAPI:
    """The lab over HTTP.

    `app.state` has `lab`, `settings` and `gate` (`security.Gate`). Whoever opened the lab closes
    it.
    """
    settings = settings or Settings()
    app = FastAPI(
        title="etscope lab",
        version=__version__,
        description=_ABOUT,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.lab, app.state.settings = lab, settings
    app.state.ending = lambda: False  # whether the server is about to end
    app.state.gate = Gate(lab.database, settings)
    for routes in (jobs, files, devices, tokens, service):
        app.include_router(routes.router, prefix=API)
    app.include_router(_documentation)
    app.include_router(sign_in.router)
    if importlib.util.find_spec("etscope.lab.pages") is not None:
        from etscope.lab.pages import router

        app.include_router(router(lab))
    failures.install(app)
    # The last one added is the first that a request comes to.
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(SameOrigin, settings=settings)
    app.add_middleware(SafeHeaders)
    return app
