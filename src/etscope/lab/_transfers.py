"""Files on their way to and from a lab, with what is known of them checked."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from etscope.errors import FormatError, LabError, UsageError
from etscope.lab.jobs.records import Artifact

Progress = Callable[[str, int, int], None]
_PIECE = 1 << 20  # bytes


def quiet(what: str, done: int, size: int) -> None:
    """No sign of progress."""


def sha256_of(path: Path, progress: Progress = quiet) -> str:
    digest = hashlib.sha256()
    for piece in _read(path, f"reading {path.name}", progress):
        digest.update(piece)
    return digest.hexdigest()


def pieces_of(path: Path, progress: Progress = quiet) -> Iterator[bytes]:
    """A file's content, in pieces that are sent."""
    return _read(path, f"sending {path.name}", progress)


def checked(pieces: Iterable[bytes], artifact: Artifact, progress: Progress) -> Iterator[bytes]:
    """The pieces of an artefact; `FormatError` at the end if they are not its content."""
    digest, done = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        done += len(piece)
        progress(f"fetching {artifact.name}", done, artifact.size)
        yield piece
    if digest.hexdigest() != artifact.sha256:
        raise FormatError(
            f"{artifact.name} came damaged: {done:,} bytes of {artifact.size:,}, or other ones",
            hint="fetch it again",
        )


def save(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that is whole or not there. `LabError` when the disk cannot keep it."""
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def _read(path: Path, what: str, progress: Progress) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            done = 0
            while piece := file.read(_PIECE):
                done += len(piece)
                progress(what, done, size)
                yield piece
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
