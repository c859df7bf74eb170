"""The application: the API, its documentation, signing in, and the pages; and how it is served."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.sessions import SessionMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from etscope import __version__
from etscope.errors import LabError, UsageError
from etscope.reporting.serve import is_own_name
from etscope_lab.pages import router as pages
from etscope_lab.server import files, jobs, security, service
from etscope_lab.server.errors import install_error_handlers
from etscope_lab.server.middleware import BodyLimit, SafeHeaders, SameOrigin
from etscope_lab.server.settings import Settings

if TYPE_CHECKING:
    from etscope_lab.lab import Lab


API = "/api/v1"
_DESCRIPTION = """Benchmark models on the devices of this lab.

Submit a job with `POST /api/v1/jobs`; upload its files first, by content, with `PUT
/api/v1/files/{sha256}`. Every error response has the same body: `error`, `slug`, `hint`."""

# The API's documentation page: Swagger UI, whose files come from a package, so from this server.
_documentation = APIRouter(include_in_schema=False)
_OWN = Path(__file__).parent / "documentation"
_SWAGGER: list[str | tuple[str, str]] = [("fastapi_swagger", "resources")]


@_documentation.get("/api/docs", response_model=None)
def documentation() -> HTMLResponse:
    return HTMLResponse((_OWN / "page.html").read_text("utf-8"))


def create_app(lab: Lab, settings: Settings | None = None) -> FastAPI:
    """Return the application that serves a lab. It does not close the lab.

    `app.state` has `lab`, `settings` and `authenticator`.
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
    app.state.authenticator = security.Authenticator(lab.database, settings)
    for operations in (jobs, files, service):
        app.include_router(operations.router, prefix=API)
    app.include_router(service.metrics)
    app.include_router(_documentation)
    app.mount("/api/docs", StaticFiles(directory=_OWN, packages=_SWAGGER))
    app.include_router(security.router)
    app.include_router(pages.router(lab))
    install_error_handlers(app)
    # A request passes the one added last first.
    if settings.oidc is not None:  # keeps what a sign-in began with until the provider answers
        key, name = settings.key.hex(), f"{app.state.authenticator.cookie}_oidc"
        app.add_middleware(SessionMiddleware, secret_key=key, session_cookie=name, max_age=600)
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(SameOrigin, settings=settings)
    app.add_middleware(SafeHeaders)
    return app


# -- The server process: it runs the application and the engine until a signal stops it.


_GRACE_SECONDS = 5  # for running requests when the server stops
_LISTEN_BACKLOG = 512
_HEAD_SECONDS = 20.0  # from the first byte of a connection, or of a request, to its last header


def serve(
    lab: Lab,
    settings: Settings,
    *,
    port: int = 0,
    engine: Callable[[], object] | None = None,
    ready: Callable[[str], object] = lambda _: None,
) -> None:
    """Serve until SIGINT or SIGTERM, answer the running requests, and return.

    engine: starts the lab's engine, after the server is known to be able to start. `ready` is
    called with the address when the server listens; port 0 is any free port. The caller closes the
    lab, and its engine with it.

    Raises `UsageError` for an address that cannot be listened on, `LabError` for one that other
    machines can reach while the lab has no tokens.
    """
    if is_reached_by_others(settings):
        settings = settings.model_copy(update={"require_tokens": True})
        if not lab.database.tokens():
            by = settings.host
            if _is_on_loopback(settings):
                by += " through a proxy (hosts: or trusted_proxies: of lab.yaml)"
            raise LabError(
                f"others can reach {by}, and this lab has no tokens",
                hint="etscope lab token add NAME --scope admin makes a token",
            )
    listening = listen(settings.host, port)
    with listening:
        server = server_of(lab, settings)
        if engine is not None:
            engine()
        ready(address_of(listening, settings.host))
        asyncio.run(server.serve(sockets=[listening]))


def is_reached_by_others(settings: Settings) -> bool:
    """Return whether other machines can reach the server, by its address or through a proxy."""
    return not _is_on_loopback(settings) or bool(settings.hosts or settings.trusted_proxies)


def _is_on_loopback(settings: Settings) -> bool:
    return not is_own_name("192.0.2.1", settings.host)


def address_of(listening: socket.socket, host: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}/"


def listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        both = family == socket.AF_INET6  # "::" is all addresses, also those of IPv4
        return socket.create_server(
            address, family=family, backlog=_LISTEN_BACKLOG, dualstack_ipv6=both
        )
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot listen on {host}:{port} ({error})", hint="take any free port: --port 0"
        ) from error


def server_of(lab: Lab, settings: Settings) -> uvicorn.Server:
    """Return the server of a lab."""
    app = create_app(lab, settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=_GRACE_SECONDS,
        http=_PatientProtocol,
        h11_max_incomplete_event_size=64 << 10,
        ws="none",
        lifespan="on",
    )
    return _Server(config)


class _PatientProtocol(H11Protocol):
    """Closes connections on which a request begins, or none, and its headers do not come in time;
    uvicorn keeps them open for ever. For bodies see `etscope_lab.server.middleware.BodyLimit`."""

    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch(lost=True)

    def _watch(self, lost: bool = False) -> None:
        waits = not lost and self.conn.their_state is h11.IDLE
        if waits and self._end is None:
            self._end = self.loop.call_later(_HEAD_SECONDS, self.transport.close)
        elif not waits and self._end is not None:
            self._end.cancel()
            self._end = None


class _Server(uvicorn.Server):
    """Stops on SIGINT and SIGTERM and then restores the handlers; uvicorn's own server would raise
    the signal once more after it has stopped."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
