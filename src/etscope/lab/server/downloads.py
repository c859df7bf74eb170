"""A file of a job as an answer: with its name, its content checked, and nothing that a browser
would run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi.responses import Response, StreamingResponse

from etscope.errors import FormatError
from etscope.lab.server.middleware import SANDBOX

if TYPE_CHECKING:
    from etscope.lab.lab import Lab


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
    artifact = lab.artifact(job_id, name)
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
