"""Writes zip files whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

from etscope.formats.bytes.atomic_write import replacing
from etscope.formats.bytes.source import PathLike

_CHUNK = 16 << 20
_WHEN = (1980, 1, 1, 0, 0, 0)  # the same content gives the same file
_MODE = 0o644 << 16


@dataclass(frozen=True, slots=True)
class Part:
    """A member to write. Text is worth deflating, weights are not."""

    name: str
    data: bytes | memoryview
    deflate: bool = False


def write_archive(parts: Iterable[Part], destination: PathLike | IO[bytes]) -> None:
    """Write the members to a file or a stream.

    The file appears, or replaces an older one, when it is complete; if `parts` raises, nothing is
    left behind. A stream is written only after the last part was made. Raises `UsageError` for a
    path that cannot be written.
    """
    if isinstance(destination, (str, os.PathLike)):
        with replacing(destination) as file:
            _write(parts, file)
        return
    with tempfile.TemporaryFile() as file:
        _write(parts, file)
        file.seek(0)
        shutil.copyfileobj(file, destination, _CHUNK)


def _write(parts: Iterable[Part], file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for part in parts:
            info = zipfile.ZipInfo(part.name, _WHEN)
            info.compress_type = zipfile.ZIP_DEFLATED if part.deflate else zipfile.ZIP_STORED
            info.external_attr = _MODE
            info.file_size = len(part.data)
            view = memoryview(part.data)
            with archive.open(info, "w") as member:
                for start in range(0, len(view), _CHUNK):
                    member.write(view[start : start + _CHUNK])
