"""Write files that appear complete or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from etscope.errors import UsageError
from etscope.formats.bytes.source import PathLike

_TEMPORARY = ".part"


@contextmanager
def atomic_write(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a new file that replaces `path` when the block ends without an error.

    A pipe or a device is written directly. Raises `UsageError` for a path that cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link is followed, not replaced
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
            return
        with _temporary_beside(target) as file:
            yield file
    except OSError as error:
        if isinstance(error.filename, str):
            named = Path(error.filename)
            if named != target and (named.parent, named.suffix) != (target.parent, _TEMPORARY):
                raise  # it is about a file that the caller used meanwhile
        raise UsageError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error


@contextmanager
def _temporary_beside(target: Path) -> Iterator[IO[bytes]]:
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=_TEMPORARY, dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        if target.exists():
            mode = stat.S_IMODE(target.stat().st_mode)
        else:
            umask = os.umask(0)  # it can only be read by setting it
            os.umask(umask)
            mode = 0o666 & ~umask
        temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_folder(path: PathLike) -> Path:
    """Create the folder `path` if needed. Raises `UsageError` if it cannot be created."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    return folder
