"""Files that appear whole or not at all."""

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

_PART = ".part"


@contextmanager
def replacing(path: PathLike) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` at the end, if nothing was raised.

    A pipe or a device is written directly. Raises `UsageError` for a place that cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link is followed, not replaced
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
            return
        with _part_beside(target) as file:
            yield file
    except OSError as error:
        if _names_another(error, target):  # what the caller read meanwhile
            raise
        raise UsageError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error


def _names_another(error: OSError, target: Path) -> bool:
    if not isinstance(error.filename, str):
        return False
    named = Path(error.filename)
    return named != target and (named.parent, named.suffix) != (target.parent, _PART)


@contextmanager
def _part_beside(target: Path) -> Iterator[IO[bytes]]:
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=_PART, dir=target.parent)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        part.chmod(_mode(target))
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    """The permissions of the file that is replaced, or those that a new one would get."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def make_folder(path: PathLike) -> Path:
    """The folder of that path, made if needed; `UsageError` where there cannot be one."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    return folder
