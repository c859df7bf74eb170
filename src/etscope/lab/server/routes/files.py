"""Files: those of a job to be, by content, and those that a job made."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from etscope.errors import MissingDataError
from etscope.lab.jobs.records import Artifact
from etscope.lab.server import files as uploads
from etscope.lab.server.errors import Refused, answers
from etscope.lab.server.files import download
from etscope.lab.server.routes._common import (
    JobId,
    Nothing,
    Reader,
    Sha256,
    Submitter,
    lab_of,
    settings_of,
)

router = APIRouter(tags=["files"])

# The name that people see. It never becomes a path.
_NAME = r"^[^/\\\x00-\x1f\x7f]+$"
_artifact = TypeAdapter(Artifact)
_BYTES: dict[int | str, Any] = {
    200: {
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"ETag": {"description": "The SHA-256.", "schema": {"type": "string"}}},
    },
    304: {"description": "It is what If-None-Match says."},
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get("/files/{sha256}", response_model=Artifact, responses=answers(404, 422))
def get_file(request: Request, _: Reader, sha256: Sha256) -> Artifact:
    """Whether the lab has a file of this content, so that it need not be sent."""
    store = lab_of(request).store
    if not store.has(sha256):
        raise MissingDataError(f"the lab has no file of sha256 {sha256}")
    return Artifact("", sha256, store.size(sha256))


@router.put(
    "/files/{sha256}",
    status_code=201,
    response_model=Artifact,
    responses={
        **answers(409, 413, 415, 422),
        200: {"model": Artifact, "description": "It was there already."},
    },
    openapi_extra=_BODY,
)
async def put_file(
    request: Request,
    _: Submitter,
    sha256: Sha256,
    name: Annotated[str, Query(pattern=_NAME, max_length=255)] = "file",
) -> Response:
    """Take in a file for jobs to come: an ETRecord, .pte, .bpte, .ptd, .npz, .npy, .safetensors or
    .pt, told by its content. It is not read further, and nothing of it is run, before a job does
    in a process of its own."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/octet-stream":
        raise Refused(415, "a file is sent as application/octet-stream")
    store = lab_of(request).store
    was_there = await run_in_threadpool(store.has, sha256)
    kept = await uploads.take(store, request.stream(), sha256, name, settings_of(request).uploads)
    return JSONResponse(_artifact.dump_python(kept, mode="json"), 200 if was_there else 201)


@router.get(
    "/jobs/{job_id}/files/{name}",
    response_class=StreamingResponse,
    responses={**answers(404, 422), **_BYTES},
)
def download_file(
    request: Request,
    _: Reader,
    job_id: JobId,
    name: Annotated[str, Path(pattern=_NAME, max_length=255)],
    if_none_match: Annotated[str | Nothing, Header()] = None,
) -> Response:
    """A file of a job ("run.etdp"); `GET /jobs/{job_id}` lists them."""
    return download(lab_of(request), job_id, name, if_none_match)
