"""Writes zip files whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_CHUNK = 16 << 20
_WHEN = (1980, 1, 1, 0, 0, 0)  # the same content gives the same file


@dataclass(frozen=True, slots=True)
class Part:
    """A member to write. Text is worth deflating, weights are not."""

    name: str
    data: bytes | memoryview
    deflate: bool = False


def write_archive(parts: Iterable[Part], destination: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write the members to a file or a stream.

    The file appears, or replaces an older one, when it is complete; if `parts` raises, nothing is
    left behind. A stream is written only after the last part was made. Raises `OSError` where
    nothing can be written.
    """
    if isinstance(destination, (str, os.PathLike)):
        with _replacing(Path(destination)) as file:
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
            info.external_attr = 0o644 << 16
            info.file_size = len(part.data)
            view = memoryview(part.data)
            with archive.open(info, "w") as member:
                for start in range(0, len(view), _CHUNK):
                    member.write(view[start : start + _CHUNK])


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` at the end, if nothing was raised."""
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():  # a pipe or a device: there is nothing to replace
        with path.open("wb") as file:
            yield file
        return
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        temporary.chmod(_mode(path))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    """The permissions of the file that is replaced, or those that a new one would get."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
