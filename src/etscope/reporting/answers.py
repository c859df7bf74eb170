"""What the page asks for, as pure functions: the routes of every server of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

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
            422: "Unprocessable Entity"}  # fmt: skip


class Entry(NamedTuple):
    """A report that is offered."""

    id: str
    title: str


class Library(Protocol):
    """Reports by id."""

    def entries(self) -> Sequence[Entry]:
        """All of them, the first one first."""
        ...

    def data(self, identifier: str) -> bytes:
        """The JSON of one. Raises `MissingDataError` for one that is not there, and what making it
        raises."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What to send."""

    body: bytes
    content_type: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = field(default=_HEADERS)

    @property
    def phrase(self) -> str:
        return f"{self.status} {_PHRASES[self.status]}"

    @property
    def all_headers(self) -> list[tuple[str, str]]:
        length = ("Content-Length", str(len(self.body)))
        return [("Content-Type", self.content_type), length, *self.headers]


def page() -> Answer:
    """The page without data, which it then asks for."""
    return Answer(
        built_page().encode(),
        "text/html; charset=utf-8",
        headers=(*_HEADERS, ("Content-Security-Policy", _POLICY)),
    )


def reports(library: Library) -> Answer:
    """Which reports there are: [{id, title}]."""
    entries = [{"id": entry.id, "title": entry.title} for entry in library.entries()]
    return _json(json.dumps(entries).encode())


def data(library: Library, identifier: str | None) -> Answer:
    """The document of a report; None: of the first."""
    try:
        if identifier is None:
            entries = library.entries()
            if not entries:
                raise MissingDataError("there is no report yet")
            identifier = entries[0].id
        return _json(library.data(identifier))
    except MissingDataError as error:
        return failure(404, str(error))
    except EtscopeError as error:
        return failure(422, str(error))


def failure(status: int, text: str) -> Answer:
    """An error for people."""
    return Answer(text.encode("utf-8", "backslashreplace"), "text/plain; charset=utf-8", status)


def _json(body: bytes) -> Answer:
    return Answer(body, "application/json")


# -- WSGI

StartResponse = Callable[..., Any]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


def application(handler: Callable[[dict[str, Any]], Answer]) -> Application:
    """The WSGI application of a handler; of other methods than GET and HEAD it knows nothing."""

    def serve(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        method = environ.get("REQUEST_METHOD", "GET")
        if method in ("GET", "HEAD"):
            answer = handler(environ)
        else:
            answer = failure(405, "only GET is known here")
        start_response(answer.phrase, answer.all_headers)
        return [] if method == "HEAD" else [answer.body]

    return serve
