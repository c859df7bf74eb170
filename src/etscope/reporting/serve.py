"""`etscope serve`: reports in a browser, which follow their files."""

from __future__ import annotations

import ipaddress
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Lock
from types import FrameType
from typing import Any
from urllib.parse import parse_qs

from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.optional import require
from etscope.reporting.answers import (
    Answer,
    Application,
    Entry,
    StartResponse,
    application,
    data,
    failure,
    page,
    reports,
)
from etscope.reporting.report import ReportOptions, RunFiles, report_inputs, runs_of_files
from etscope.views.page import document_of
from etscope.views.strict_json import dumps

# The reports of files and folders, made when they are asked for, and again when files change.


Stamp = tuple[tuple[str, int, int], ...]
Find = Callable[[], list[RunFiles]]


@dataclass(frozen=True)
class _Place:
    """A report that is, or may be, there: its title and what finds its files."""

    title: str
    find: Find

    def files(self) -> list[RunFiles]:
        """The files now; none when they do not make a report (yet)."""
        try:
            return self.find()
        except EtscopeError:
            return []


class Shelf:
    """The reports of files and folders.

    paths: files, which make one report together; folders, of which each makes a report, and each
    folder in it that holds files of its own. What is added to a folder later is found. etrecord,
    debug_buffer, program: of the files, as for `runs_of_files`.

    Raises what `runs_of_files` raises, and `UsageError` when there is nothing to show at all.
    """

    def __init__(
        self,
        paths: Sequence[str],
        options: ReportOptions,
        etrecord: str | None = None,
        debug_buffer: str | None = None,
        program: str | None = None,
    ) -> None:
        self._options = options
        self._folders = [Path(path) for path in paths if Path(path).is_dir()]
        files = [path for path in paths if not Path(path).is_dir()]
        self._files: list[_Place] = []
        if files or etrecord or program:
            found = runs_of_files(files, etrecord, debug_buffer, program)
            self._files = [_Place(found[0].name, lambda: found)]
        self._made: dict[str, tuple[Stamp, bytes]] = {}
        self._making = Lock()
        if not self.entries():
            # Say what is wrong with the first, rather than show an empty list.
            runs_of_files([str(folder) for folder in self._folders[:1]])
            raise UsageError("nothing to show", hint="name ETDumps, ETRecords, .pte, or folders")

    def entries(self) -> list[Entry]:
        return [Entry(key, place.title) for key, place in self._places() if place.files()]

    def data(self, identifier: str) -> bytes:
        place = dict(self._places()).get(identifier)
        if place is None:
            raise MissingDataError(f"there is no report {identifier!r}")
        runs = place.find()
        stamp = _stamp(runs)
        with self._making:  # two at once would only be slower
            if identifier not in self._made or self._made[identifier][0] != stamp:
                document = document_of(list(report_inputs(runs, self._options)))
                self._made[identifier] = (stamp, dumps(document).encode())
            return self._made[identifier][1]

    def stamps(self) -> Mapping[str, Stamp]:
        """What tells whether the files of a report have changed, by its id."""
        return {key: _stamp(place.files()) for key, place in self._places()}

    def _places(self) -> Iterator[tuple[str, _Place]]:
        taken: set[str] = set()
        for place in (*self._files, *self._in_folders()):
            name = re.sub(r"[^\w.-]+", "-", place.title).strip("-") or "report"
            key, number = name, 1
            while key in taken:
                number += 1
                key = f"{name}-{number}"
            taken.add(key)
            yield key, place

    def _in_folders(self) -> Iterator[_Place]:
        for folder in self._folders:
            yield _place(folder, folder.absolute().name or str(folder))
            try:
                below = sorted(path for path in folder.iterdir() if path.is_dir())
            except OSError:  # gone meanwhile
                continue
            for path in below:
                yield _place(path, f"{folder.absolute().name}/{path.name}")


def _place(folder: Path, title: str) -> _Place:
    return _Place(title, lambda: runs_of_files([folder]))


def _stamp(runs: Sequence[RunFiles]) -> Stamp:
    return tuple(_stat(path) for files in runs for path in files.paths)


def _stat(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:  # gone: that is a change, too
        return str(path), 0, -1
    return str(path), found.st_mtime_ns, found.st_size


class Watch:
    """Tells which reports have changed, to all who wait.

    A change is told when the files have stayed the same for one look: they are complete then.
    """

    def __init__(self, stamps: Callable[[], Mapping[str, Stamp]]) -> None:
        self._stamps = stamps
        self._told = dict(stamps())
        self._seen = dict(self._told)
        self._changes: list[str] = []
        self._news = Condition()

    def look(self) -> None:
        """Look at the files once."""
        now = dict(self._stamps())
        settled = {key for key, stamp in now.items() if self._seen.get(key) == stamp}
        changed = [key for key in settled if self._told.get(key) != now[key] and now[key]]
        self._seen = now
        if changed:
            self._told.update((key, now[key]) for key in changed)
            with self._news:
                self._changes += changed
                self._news.notify_all()

    @property
    def count(self) -> int:
        """How many changes there were: from where to wait."""
        with self._news:
            return len(self._changes)

    def after(self, count: int, timeout: float) -> list[str]:
        """The changes after the first `count`; waits for one, `timeout` seconds at most."""
        with self._news:
            self._news.wait_for(lambda: len(self._changes) > count, timeout)
            return self._changes[count:]


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
