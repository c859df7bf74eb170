"""What every request has to pass before anything reads it, and the headers of every answer."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from etscope.errors import LabError, UsageError
from etscope.lab.server.errors import Refused, body_of
from etscope.lab.server.settings import Settings
from etscope.reporting.serve import is_own_name

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_UPLOAD = re.compile(r"/api/v1/files/[^/]*")

# Answers that need more of a browser set their own; this one is for pages made of our templates.
PAGE_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
# For what came out of a job or an upload: it runs nothing, and is of no origin.
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
    """Headers of every answer that it does not set itself."""

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
    """Refuses requests by a name that is not this server's (a name of another site can be made to
    lead here), and those that change something and come from another site.

    Browsers send `Origin` with every POST, and the newer ones `Sec-Fetch-Site`; clients that are no
    browsers send neither.
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
            await _refuse(Refused(403, fault, slug=LabError.slug), send)

    def _fault(self, method: str, headers: Headers) -> str | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return "this server is not known by that name"
        if method in _SAFE:
            return None
        origins = headers.getlist("origin")
        if any(urlsplit_host(origin) != hosts[0].lower() for origin in origins):
            return "this request comes from another site"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "this request comes from another site"
        return None

    def _is_own(self, host: str) -> bool:
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        return name.lower() in self._names or is_own_name(host, self._host)


def urlsplit_host(origin: str) -> str | None:
    """Host and port of an `Origin`; None for "null" and for what is none."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") and parts.netloc else None


class BodyLimit:
    """Refuses bodies that are too large: by what the request says before it is read, and by what
    comes while it is."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        upload = scope["method"] == "PUT" and _UPLOAD.fullmatch(scope["path"])
        limit = self._settings.max_upload_bytes if upload else self._settings.max_body_bytes
        said = Headers(scope=scope).get("content-length")
        if said is not None and not (said.isascii() and said.isdigit()):
            await _refuse(Refused(400, "Content-Length is no number", slug=UsageError.slug), send)
            return
        if said is not None and (len(said) > 18 or int(said) > limit):
            await _refuse(_too_large(limit), send)
            return
        count = 0

        async def counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > limit:
                raise _too_large(limit)
            return message

        await self._app(scope, counted, send)


def _too_large(limit: int) -> Refused:
    return Refused(413, f"more than the {limit:,} bytes that are taken here", slug=UsageError.slug)


async def _refuse(error: Refused, send: Send) -> None:
    """Answer without the application. The connection ends: the body was not read."""
    body = json.dumps(body_of(error)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
