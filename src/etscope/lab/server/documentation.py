"""The API's documentation page: Swagger UI, with files that come with a package and so from this
server."""

from __future__ import annotations

from importlib import resources

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from etscope.errors import MissingDataError

router = APIRouter(include_in_schema=False)

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


@router.get("/api/docs", response_model=None)
def page(request: Request) -> HTMLResponse:
    return HTMLResponse(_PAGE)


@router.get("/api/docs/{name}", response_model=None)
def file(name: str) -> Response:
    if name == "start.js":
        return Response(_START, media_type="text/javascript; charset=utf-8")
    if name not in _FILES:
        raise MissingDataError("there is no such file")
    data = resources.files("fastapi_swagger.resources").joinpath(name).read_bytes()
    return Response(data, media_type=_FILES[name], headers=_KEPT)
