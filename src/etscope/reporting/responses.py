"""Responses to the requests of the report's page, shared by its servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs

from etscope.errors import EtscopeError, MissingDataError
from etscope.views.page import built_page

# The page is one file: nothing comes from elsewhere, and its data only from this server.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; worker-src blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_HEADERS = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
_PHRASES = {200: "OK", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
            413: "Content Too Large", 422: "Unprocessable Entity"}  # fmt: skip


class Entry(NamedTuple):
    """A report in the list."""

    id: str
    title: str


class Library(Protocol):
    """Reports by id."""

    def entries(self) -> Sequence[Entry]:
        """Return all reports, in order."""
        ...

    def data(self, identifier: str) -> bytes:
        """Return a report's JSON; `MissingDataError` for an unknown id, or errors of making it."""
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    body: bytes
    content_type: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = _HEADERS

    @property
    def phrase(self) -> str:
        return f"{self.status} {_PHRASES[self.status]}"

    @property
    def all_headers(self) -> list[tuple[str, str]]:
        length = ("Content-Length", str(len(self.body)))
        return [("Content-Type", self.content_type), length, *self.headers]


def page() -> Response:
    """Return the page without data, which it then requests."""
    return Response(
        built_page().encode(),
        "text/html; charset=utf-8",
        headers=(*_HEADERS, ("Content-Security-Policy", _POLICY)),
    )


def reports(library: Library) -> Response:
    """Return the list of reports: [{id, title}]."""
    entries = [{"id": entry.id, "title": entry.title} for entry in library.entries()]
    return _json(json.dumps(entries).encode())


def data(library: Library, identifier: str | None) -> Response:
    """Return the document of a report, the first for None."""
    try:
        if identifier is None:
            entries = library.entries()
            if not entries:
                raise MissingDataError("no report exists yet")
            identifier = entries[0].id
        return _json(library.data(identifier))
    except MissingDataError as error:
        return failure(404, str(error))
    except EtscopeError as error:
        return failure(422, str(error))


def failure(status: int, text: str) -> Response:
    """Return an error message."""
    return Response(text.encode("utf-8", "backslashreplace"), "text/plain; charset=utf-8", status)


def _json(body: bytes) -> Response:
    return Response(body, "application/json")


Stamp = tuple[tuple[str, int, int], ...]


def stamp_of(paths: Iterable[Path]) -> Stamp:
    """Return the names, times and sizes of files; a deleted file has the size -1."""
    stamps = []
    for path in paths:
        try:
            found = path.stat()
            stamps.append((str(path), found.st_mtime_ns, found.st_size))
        except OSError:  # noqa: PERF203 - deleted, which is a change too
            stamps.append((str(path), 0, -1))
    return tuple(stamps)


# -- WSGI

StartResponse = Callable[..., Any]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


def application(handler: Callable[[dict[str, Any]], Response]) -> Application:
    """Return the WSGI application of a handler of GET and HEAD requests."""

    def serve(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        method = environ.get("REQUEST_METHOD", "GET")
        if method in ("GET", "HEAD"):
            response = handler(environ)
        else:
            response = failure(405, "only GET and HEAD are supported")
        start_response(response.phrase, response.all_headers)
        return [] if method == "HEAD" else [response.body]

    return serve


def library_routes(library: Library, page_path: str) -> dict[str, Application]:
    """Return the applications of the page, of the list of reports and of their data, by path."""

    def requested(environ: dict[str, Any]) -> Response:
        found = parse_qs(str(environ.get("QUERY_STRING", ""))).get("report")
        return data(library, found[0] if found else None)

    return {
        page_path: application(lambda _: page()),
        "/reports.json": application(lambda _: reports(library)),
        "/data.json": application(requested),
    }
