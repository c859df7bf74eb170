"""Where a reader gets its bytes: a mapped file, or memory that the caller holds."""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass

from etscope.errors import FormatError, UsageError, reading

BytesLike = bytes | bytearray | memoryview
PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Source:
    """Read-only bytes and what to call them.

    `buffer` is one-dimensional, of format "B", and never empty. It maps the file, so that only
    what is touched is read; the file must not be shortened while it is in use. `path` is None for
    bytes in memory.
    """

    buffer: memoryview
    path: str | None

    @property
    def size(self) -> int:
        return len(self.buffer)

    @property
    def name(self) -> str:
        """The path, or "<memory>"."""
        return "<memory>" if self.path is None else self.path


def open_source(data_or_path: BytesLike | PathLike, kind: str) -> Source:
    """The bytes of a file, or the given bytes. `kind` names the format in messages ("ETDump").

    Raises `MissingFileError` for a path that is not there, `FormatError` for what is empty or
    cannot be read as a file (a directory, a device, a pipe), `UsageError` for another type.
    """
    if isinstance(data_or_path, (bytes, bytearray, memoryview)):
        return _from_memory(data_or_path, kind)
    if isinstance(data_or_path, (str, os.PathLike)):
        path = os.fspath(data_or_path)
        with reading(kind, path):
            return _from_file(path, kind)
    raise UsageError(
        f"cannot read {kind} from {type(data_or_path).__name__}: expected a path or bytes"
    )


def _from_memory(data: BytesLike, kind: str) -> Source:
    view = memoryview(data).toreadonly()
    if not view.contiguous:
        raise UsageError(f"cannot read {kind} from a memoryview that is not contiguous")
    if view.nbytes == 0:
        raise FormatError(f"not a valid {kind}: there are no bytes")
    return Source(view.cast("B"), None)


def _from_file(path: str, kind: str) -> Source:
    # Asked before opening: to open a pipe would wait for its writer.
    status = os.stat(path)  # noqa: PTH116 - keeps FileNotFoundError.filename as the user wrote it
    if stat.S_ISDIR(status.st_mode):
        raise FormatError(f"not a valid {kind}: this is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(f"not a valid {kind}: this is not a regular file")
    if status.st_size == 0:
        raise FormatError(f"not a valid {kind}: the file is empty")
    with open(path, "rb") as file:  # noqa: PTH123
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return Source(memoryview(mapped), path)
