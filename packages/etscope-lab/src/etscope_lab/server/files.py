"""Files over HTTP: uploads for jobs to come, and downloads of a job's files.

An upload is streamed to a temporary file, counted, hashed and identified by its content, then put
into the store. Nothing is unpacked or unpickled in the server. A download is checked against its
hash, and has headers that keep a browser from running it.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from etscope.errors import EtscopeError, FormatError, LabError, MissingDataError
from etscope.formats import identify as formats
from etscope.formats.bytes.files import open_source
from etscope.formats.bytes.zip_archive import open_archive
from etscope_lab.jobs.records import Artifact
from etscope_lab.server.errors import RequestError, error_responses
from etscope_lab.server.middleware import SANDBOX
from etscope_lab.server.parameters import (
    JobId,
    Nothing,
    Reader,
    Sha256,
    Submitter,
    lab_of,
    settings_of,
)
from etscope_lab.server.security import content_type_of

if TYPE_CHECKING:
    from etscope_lab.lab import Lab
    from etscope_lab.store import Store

_PIECE = 1 << 20  # bytes gathered before they are written
_JOB_FILES = (formats.ETRECORD, formats.PTE, formats.BPTE, formats.PTD)
# A name for people. It never becomes a path.
_NAME = r"^[^/\\\x00-\x1f\x7f]+$"
_OCTETS = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_DOWNLOAD: dict[int | str, Any] = {
    200: {
        "content": _OCTETS,
        "headers": {"ETag": {"description": "The SHA-256.", "schema": {"type": "string"}}},
    },
    304: {"description": "The content has the hash in If-None-Match."},
}

router = APIRouter(tags=["files"])


@router.get("/files/{sha256}", responses=error_responses(404, 422))
def get_file(request: Request, _: Reader, sha256: Sha256) -> Artifact:
    """Look up a file by its content. A file that the lab has need not be sent."""
    store = lab_of(request).store
    if not store.has(sha256):
        raise MissingDataError(f"the lab has no file of sha256 {sha256}")
    return Artifact("", sha256, store.size(sha256))


@router.put(
    "/files/{sha256}",
    status_code=201,
    responses={
        **error_responses(409, 413, 415, 422),
        200: {"model": Artifact, "description": "The lab had the file already."},
    },
    openapi_extra={"requestBody": {"required": True, "content": _OCTETS}},
)
async def put_file(
    request: Request,
    response: Response,
    _: Submitter,
    sha256: Sha256,
    name: Annotated[str, Query(pattern=_NAME, max_length=255)] = "file",
) -> Artifact:
    """Upload a file for jobs to come: an ETRecord, .pte, .bpte, .ptd, .npz, .npy, .safetensors or
    .pt, identified by its content. Only a job reads or runs it, in a separate process."""
    if content_type_of(request) != "application/octet-stream":
        raise RequestError(415, "send a file as application/octet-stream")
    store = lab_of(request).store
    if await run_in_threadpool(store.has, sha256):
        response.status_code = 200
    return await upload(store, request.stream(), sha256, name, settings_of(request).uploads)


@router.get(
    "/jobs/{job_id}/files/{name}",
    response_class=StreamingResponse,
    responses={**error_responses(404, 422), **_DOWNLOAD},
)
def download_file(
    request: Request,
    _: Reader,
    job_id: JobId,
    name: Annotated[str, PathParameter(pattern=_NAME, max_length=255)],
    if_none_match: Annotated[str | Nothing, Header()] = None,
) -> Response:
    """Download a file of a job ("run.etdp"); `GET /jobs/{job_id}` lists them."""
    return download(lab_of(request), job_id, name, if_none_match)


def download(
    lab: Lab,
    job_id: str,
    name: str,
    if_none_match: str | None = None,
    *,
    save_as: str | None = None,
) -> Response:
    """Return the response with a file of a job; 304 without content if its SHA-256 is in
    `if_none_match`. save_as: the name that a browser saves it under; None: its own.

    Raises `MissingDataError` if the job or file does not exist.
    """
    artifact = lab.job(job_id).artifact(name)
    name_in_browser = save_as or artifact.name
    ascii_name = "".join(
        char if char.isascii() and char.isprintable() and char not in '"\\/%' else "_"
        for char in name_in_browser
    )
    headers = {
        "ETag": f'"{artifact.sha256}"',
        # RFC 6266: the second form holds any name
        "Content-Disposition": f'attachment; filename="{ascii_name}"; '
        f"filename*=UTF-8''{quote(name_in_browser, safe='')}",
        "Content-Security-Policy": SANDBOX,
    }
    known = [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]
    if headers["ETag"] in known:
        return Response(status_code=304, headers=headers)
    headers["Content-Length"] = str(artifact.size)
    pieces = _verified(lab.read(job_id, name), artifact.sha256)
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)


def _verified(pieces: Iterable[bytes], sha256: str) -> Iterator[bytes]:
    """Yield the pieces, the last one only if the whole has this hash.

    The response of a damaged file is therefore too short, and the client notices.
    """
    digest, last = hashlib.sha256(), b""
    for piece in pieces:
        digest.update(piece)
        if last:
            yield last
        last = piece
    if digest.hexdigest() != sha256:
        raise FormatError(f"the store's object {sha256} is damaged")
    yield last


async def upload(
    store: Store, chunks: AsyncIterator[bytes], sha256: str, name: str, folder: Path | None
) -> Artifact:
    """Put a file into the store. folder: for the temporary file.

    Raises `RequestError`: 409 if the content does not have the hash `sha256`, 415 if it is not a
    type of file that jobs have. Raises `LabError` if the file cannot be written.
    """
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    waiting = bytearray()
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="upload-") as file:

            def write() -> None:
                digest.update(waiting)
                file.write(waiting)
                waiting.clear()

            async for chunk in chunks:
                waiting += chunk
                if len(waiting) >= _PIECE:
                    await run_in_threadpool(write)
            await run_in_threadpool(write)
            await run_in_threadpool(file.flush)
            if digest.hexdigest() != sha256:
                raise RequestError(
                    409,
                    f"the content has the sha256 {digest.hexdigest()}, not {sha256}",
                    hint="the file changed or the transfer failed: send the file again",
                )
            media_type = await run_in_threadpool(media_type_of, Path(file.name))
            return await run_in_threadpool(store.put_file, Path(file.name), name, media_type)
    except OSError as error:
        raise LabError(
            f"the file cannot be stored: {error.strerror or error}", hint="is the disk full?"
        ) from error


def media_type_of(path: Path) -> str:
    """Identify a file that a job may have by its content. Raises `RequestError` (415)."""
    hint = (
        "send an ETRecord, .pte, .bpte, .ptd, .npz, .npy, .safetensors or .pt file; it is "
        "identified by its content"
    )
    try:
        source = open_source(path, "file")
        found = _media_type(source.buffer)
    except EtscopeError as error:
        raise RequestError(415, f"not a file for jobs: {error.message}", hint=hint) from error
    if found is None:
        raise RequestError(
            415, f"not a file for jobs: {formats.describe(source.buffer)}", hint=hint
        )
    return found


def _media_type(buffer: memoryview) -> str | None:
    try:
        known = formats.identify(buffer)
    except FormatError:
        known = None
    if known is not None:
        return f"application/x-{known}" if known in _JOB_FILES else None
    head = bytes(buffer[:16])
    if head.startswith(b"\x93NUMPY"):
        return "application/x-npy"
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") <= len(buffer) - 8:
        return "application/x-safetensors"
    if not head.startswith(b"PK\x03\x04"):
        return None
    # Only the directory is read: the job's process checks the members.
    names = list(open_archive(buffer, "zip file").members)
    if names and all(name.endswith(".npy") for name in names):
        return "application/x-npz"
    return "application/x-pt" if any(name.endswith("data.pkl") for name in names) else None
