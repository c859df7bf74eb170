"""A file of a job as an answer: with its name, its content checked, and nothing that a browser
would run.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from etscope.errors import EtscopeError, FormatError, LabError, UsageError
from etscope.formats import identify as formats
from etscope.formats.bytes.source import open_source
from etscope.formats.bytes.zip_archive import open_archive
from etscope.lab.server.errors import Refused
from etscope.lab.server.middleware import SANDBOX

if TYPE_CHECKING:
    from etscope.lab.jobs.records import Artifact
    from etscope.lab.lab import Lab
    from etscope.lab.store import Store


def download(
    lab: Lab,
    job_id: str,
    name: str,
    if_none_match: str | None = None,
    *,
    saved_as: str | None = None,
) -> Response:
    """The answer; 304 without content when `if_none_match` has its SHA-256. saved_as: the name that
    a browser gives the file, by default its own.

    Raises `MissingDataError` for a job or file that is not there.
    """
    artifact = lab.job(job_id).artifact(name)
    headers = {
        "ETag": f'"{artifact.sha256}"',
        "Content-Disposition": disposition(saved_as or artifact.name),
        "Content-Security-Policy": SANDBOX,
        "X-Content-Type-Options": "nosniff",
    }
    seen = [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]
    if headers["ETag"] in seen:
        return Response(status_code=304, headers=headers)
    headers["Content-Length"] = str(artifact.size)
    pieces = checked(lab.read(job_id, name), artifact.sha256)
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)


def checked(pieces: Iterable[bytes], sha256: str) -> Iterator[bytes]:
    """The pieces, the last of them only if they are of this hash: else the answer breaks off, and
    whoever asked sees that it is not whole."""
    digest, last = hashlib.sha256(), b""
    for piece in pieces:
        digest.update(piece)
        if last:
            yield last
        last = piece
    if digest.hexdigest() != sha256:
        raise FormatError(f"the store's object {sha256} is damaged")
    yield last


def disposition(name: str) -> str:
    """`Content-Disposition` of a download, for any name (RFC 6266)."""
    plain = "".join(
        char if char.isascii() and char.isprintable() and char not in '"\\/%' else "_"
        for char in name
    )
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


# Files on their way in: streamed to a temporary place, counted and hashed, told by their content,
# then taken into the store. Nothing is unpacked or unpickled here.


_PIECE = 1 << 20  # bytes gathered before they are written
_JOB_FILES = (formats.ETRECORD, formats.PTE, formats.BPTE)
_TAKEN = "an ETRecord, .pte, .bpte, .ptd, .npz, .npy, .safetensors or .pt file"


async def take(
    store: Store, chunks: AsyncIterator[bytes], sha256: str, name: str, folder: Path | None
) -> Artifact:
    """Put a file into the store. Raises `Refused`: 409 when the content is not of `sha256`, 415
    when it is none of the types that jobs have."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="upload-") as file:
            found = await _write(chunks, file)
            if found != sha256:
                raise Refused(
                    409,
                    f"the content is of sha256 {found}, not {sha256}",
                    slug=UsageError.slug,
                    hint="the file changed or the transfer broke: send it again",
                )
            media_type = await run_in_threadpool(type_of, Path(file.name))
            return await run_in_threadpool(store.put_file, Path(file.name), name, media_type)
    except OSError as error:
        raise LabError(
            f"the file cannot be kept: {error.strerror or error}", hint="is the disk full?"
        ) from error


async def _write(chunks: AsyncIterator[bytes], file: IO[bytes]) -> str:
    """Write all chunks; the SHA-256 of them."""
    digest = hashlib.sha256()
    waiting = bytearray()

    def flush() -> None:
        digest.update(waiting)
        file.write(waiting)
        waiting.clear()

    async for chunk in chunks:
        waiting += chunk
        if len(waiting) >= _PIECE:
            await run_in_threadpool(flush)
    await run_in_threadpool(flush)
    await run_in_threadpool(file.flush)
    return digest.hexdigest()


def type_of(path: Path) -> str:
    """The media type of a file that a job may have, by its content. Raises `Refused` (415)."""
    try:
        source = open_source(path, "file")
        found = _kind(source.buffer)
    except EtscopeError as error:
        raise Refused(415, f"not a file that jobs have: {error.message}", hint=_hint()) from error
    if found is None:
        raise Refused(
            415,
            f"not a file that jobs have: {formats.describe(source.buffer)}",
            hint=_hint(),
        )
    return found


def _kind(buffer: memoryview) -> str | None:
    try:
        known = formats.identify(buffer)
    except FormatError:
        known = None
    if known is not None:
        return f"application/x-{known}" if known in _JOB_FILES else None
    head = bytes(buffer[:16])
    if head[4:8] == b"FT01":
        return "application/x-ptd"
    if head.startswith(b"\x93NUMPY"):
        return "application/x-npy"
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") <= len(buffer) - 8:
        return "application/x-safetensors"
    return _kind_of_zip(buffer) if head.startswith(b"PK\x03\x04") else None


def _kind_of_zip(buffer: memoryview) -> str | None:
    """Only the directory is read: whether members are what they say is for the job's process."""
    names = list(open_archive(buffer, "zip file").members)
    if names and all(name.endswith(".npy") for name in names):
        return "application/x-npz"
    return "application/x-pt" if any(name.endswith("data.pkl") for name in names) else None


def _hint() -> str:
    return f"{_TAKEN}, told by its content"
