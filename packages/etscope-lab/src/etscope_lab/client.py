"""A client for a lab's server, with the same calls as `etscope_lab.Lab`.

with Client("https://lab.example.org", token) as lab:
    job = lab.submit(JobSpec(model="model.etrecord", device="arch=aarch64"))
    lab.fetch(lab.wait(job.id).id, Path("result"))
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from etscope import errors
from etscope.errors import EtscopeError, FormatError, LabError, MissingDataError, UsageError
from etscope_lab.jobs.records import (
    Alarm,
    AlarmState,
    Artifact,
    AuditEntry,
    Device,
    Filter,
    Job,
    JobEvent,
    Page,
    Series,
    Token,
)
from etscope_lab.jobs.spec import FileRef, JobSpec, base_name

Progress = Callable[[str, int, int], None]
TOKEN_VARIABLE = "ETSCOPE_LAB_TOKEN"
_API = "/api/v1"
_PIECE = 1 << 20  # bytes
_ATTEMPTS = 5
_FIRST_REST = 0.05  # seconds; doubled each time
_PATIENCE = 60.0  # seconds that `wait` waits for a server that is away: it may be restarting
_POLL = 0.5  # seconds between two questions of `wait`
_T = TypeVar("_T")

_ERRORS: dict[str, type[EtscopeError]] = {
    kind.slug: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, EtscopeError)
}
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


class Client:
    """The `Lab` of the server at `url`. Usable from several threads.

    token: default, $ETSCOPE_LAB_TOKEN. progress: called with the work ("sending model.pte"), the
    bytes done and all bytes. Errors of the server are raised as a `Lab` would raise them there;
    `LabError` when nothing answers, when the token is refused, and when the server is not a lab.
    Idempotent requests are repeated after a lost connection.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        progress: Progress = lambda work, done, size: None,
    ) -> None:
        self.url = url.rstrip("/")
        try:
            parts = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise UsageError(f"{url!r} is not an address: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.host:
            raise UsageError(f"{url!r} is not an address", hint="like http://127.0.0.1:8000")
        secret = token or os.environ.get(TOKEN_VARIABLE) or None
        if secret and (not secret.isascii() or not secret.isprintable() or " " in secret):
            raise UsageError("a token has no blanks and only ASCII characters")
        self._progress = progress
        self._http = httpx.Client(
            base_url=self.url + _API,
            headers={} if secret is None else {"Authorization": f"Bearer {secret}"},
            timeout=timeout,
            # A proxy of the environment does not reach this machine.
            trust_env=parts.host not in ("localhost", "127.0.0.1", "::1"),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- the methods of `Lab`

    def submit(self, spec: JobSpec, *, again: bool = False, submitter: str = "") -> Job:
        """Queue a job, after sending the files by path that the lab does not have. submitter: used
        when no token names the user."""
        return self.submit_new(spec, again=again, submitter=submitter)[0]

    def submit_new(
        self, spec: JobSpec, *, again: bool = False, submitter: str = "", failure: str = ""
    ) -> tuple[Job, bool]:
        """Do `submit`; return the job, and True if it is new."""
        files = {field: self._stored(ref) for field, ref in spec.files.items()}
        known = spec.with_files(files)
        answer = self._send(
            "POST",
            "/jobs",
            idempotent=not again,
            json=known.model_dump(mode="json"),
            params={"again": again, "submitter": submitter, "failure": failure},
        )
        return _read(Job, answer), answer.status_code == 201

    def job(self, job_id: str) -> Job:
        return _read(Job, self._send("GET", f"/jobs/{_part(job_id)}"))

    def jobs(
        self, wanted: Filter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page:
        wanted = wanted or Filter()
        params: dict[str, Any] = {
            "state": [str(state) for state in wanted.states],
            "device": wanted.device,
            "kind": wanted.kind,
            "model": wanted.model_sha256,
            "text": wanted.text,
            "label": [f"{key}={value}" for key, value in (wanted.labels or {}).items()],
            "since": None if wanted.since is None else wanted.since.isoformat(),
            "limit": limit,
            "cursor": cursor,
        }
        return _read(Page, self._send("GET", "/jobs", params=_given(params)))

    def events(self, job_id: str) -> Sequence[JobEvent]:
        return _read(list[JobEvent], self._send("GET", f"/jobs/{_part(job_id)}/events"))

    def log(self, job_id: str) -> str:
        return self._send("GET", f"/jobs/{_part(job_id)}/log").content.decode("utf-8", "replace")

    def cancel(self, job_id: str) -> Job:
        return _read(Job, self._send("POST", f"/jobs/{_part(job_id)}/cancel", idempotent=False))

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Wait for the end of a job; return it. Keeps waiting while the server is away, for example
        during a restart.
        """
        end = None if timeout is None else time.monotonic() + timeout
        answered = time.monotonic()
        while True:
            try:
                job = self.job(job_id)
                if job.state.is_final:
                    return job
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError(f"job {job.id} is {job.state} after {timeout:g} s")
                answered = time.monotonic()
            except LabError as error:
                if isinstance(error, _Refusal) or time.monotonic() - answered > _PATIENCE:
                    raise
            left = _POLL if end is None else end - time.monotonic()
            time.sleep(min(max(left, _FIRST_REST), _POLL))

    def read(self, job_id: str, artifact: str) -> Iterator[bytes]:
        """Yield the content of a job's file in pieces. Raises `FormatError` at the end if it is
        damaged.
        """
        found = self.job(job_id).artifact(artifact)
        path = f"/jobs/{_part(job_id)}/files/{_part(artifact)}"
        with self._stream(path) as answer:
            yield from verified(answer.iter_bytes(), found, self._progress)

    def fetch(
        self, job_id: str, folder: str | os.PathLike[str], names: Sequence[str] = ()
    ) -> list[Path]:
        folder = Path(folder)
        job = self.job(job_id)
        found = [job.artifact(name) for name in names or sorted(job.artifacts)]
        for artifact in found:
            if artifact.name != Path(artifact.name).name or artifact.name in (".", ".."):
                raise FormatError(f"{artifact.name!r} is not a name for a file in a folder")
        folder.mkdir(parents=True, exist_ok=True)
        return [self._fetched(job.id, artifact, folder) for artifact in found]

    def devices(self) -> Sequence[Device]:
        return _read(list[Device], self._send("GET", "/devices"))

    def disable_device(self, name: str, why: str) -> None:
        self._send("POST", f"/devices/{_part(name)}", json={"disabled": why})

    def audit(self, limit: int = 100, before: int | None = None) -> Sequence[AuditEntry]:
        params = _given({"limit": limit, "before": before})
        return _read(list[AuditEntry], self._send("GET", "/audit", params=params))

    def history(
        self,
        model: str | None = None,
        device: str | None = None,
        *,
        limit: int = 200,
        most: int | None = None,
    ) -> Sequence[Series]:
        params = _given({"model": model, "device": device, "limit": limit, "most": most})
        return _read(list[Series], self._send("GET", "/history", params=params))

    def compare(self, first: str, second: str) -> Mapping[str, Any]:
        params = {"first": first, "second": second}
        return _read(dict[str, Any], self._send("GET", "/compare", params=params))

    def alarms(self, states: Sequence[AlarmState] = ()) -> Sequence[Alarm]:
        params = {"state": [str(state) for state in states]}
        return _read(list[Alarm], self._send("GET", "/alarms", params=params))

    def set_alarm(self, alarm_id: str, state: AlarmState) -> Alarm:
        path, wish = f"/alarms/{_part(alarm_id)}", {"state": str(state)}
        return _read(Alarm, self._send("POST", path, json=wish))

    # -- calls that only a server has

    def health(self) -> Mapping[str, Any]:
        """{status, parts, version, tokens, max_upload_bytes}; parts: {name: {status, message}}.
        Raises `LabError` while the database or the store cannot be reached."""
        return _read(dict[str, Any], self._send("GET", "/health"))

    def tokens(self) -> Sequence[Token]:
        return _read(list[Token], self._send("GET", "/tokens"))

    def add_token(
        self,
        name: str,
        scopes: Sequence[str],
        expires_at: datetime | None = None,
        *,
        project: str = "",
    ) -> str:
        """Make a token; return its secret, which is never shown again."""
        wish = {
            "name": name,
            "scopes": list(scopes),
            "project": project,
            "expires_at": None if expires_at is None else expires_at.isoformat(),
        }
        answer = self._send("POST", "/tokens", idempotent=False, json=wish)
        return str(_read(dict[str, Any], answer)["secret"])

    def revoke(self, name: str) -> None:
        self._send("DELETE", f"/tokens/{_part(name)}")

    # -- files

    def _stored(self, ref: FileRef) -> FileRef:
        """A file by its content, after sending it if the lab does not have it."""
        if ref.path is None:
            return ref
        path = Path(ref.path).expanduser()
        if not path.is_file():
            raise errors.MissingFileError(f"file not found: {ref.path}")
        digest = hashlib.sha256()
        for piece in self._pieces(path, f"reading {path.name}"):
            digest.update(piece)
        sha256 = digest.hexdigest()
        name = ref.name or base_name(path.name)
        try:
            self._send("GET", f"/files/{sha256}")
        except MissingDataError:
            self._upload(path, sha256, name)
        return FileRef(sha256=sha256, name=name)

    def _upload(self, path: Path, sha256: str, name: str) -> None:
        size, limit = path.stat().st_size, self.health().get("max_upload_bytes")
        # Without this check the server's refusal would get lost while the file is sent.
        if isinstance(limit, int) and size > limit:
            raise UsageError(f"{path} has {size:,} bytes; the lab takes {limit:,} at most")
        kept = self._send(
            "PUT",
            f"/files/{sha256}",
            params={"name": name or "file"},
            headers={"Content-Type": "application/octet-stream", "Content-Length": str(size)},
            content=lambda: self._pieces(path, f"sending {path.name}"),
            timeout=httpx.Timeout(60.0, read=600.0),
        )
        if _read(Artifact, kept).sha256 != sha256:
            raise LabError(f"{path}: the lab stored other content than was sent")

    def _pieces(self, path: Path, work: str) -> Iterator[bytes]:
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                done = 0
                while piece := file.read(_PIECE):
                    done += len(piece)
                    self._progress(work, done, size)
                    yield piece
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error

    def _fetched(self, job_id: str, artifact: Artifact, folder: Path) -> Path:
        """Write a file of a job, whole, or raise an error and write none."""
        path = folder / artifact.name

        def once() -> None:
            part = path.with_name(f".{secrets.token_hex(8)}.part")
            try:
                with part.open("xb") as file:
                    for piece in self.read(job_id, artifact.name):
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(path)
            except OSError as error:
                raise LabError(f"{path} cannot be written: {error.strerror or error}") from error
            finally:
                part.unlink(missing_ok=True)

        self._again(once, idempotent=True)
        return path

    # -- HTTP

    def _send(
        self,
        method: str,
        path: str,
        *,
        idempotent: bool = True,
        content: Any = None,
        **options: Any,
    ) -> httpx.Response:
        """Send a request; return an answer with a status below 400. content: a function that begins
        the body anew."""

        def once() -> httpx.Response:
            body = content() if content is not None else None
            return _good(self._http.request(method, path, content=body, **options))

        return self._again(once, idempotent=idempotent)

    @contextmanager
    def _stream(self, path: str, **options: Any) -> Iterator[httpx.Response]:
        try:
            with self._http.stream("GET", path, **options) as answer:
                if answer.is_error:
                    answer.read()
                yield _good(answer)
        except httpx.ConnectError as error:
            raise self._away(error) from error

    def _again(self, once: Callable[[], _T], *, idempotent: bool) -> _T:
        """Call `once`, again when the connection was lost, and return its result."""
        attempt = 0
        while True:
            try:
                return once()
            except httpx.TransportError as error:
                attempt += 1
                # Without a connection no request was sent.
                safe = idempotent or isinstance(error, httpx.ConnectError)
                if not safe or attempt == _ATTEMPTS:
                    raise self._away(error) from error
            time.sleep(_FIRST_REST * 2**attempt)

    def _away(self, error: httpx.TransportError) -> LabError:
        if isinstance(error, httpx.ConnectError):
            return LabError(
                f"no lab answers at {self.url} ({error})", hint="etscope lab serve starts one"
            )
        what = str(error) or type(error).__name__
        return LabError(f"the connection to {self.url} was lost: {what}")


class _Refusal(LabError):
    """A `LabError` that the server itself answered, so it is not away."""


def _good(answer: httpx.Response) -> httpx.Response:
    """Return an answer; raise one that is an error as the server's error."""
    if answer.is_success:
        return answer
    try:
        said = answer.json()
        message, slug, hint = str(said["error"]), said["slug"], said.get("hint")
    except (ValueError, TypeError, KeyError) as error:
        raise _not_a_lab(answer, f"{answer.status_code} {answer.reason_phrase}") from error
    kind = _ERRORS.get(slug, LabError)
    raise (_Refusal if kind is LabError else kind)(message, hint=hint)


def _read(kind: type[_T], answer: httpx.Response) -> _T:
    try:
        found: _T = _adapter(kind).validate_json(answer.content)
        return found
    except ValidationError as error:
        raise _not_a_lab(answer, "an answer of another form") from error


def _not_a_lab(answer: httpx.Response, what: str) -> LabError:
    return _Refusal(
        f"the server at {answer.url.copy_with(path='/', query=None)} is not a lab of this "
        f"version of etscope: {what}",
        hint="is the address right, and the same etscope on both sides?",
    )


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _part(text: str) -> str:
    """Quote a part of a path, so that it cannot lead elsewhere."""
    if text in ("", ".", ".."):
        raise UsageError(f"{text!r} is not a name")
    return quote(text, safe="")


def verified(pieces: Iterable[bytes], artifact: Artifact, progress: Progress) -> Iterator[bytes]:
    """Yield the pieces of an artefact. Raises `FormatError` at the end if they are not its
    content.
    """
    digest, done = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        done += len(piece)
        progress(f"fetching {artifact.name}", done, artifact.size)
        yield piece
    if digest.hexdigest() != artifact.sha256:
        raise FormatError(
            f"{artifact.name} arrived damaged: {done:,} of {artifact.size:,} bytes, or "
            "changed content",
            hint="fetch it again",
        )
