"""The application: the API, its documentation, signing in, and the pages."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from fastapi import FastAPI

from etscope._version import __version__
from etscope.lab.server import documentation, failures, sign_in
from etscope.lab.server.middleware import BodyLimit, SafeHeaders, SameOrigin
from etscope.lab.server.routes import devices, files, jobs, service, tokens
from etscope.lab.server.security import Gate
from etscope.lab.server.settings import Settings

if TYPE_CHECKING:
    from etscope.lab.lab import Lab

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
    app.include_router(documentation.router)
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
