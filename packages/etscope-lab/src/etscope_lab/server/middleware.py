"""Checks of every request before anything reads it, and headers of every response."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from etscope.errors import LabError
from etscope.reporting.serve import host_name, is_own_name
from etscope_lab.server.errors import RequestError, error_body
from etscope_lab.server.settings import Settings

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_BODY_SECONDS = 60.0  # between two pieces of a body
_MOST_BYTES = 1 << 20  # of a body that is not an upload
_UPLOAD = re.compile(r"/api/v1/files/[^/]*")

# For pages made from our templates. Responses that need other rights set their own.
PAGE_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
# For content of jobs and uploads: it can run nothing, and has no origin.
SANDBOX = "sandbox; default-src 'none'"

_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


class SafeHeaders:
    """Adds the headers that a response does not set itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


class SameOrigin:
    """Rejects requests to a host name that is not this server's (another site's name can resolve to
    this address), and requests that change something and come from another site.

    Browsers send `Origin` with every POST, and newer ones `Sec-Fetch-Site`; other clients send
    neither.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._host = settings.host
        self._names = frozenset(name.lower() for name in settings.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fault = self._fault(scope["method"], Headers(scope=scope))
        if fault is None:
            await self._app(scope, receive, send)
        else:
            await _respond(RequestError(403, fault, slug=LabError.slug), send)

    def _fault(self, method: str, headers: Headers) -> str | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return "this server does not have that host name"
        if method in SAFE_METHODS:
            return None
        origins = headers.getlist("origin")
        if any(_host_of(origin) != hosts[0].lower() for origin in origins):
            return "this request comes from another site"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "this request comes from another site"
        return None

    def _is_own(self, host: str) -> bool:
        return host_name(host) in self._names or is_own_name(host, self._host)


def _host_of(origin: str) -> str | None:
    """Return host and port of an `Origin`; None for "null" and for an invalid one."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") and parts.netloc else None


class BodyLimit:
    """Reject request bodies that are too large, by their Content-Length and by the received bytes,
    and bodies that stop arriving.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        upload = scope["method"] == "PUT" and _UPLOAD.fullmatch(scope["path"])
        limit = self._settings.max_upload_bytes if upload else _MOST_BYTES
        length = Headers(scope=scope).get("content-length")
        if length is not None and not (length.isascii() and length.isdigit()):
            await _respond(RequestError(400, "Content-Length is not a number"), send)
            return
        if length is not None and (len(length) > 18 or int(length) > limit):
            await _respond(_too_large(limit), send)
            return
        count, more = 0, True
        fault: RequestError | None = None
        answered = False

        async def counted() -> Message:
            nonlocal count, more, fault
            if not more:  # whoever receives again waits for the client to leave
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), _BODY_SECONDS)
            except asyncio.TimeoutError:
                words = f"the body stopped coming for {_BODY_SECONDS:g} s"
                fault = RequestError(408, words)
                raise fault from None
            more = bool(message.get("more_body"))
            count += len(message.get("body", b""))
            if count > limit:
                fault = _too_large(limit)
                raise fault
            return message

        async def respond(message: Message) -> None:
            nonlocal answered
            if fault is None:
                answered = True
                await send(message)
            elif not answered:  # whatever the application made of the error
                answered = True
                await _respond(fault, send)

        with contextlib.suppress(ClientDisconnect):  # nobody waits for a response
            await self._app(scope, counted, respond)


def _too_large(limit: int) -> RequestError:
    return RequestError(413, f"the body has more than {limit:,} bytes")


async def _respond(error: RequestError, send: Send) -> None:
    """Respond without the application, and close the connection: the body was not read."""
    body = json.dumps(error_body(error)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
