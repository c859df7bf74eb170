"""`etscope report --serve`: reports in a browser, which follow their files."""

from __future__ import annotations

import atexit
import ipaddress
import re
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Condition, Lock
from typing import IO, Any
from urllib.parse import parse_qs

from etscope.capture.files import BUFFER_SUFFIXES, NOTHING, RunFiles, runs_of_files
from etscope.errors import EtscopeError, FormatError, MissingDataError, UsageError
from etscope.formats.identify import identify
from etscope.reporting.report import ReportOptions, report_inputs
from etscope.reporting.responses import (
    Application,
    Entry,
    Response,
    Stamp,
    StartResponse,
    application,
    failure,
    library_routes,
    reports,
    stamp_of,
)
from etscope.support.optional import require
from etscope.units import format_bytes
from etscope.views.output import dumps
from etscope.views.page import document_of

__all__ = ["host_name", "is_own_name"]

WANTED_BY = "etscope report --serve"
_LOOK_SECONDS = 0.5  # between looks at the files
_LONGEST_TITLE = 80  # characters: names of opened files
_MOST_BYTES = 1 << 30  # of an opened file: memory of this machine, not of the browser
TOKEN_HEADER = "etscope-token"
_ALIVE_SECONDS = 10.0  # between comments; sending one fails when the browser is gone

Find = Callable[[], list[RunFiles]]


@dataclass(frozen=True)
class _Source:
    """A possible report: its title and the function that finds its files."""

    title: str
    find: Find
    folder: Path | None = None

    def files(self) -> list[RunFiles]:
        """Return the files now; none when they do not make a report (yet)."""
        try:
            return self.find()
        except EtscopeError:
            return []


class ReportStore:
    """The reports of files and folders, made on request, and again when files change.

    paths: files, which together are one report; and folders: each is a report, and so is each
    folder in it with files. Files that are added to a folder later are found. given: options for
    the files, as for `runs_of_files`.

    Raises the errors of `runs_of_files`, and `UsageError` when there is nothing to show.
    """

    def __init__(
        self,
        paths: Sequence[str],
        options: ReportOptions,
        given: RunFiles = NOTHING,
    ) -> None:
        self._options = options
        self._folders = [Path(path) for path in paths if Path(path).is_dir()]
        files = [path for path in paths if not Path(path).is_dir()]
        self._files: list[_Source] = []
        if files or given.paths:
            found = runs_of_files(files, given)
            self._files = [_Source(found[0].name, lambda: found)]
        self._made: dict[str, tuple[Stamp, bytes]] = {}
        self._making = Lock()
        self._received: Path | None = None
        if not self.entries():
            # Raise the error of the first folder instead of showing an empty list.
            runs_of_files([str(folder) for folder in self._folders[:1]])
            raise UsageError("nothing to show", hint="name ETDumps, ETRecords, .pte, or folders")

    def entries(self) -> list[Entry]:
        return [Entry(key, source.title) for key, source in self._sources() if source.files()]

    def data(self, identifier: str) -> bytes:
        source = dict(self._sources()).get(identifier)
        if source is None:
            raise MissingDataError(f"no report has the name {identifier!r}")
        runs = source.find()
        stamp = _stamp(runs)
        with self._making:  # two at once would only be slower
            if identifier not in self._made or self._made[identifier][0] != stamp:
                document = document_of(list(report_inputs(runs, self._options)))
                self._made[identifier] = (stamp, dumps(document).encode())
            return self._made[identifier][1]

    def receive(self, drop: str, name: str, content: IO[bytes], size: int) -> str:
        """Keep a file of `size` bytes that was opened on the page, until this process ends, and
        return the id of its report. Files with the same `drop` are one report.

        Raises `UsageError` for a wrong name, `FormatError` for a file of another kind.
        """
        is_name = re.fullmatch(r"[^/\\\0.][^/\\\0]*", name) and len(name.encode()) <= 200
        if not re.fullmatch(r"\d{1,20}", drop) or not is_name:
            raise UsageError(f"{name!r} is not the name of a file")
        with self._making:
            if self._received is None:
                self._received = Path(tempfile.mkdtemp(prefix="etscope-opened-"))
                atexit.register(shutil.rmtree, self._received, ignore_errors=True)
        folder = self._received / drop
        folder.mkdir(exist_ok=True)
        path = folder / name
        with path.open("wb") as out:
            while size > 0 and (part := content.read(min(size, 1 << 20))):
                out.write(part)
                size -= len(part)
        try:
            if size:
                raise FormatError(f"{name} did not arrive in full")
            if path.suffix not in BUFFER_SUFFIXES:  # a debug buffer has no kind by its content
                identify(path)
        except EtscopeError:
            path.unlink()
            raise
        return next(key for key, source in self._sources() if source.folder == folder)

    def stamps(self) -> Mapping[str, Stamp]:
        """Return the names, times and sizes of the files of each report, by its id."""
        return {key: _stamp(source.files()) for key, source in self._sources()}

    def _sources(self) -> Iterator[tuple[str, _Source]]:
        taken: set[str] = set()
        for source in (*self._files, *self._in_folders(), *self._opened()):
            name = re.sub(r"[^\w.-]+", "-", source.title).strip("-") or "report"
            key, number = name, 1
            while key in taken:
                number += 1
                key = f"{name}-{number}"
            taken.add(key)
            yield key, source

    def _in_folders(self) -> Iterator[_Source]:
        for folder in self._folders:
            name = folder.absolute().name
            yield _Source(name or str(folder), partial(runs_of_files, [folder]))
            try:
                below = sorted(path for path in folder.iterdir() if path.is_dir())
            except OSError:  # gone meanwhile
                continue
            for path in below:
                yield _Source(f"{name}/{path.name}", partial(runs_of_files, [path]))

    def _opened(self) -> Iterator[_Source]:
        for folder in sorted(self._received.iterdir()) if self._received is not None else ():
            files = sorted(folder.iterdir())
            names = ", ".join(file.name for file in files)
            yield _Source(names[:_LONGEST_TITLE], partial(runs_of_files, files), folder)


def _stamp(runs: Sequence[RunFiles]) -> Stamp:
    return stamp_of(path for files in runs for path in files.paths)


class FileWatcher:
    """Notifies all waiting threads of the reports that have changed.

    A change is reported when the files stayed the same between two looks: they are complete then.
    """

    def __init__(self, stamps: Callable[[], Mapping[str, Stamp]]) -> None:
        self._stamps = stamps
        self._reported = dict(stamps())
        self._seen = dict(self._reported)
        self._changes: list[str] = []
        self._news = Condition()

    def look(self) -> None:
        """Check the files once."""
        now = dict(self._stamps())
        settled = {key for key, stamp in now.items() if self._seen.get(key) == stamp}
        changed = [key for key in settled if self._reported.get(key) != now[key] and now[key]]
        self._seen = now
        if changed:
            self._reported.update((key, now[key]) for key in changed)
            with self._news:
                self._changes += changed
                self._news.notify_all()

    @property
    def count(self) -> int:
        """The number of changes so far, to pass to `after`."""
        with self._news:
            return len(self._changes)

    def after(self, count: int, timeout: float) -> list[str]:
        """Return the changes after the first `count`; wait for one, `timeout` seconds at most."""
        with self._news:
            self._news.wait_for(lambda: len(self._changes) > count, timeout)
            return self._changes[count:]


def wsgi_application(
    store: ReportStore, watch: FileWatcher, host: str = "127.0.0.1"
) -> Application:
    """Return the application: the page, its data, the list of reports, the events of changes, and
    the files that the page opens.

    A path is looked up in a table and never in the file system. Requests with another name as
    `Host` are refused: a foreign page under a name that leads here must not read the reports. The
    list of reports has a token, which foreign pages cannot read and files need.
    """

    def events(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        response = Response(b"", "text/event-stream")
        start_response(
            response.phrase, [("Content-Type", response.content_type), *response.headers]
        )
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else event_stream(watch)

    token = secrets.token_urlsafe()

    def listed(_: dict[str, Any]) -> Response:
        response = reports(store)
        return replace(response, headers=(*response.headers, (TOKEN_HEADER, token)))

    def opened(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        response = _opened(environ, store, token)
        start_response(response.phrase, response.all_headers)
        return [response.body]

    routes = {**library_routes(store, "/"), "/events": events}
    if _is_loopback(host):  # files come from this machine alone
        routes |= {"/reports.json": application(listed), "/files": opened}
    unknown = application(lambda _: failure(404, "there is no page with this address"))
    foreign = application(lambda _: failure(403, "this server is not known by that name"))

    def serve(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if not is_own_name(str(environ.get("HTTP_HOST", "")), host):
            return foreign(environ, start_response)
        route = routes.get(str(environ.get("PATH_INFO", "")), unknown)
        return route(environ, start_response)

    return serve


def _opened(environ: dict[str, Any], store: ReportStore, token: str) -> Response:
    """Take a file from the page and return the id of its report."""
    given = str(environ.get("HTTP_" + TOKEN_HEADER.upper().replace("-", "_"), ""))
    size = str(environ.get("CONTENT_LENGTH", ""))
    if environ.get("REQUEST_METHOD") != "POST":
        return failure(405, "only POST is supported")
    if not secrets.compare_digest(given.encode(), token.encode()):
        return failure(403, "this page is of an earlier server: reload it")
    if not size.isdecimal() or int(size) > _MOST_BYTES:
        return failure(413, f"a file may have {format_bytes(_MOST_BYTES)}: name it as an argument")
    asked = parse_qs(str(environ.get("QUERY_STRING", "")))
    drop, name = (asked.get(key, [""])[0] for key in ("drop", "name"))
    try:
        found = store.receive(drop, name, environ["wsgi.input"], int(size))
    except EtscopeError as error:
        return failure(422, str(error))
    return Response(found.encode(), "text/plain; charset=utf-8")


def event_stream(watch: FileWatcher, seconds: float = _ALIVE_SECONDS) -> Iterator[bytes]:
    """Yield server-sent events without end: the id of each report that changed, and a comment when
    `seconds` pass without a change."""
    count = watch.count
    yield b"retry: 1000\n\n"
    while True:
        changed = watch.after(count, seconds)
        count += len(changed)
        if not changed:
            yield b": still here\n\n"
        for identifier in dict.fromkeys(changed):
            yield f"data: {identifier}\n\n".encode()


def host_name(header: str) -> str:
    """Return the name in a `Host` header, without port; "" for another text."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s,:/@\[\]]+)(:\d*)?", header)
    return "" if found is None else found[1].strip("[]").lower().rstrip(".")


def is_own_name(header: str, host: str) -> bool:
    """Return whether a `Host` header names this machine, which listens at `host`.

    On the loopback interface these are its address and "localhost". Elsewhere any address is
    accepted (a name can be made to lead anywhere, an address cannot), and the machine's own name.
    """
    name = host_name(header)
    if _is_loopback(host):
        return _is_loopback(name)
    known = ("localhost", host.lower(), socket.gethostname().lower())
    return _address(name) is not None or name in known


def _is_loopback(name: str) -> bool:
    address = _address(name)
    return name == "localhost" or (address is not None and address.is_loopback)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


# -- to run it


def serve(
    store: ReportStore,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ready: Callable[[str], object] = lambda _: None,
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` gets the address; port 0 takes any free one.

    Raises `MissingDependencyError` without werkzeug, `UsageError` if it cannot listen there.
    """
    require("werkzeug", wanted_by=WANTED_BY)
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):  # type: ignore[misc]
        """A request handler that does not log requests."""

        def log_request(self, *_: object) -> None:
            pass

    watch = FileWatcher(store.stamps)
    app = wsgi_application(store, watch, host)
    if not 0 <= port <= 65535:
        raise UsageError(f"{port} is not a port: ports go to 65535")
    try:
        server = make_server(host, port, app, threaded=True, request_handler=Quiet)
    except (OSError, SystemExit) as error:  # werkzeug exits when a port is taken
        raise UsageError(
            f"cannot listen at {host}:{port}", hint="-X port=0 takes any free port"
        ) from error
    server.daemon_threads = True  # streams of events do not keep the process
    ended = threading.Event()

    def watch_files() -> None:
        while not ended.wait(_LOOK_SECONDS):
            watch.look()

    watching = threading.Thread(target=watch_files, daemon=True)
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


@contextmanager
def _signals_end(ended: threading.Event) -> Iterator[None]:
    """Set an event on SIGINT and SIGTERM while the context lasts. A shell lets a background job
    ignore SIGINT, which is handled here all the same."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda *_: ended.set())
    try:
        yield
    finally:
        for known, handler in before.items():
            signal.signal(known, handler)
