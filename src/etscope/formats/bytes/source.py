"""Bytes for a reader: a mapped file, or memory of the caller."""

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
    """Read-only bytes with the path that they come from.

    `buffer` is one-dimensional, of format "B", and never empty. It maps the file, so that only the
    parts in use are read; the file must not be shortened meanwhile. `path` is None for
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
    """Map a file, or wrap the given bytes. `kind` names the format in messages ("ETDump").

    Raises `MissingFileError` for a missing file, `FormatError` for an empty one and for a
    directory, a device or a pipe, `UsageError` for another type of argument.
    """
    if isinstance(data_or_path, (bytes, bytearray, memoryview)):
        view = memoryview(data_or_path).toreadonly()
        if not view.contiguous:
            raise UsageError(f"cannot read {kind} from a memoryview that is not contiguous")
        if view.nbytes == 0:
            raise FormatError(f"not a valid {kind}: there are no bytes")
        return Source(view.cast("B"), None)
    if not isinstance(data_or_path, (str, os.PathLike)):
        raise UsageError(
            f"cannot read {kind} from {type(data_or_path).__name__}: expected a path or bytes"
        )
    path = os.fspath(data_or_path)
    with reading(kind, path):
        # Checked before opening: opening a pipe would wait for its writer.
        status = os.stat(path)  # noqa: PTH116 - keeps FileNotFoundError.filename as given
        if stat.S_ISDIR(status.st_mode):
            raise FormatError(f"not a valid {kind}: this is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"not a valid {kind}: this is not a regular file")
        if status.st_size == 0:
            raise FormatError(f"not a valid {kind}: the file is empty")
        with open(path, "rb") as file:  # noqa: PTH123
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return Source(memoryview(mapped), path)
