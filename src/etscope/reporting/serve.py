"""`etscope serve`: reports in a browser, which follow their files."""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any
from urllib.parse import parse_qs

from etscope.errors import UsageError
from etscope.optional import require
from etscope.reporting.answers import (
    Answer,
    Application,
    StartResponse,
    application,
    data,
    failure,
    page,
    reports,
)
from etscope.reporting.report_store import Shelf, Watch

WANTED_BY = "etscope serve"
_LOOK_SECONDS = 0.5  # between looks at the files
_ALIVE_SECONDS = 10.0  # a word now and then, which fails when the browser went away


def wsgi_application(shelf: Shelf, watch: Watch, host: str = "127.0.0.1") -> Application:
    """All routes: the page, its data, the list of reports, and the events of changes.

    A path is looked up in a table and never in the file system. Requests by another name of this
    machine than its own are refused: a page of somewhere else whose name was made to lead here
    must not read what only this machine may.
    """
    routes: dict[str, Application] = {
        "/": application(lambda _: page()),
        "/reports.json": application(lambda _: reports(shelf)),
        "/data.json": application(lambda environ: data(shelf, _wanted(environ))),
        "/events": lambda environ, start: _events(watch, environ, start),
    }
    unknown = application(lambda _: failure(404, "there is nothing of this name"))
    foreign = application(lambda _: failure(403, "this server is not known by that name"))

    def serve(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if not is_own_name(str(environ.get("HTTP_HOST", "")), host):
            return foreign(environ, start_response)
        route = routes.get(str(environ.get("PATH_INFO", "")), unknown)
        return route(environ, start_response)

    return serve


def _wanted(environ: dict[str, Any]) -> str | None:
    found = parse_qs(str(environ.get("QUERY_STRING", ""))).get("report")
    return found[0] if found else None


def _events(
    watch: Watch, environ: dict[str, Any], start_response: StartResponse
) -> Iterable[bytes]:
    """Server-sent events: the id of each report that changed."""
    answer = Answer(b"", "text/event-stream")
    start_response(answer.phrase, [("Content-Type", answer.content_type), *answer.headers])
    return [] if environ.get("REQUEST_METHOD") == "HEAD" else event_stream(watch)


def event_stream(watch: Watch, seconds: float = _ALIVE_SECONDS) -> Iterator[bytes]:
    """The stream's text, without end; a comment when `seconds` pass without a change."""
    count = watch.count
    yield b"retry: 1000\n\n"
    while True:
        changed = watch.after(count, seconds)
        count += len(changed)
        if not changed:
            yield b": still here\n\n"
        for identifier in dict.fromkeys(changed):
            yield f"data: {identifier}\n\n".encode()


def is_own_name(header: str, host: str) -> bool:
    """Whether a `Host` header names this machine, which listens at `host`.

    On the loopback these are its address and "localhost". Elsewhere any address does (a name can be
    made to lead anywhere, an address cannot), and the machine's own name.
    """
    name = header.rpartition(":")[0] if _has_port(header) else header
    name = name.strip("[]").lower().rstrip(".")
    address = _address(name)
    if _is_loopback(host):
        return name == "localhost" or (address is not None and address.is_loopback)
    return address is not None or name in ("localhost", host.lower(), socket.gethostname().lower())


def _has_port(header: str) -> bool:
    return ":" in header.rpartition("]")[2]


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


# -- to run it


def serve(
    shelf: Shelf,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ready: Callable[[str], object] = lambda _: None,
) -> None:
    """Serve until SIGINT or SIGTERM, then return. `ready` gets the address when it is listened at;
    port 0 is any that is free.

    Raises `MissingDependencyError` without werkzeug, `UsageError` for an address that cannot be
    listened at.
    """
    require("werkzeug", wanted_by=WANTED_BY)
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):  # type: ignore[misc]
        """No line for each request."""

        def log_request(self, *_: object) -> None:
            pass

    watch = Watch(shelf.stamps)
    app = wsgi_application(shelf, watch, host)
    if not 0 <= port <= 65535:
        raise UsageError(f"{port} is no port: they go to 65535")
    try:
        server = make_server(host, port, app, threaded=True, request_handler=Quiet)
    except (OSError, SystemExit) as error:  # werkzeug exits when a port is taken
        raise UsageError(
            f"cannot listen at {host}:{port}", hint="another port: --port 0 takes a free one"
        ) from error
    server.daemon_threads = True  # streams of events do not keep the process
    ended = threading.Event()
    watching = threading.Thread(target=_look_until, args=(ended, watch), daemon=True)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    with _signals_end(ended):
        watching.start()
        serving.start()
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{server.server_port}/")
        while not ended.wait(3600):
            pass
    server.shutdown()
    server.server_close()


def _look_until(ended: threading.Event, watch: Watch) -> None:
    while not ended.wait(_LOOK_SECONDS):
        watch.look()


class _signals_end:  # noqa: N801 - used like a function
    """While it lasts, SIGINT and SIGTERM set an event. A shell that starts a job in the background
    lets it ignore SIGINT: here it counts all the same."""

    def __init__(self, ended: threading.Event) -> None:
        self._ended = ended
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._end)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ended.set()
