"""Read bytes from a mapped file or from memory; write files completely or not at all; keep parsed
content."""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import IO, Generic, TypeVar

from etscope.errors import FormatError, UsageError, reading

__all__ = ["PathLike", "atomic_write", "make_folder", "open_source"]

BytesLike = bytes | bytearray | memoryview
PathLike = str | os.PathLike[str]

# Windows neither replaces nor removes a file that is mapped, as the next `etscope run` would.
_READ_ON_WINDOWS = 256 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Read-only bytes and their path.

    `buffer` is one-dimensional, of format "B", and never empty. It maps the file and reads only the
    parts in use; the file must not shrink meanwhile. On Windows it holds the bytes of a file of up
    to 256 MiB. `path` is None for bytes in memory.
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


def open_source(
    data_or_path: BytesLike | PathLike, kind: str, *, may_be_empty: bool = False
) -> Source:
    """Map a file, or wrap the given bytes. `kind` names the format in messages ("ETDump").

    Raises `MissingFileError` for a missing file; `FormatError` for an empty one, unless
    `may_be_empty` (then /dev/null is one), and for a directory, a device or a pipe; `UsageError`
    for another type of argument.
    """
    if isinstance(data_or_path, (bytes, bytearray, memoryview)):
        view = memoryview(data_or_path).toreadonly()
        if not view.contiguous:
            raise UsageError(f"cannot read {kind} from a memoryview that is not contiguous")
        if view.nbytes == 0 and not may_be_empty:
            raise FormatError(f"not a valid {kind}: it is empty")
        return Source(view.cast("B"), None)
    if not isinstance(data_or_path, (str, os.PathLike)):
        raise UsageError(
            f"cannot read {kind} from {type(data_or_path).__name__}: expected a path or bytes"
        )
    path = os.fspath(data_or_path)
    with reading(kind, path):
        # Check before opening: opening a pipe waits for its writer.
        status = os.stat(path)  # noqa: PTH116 - keeps FileNotFoundError.filename as given
        if stat.S_ISDIR(status.st_mode):
            raise FormatError(f"not a valid {kind}: this is a directory")
        is_nothing = may_be_empty and os.path.samestat(status, os.stat(os.devnull))  # noqa: PTH116
        if not stat.S_ISREG(status.st_mode) and not is_nothing:
            raise FormatError(f"not a valid {kind}: this is not a regular file")
        if is_nothing or status.st_size == 0:  # cannot be mapped
            if may_be_empty:
                return Source(memoryview(b""), path)
            raise FormatError(f"not a valid {kind}: the file is empty")
        with open(path, "rb") as file:  # noqa: PTH123
            if sys.platform == "win32" and status.st_size <= _READ_ON_WINDOWS:
                return Source(memoryview(file.read()), path)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return Source(memoryview(mapped), path)


@contextmanager
def scattered_reads(view: memoryview) -> Iterator[None]:
    """Make the kernel read only the pages in use, if `view` maps a file.

    By default it reads up to megabytes around each page, which suits only whole tensors.
    """
    mapped = view.obj
    if not isinstance(mapped, mmap.mmap) or not hasattr(mmap, "MADV_RANDOM"):
        yield
        return
    mapped.madvise(mmap.MADV_RANDOM)
    try:
        yield
    finally:
        mapped.madvise(mmap.MADV_NORMAL)


# -- Writing


@contextmanager
def atomic_write(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a file that replaces `path` when the block ends without an error.

    Writes to a temporary name in the same folder, or directly to a pipe or device. If the reader of
    a pipe closes it, the `BrokenPipeError` passes through. Raises `UsageError` for a path that
    cannot be written.
    """
    try:
        target = Path(os.path.realpath(path))  # a link is followed, not replaced
    except UnicodeEncodeError as error:
        raise UsageError(f"cannot write {os.fspath(path)!r}: not a name of a file") from error
    part = target.with_name(f".{os.urandom(8).hex()}.part")
    try:
        special = target.exists() and not target.is_file()
        with target.open("wb") if special else part.open("xb") as file:
            yield file
        if not special:
            if target.exists():
                part.chmod(stat.S_IMODE(target.stat().st_mode))
            part.replace(target)
    except BrokenPipeError:
        raise
    except OSError as error:
        # The caller's errors name another file; an error of this write does not name a file.
        if error.filename is not None and str(error.filename) not in (str(target), str(part)):
            raise
        raise UsageError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error
    finally:  # also after an interrupt
        with suppress(OSError):
            part.unlink()


def copy_file(source: Path, target: PathLike) -> None:
    """Copy a file completely or not at all. Raises the errors of `atomic_write`."""
    with source.open("rb") as data, atomic_write(target) as out:
        shutil.copyfileobj(data, out, 1 << 20)


def make_folder(path: PathLike) -> Path:
    """Create the folder `path` if needed. Raises `UsageError` if it cannot be created."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    return folder


# -- Parsed content, kept for the next file with the same bytes

_T = TypeVar("_T")


class ParseCache(Generic[_T]):
    """Parsed values by their source bytes: the last used, for at most `most` bytes of sources.

    A value must not change, and must not refer to a file.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._values: OrderedDict[Hashable, tuple[_T, int]] = OrderedDict()
        self._lock = Lock()

    def made(self, content: Sequence[BytesLike], options: Hashable, make: Callable[[], _T]) -> _T:
        """Return the result of `make`, or the kept result for the same content and options. Errors
        and None are not kept."""
        size = sum(map(len, content))
        if size > self._most:
            return make()
        key = *(sha256(part).digest() for part in content), options
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
        found = make()
        if found is None:
            return found
        with self._lock:
            self._size += size - self._values.pop(key, (None, 0))[1]
            self._values[key] = found, size
            while self._size > self._most:
                _, (_, freed) = self._values.popitem(last=False)
                self._size -= freed
        return found
