"""The artefact store: files by the SHA-256 of their content, in a folder or at any fsspec URL.

The layout is `sha256/ab/<hex>`. An object is written under another name in `parts/`, then moved to
its own, under which there is never half of it, whatever dies when. Its name is the hash of its
content, so damage is found when it is read. `attempts/<token>` is a small file for each attempt at
a job that a worker began.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from etscope.errors import (
    EtscopeError,
    FormatError,
    LabError,
    MissingDataError,
    MissingDependencyError,
    MissingFileError,
    UsageError,
)
from etscope_lab.jobs.records import Artifact

_PIECE = 1 << 20  # bytes
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OBJECTS, _PARTS, _DAMAGED, _ATTEMPTS = "sha256", "parts", "damaged", "attempts"
_TOKEN = re.compile(r"[0-9A-Za-z-]{1,64}")
_ATTEMPTS_KEPT = 7 * 86_400  # seconds; a job may wait at its worker behind another one
_AT_ONCE = 100  # objects that a sweep looks for in the database together
_NEW = 43_200.0  # seconds; shorter than what a sweep keeps
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_Result = TypeVar("_Result")
RemoveUnused = Callable[[Collection[str], Callable[[str], bool]], int]


# Both backends have files by name: a path with "/" below their root, which the store makes of hex
# digits. They raise `FileNotFoundError` for a missing file, and errors of any class for other
# failures.


def open_backend(url: str) -> FsspecBackend:
    """Open the store at a URL. Raises `UsageError` for an unknown kind of URL,
    `MissingDependencyError` if the package for it is not installed."""
    if "://" not in url:
        return FolderBackend(Path(url).expanduser().absolute())
    import fsspec

    try:
        filesystem, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingDependencyError(f"the store {url} needs a package: {error}") from error
    except ValueError as error:
        raise UsageError(
            f"{url} cannot be used as a store: {error}",
            hint="a store is a folder, or a URL that fsspec knows: memory://, s3://, sftp://, …",
        ) from error
    if "file" in _protocols(filesystem):
        return FolderBackend(Path(root))
    return FsspecBackend(filesystem, root.rstrip("/"))


class FsspecBackend:
    """A file system of fsspec."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem, self._root = filesystem, root

    def create(self, name: str) -> Any:
        path = self._path(name)
        self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        return self._filesystem.open(path, "wb")

    def finish(self, file: Any) -> None:
        file.close()

    def abandon(self, file: Any) -> None:
        discard = getattr(file, "discard", None)  # of a buffered upload: send nothing more
        try:
            if discard is not None:
                discard()
        finally:
            file.close()

    def move(self, name: str, to: str) -> None:
        target = self._path(to)
        self._filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._filesystem.mv(self._path(name), target)

    def open(self, name: str) -> BinaryIO:
        if "memory" in _protocols(self._filesystem):  # all its readers share one position
            return io.BytesIO(self._filesystem.cat_file(self._path(name)))
        return cast(BinaryIO, self._filesystem.open(self._path(name), "rb"))

    def has(self, name: str) -> bool:
        """True when there is a file or folder of this name."""
        self._filesystem.invalidate_cache()
        return bool(self._filesystem.exists(self._path(name)))

    def size(self, name: str) -> int:
        path = self._path(name)
        self._filesystem.invalidate_cache(path.rpartition("/")[0])
        size = self._filesystem.info(path).get("size")
        if size is None:
            raise FileNotFoundError(path)
        return int(size)

    def touch(self, name: str) -> bool:
        """Let a file count as new. False where it was put long ago: most file systems cannot."""
        return self.age(name) < _NEW

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.rm_file(self._path(name))

    def age(self, name: str) -> float:
        """The seconds since a file was written, or touched."""
        written: datetime = self._filesystem.modified(self._path(name))
        if written.tzinfo is None:
            written = written.replace(tzinfo=timezone.utc)
        return (datetime.now(timezone.utc) - written).total_seconds()

    def names(self, folder: str) -> Iterator[str]:
        """Yield the names of the files below a folder."""
        self._filesystem.invalidate_cache()
        top = self._path(folder)
        if self._filesystem.exists(top):
            yield from (p[len(self._root) :].lstrip("/") for p in self._filesystem.find(top))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


class FolderBackend(FsspecBackend):
    """A folder of this machine. Finished files survive a power failure."""

    def __init__(self, root: Path) -> None:
        from fsspec.implementations.local import LocalFileSystem

        super().__init__(LocalFileSystem(), str(root))
        self.root = root

    def create(self, name: str) -> BinaryIO:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")

    def finish(self, file: BinaryIO) -> None:
        """Close a file so that its content lasts."""
        try:
            file.flush()
            os.fsync(file.fileno())
        finally:
            file.close()

    def move(self, name: str, to: str) -> None:
        """Rename a file; replace the file of that name, if any."""
        target = self.root / to
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            _sync(target.parent.parent)
        (self.root / name).replace(target)
        _sync(target.parent)

    def open(self, name: str) -> BinaryIO:
        return (self.root / name).open("rb")

    def names(self, folder: str) -> Iterator[str]:
        for parent, _, names in os.walk(self.root / folder):  # millions: not all at once
            yield from (Path(parent, name).relative_to(self.root).as_posix() for name in names)

    def touch(self, name: str) -> bool:
        with suppress(PermissionError):  # another user's, in a folder of a team
            os.utime(self.root / name)
        return True

    def free_bytes(self) -> int:
        """Return the space that is free for this user. The folder is made by the first file."""
        return shutil.disk_usage(self.root if self.root.exists() else self.root.parent).free


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _sync(folder: Path) -> None:
    """Make the names in a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Store:
    """Files by content. Usable from several threads and processes, on several machines.

    url: a folder, or an fsspec URL ("file:///srv/lab", "memory://lab", "s3://bucket/lab").

    Every method raises `LabError` when the store is full or cannot be reached, and `UsageError` for
    a string that is not a SHA-256 in lower-case hex, so that nothing else becomes part of a path.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        """Raises `UsageError` for a URL of an unknown kind, `MissingDependencyError` when the
        package for that kind is not installed."""
        self.url = os.fspath(url)
        self._backend = open_backend(self.url)

    def put_file(
        self,
        path: str | os.PathLike[str],
        name: str,
        media_type: str = "application/octet-stream",
    ) -> Artifact:
        """Store a file in its present state. Raises `MissingFileError` if it does not exist."""
        source = Path(path)
        # A file that is stored already, such as the last job's, is only read.
        digest, size = hashlib.sha256(), 0
        for piece in _pieces_of(source):
            digest.update(piece)
            size += len(piece)
        sha256 = digest.hexdigest()
        if self._renew(sha256, size):
            return Artifact(name, sha256, size, media_type)
        return self.put_stream(_pieces_of(source), name, media_type)

    def put_stream(
        self,
        chunks: Iterable[bytes],
        name: str,
        media_type: str = "application/octet-stream",
    ) -> Artifact:
        """Store the bytes that `chunks` yields. After any error, also one of `chunks`, nothing
        is kept."""
        digest, size = hashlib.sha256(), 0
        part = f"{_PARTS}/{secrets.token_hex(16)}"
        failed = "the lab's store cannot be written"
        try:
            with self._errors(failed):
                file = self._backend.create(part)
            try:
                for chunk in chunks:
                    size += len(chunk)
                    digest.update(chunk)
                    with self._errors(failed):
                        file.write(chunk)
            except BaseException:
                with suppress(Exception):
                    self._backend.abandon(file)
                raise
            with self._errors(failed):
                self._backend.finish(file)
            sha256 = digest.hexdigest()
            with self._errors(f"{name} cannot be kept"):
                if not self._renew(sha256, size):
                    self._backend.move(part, _path_of(sha256))
        finally:
            with suppress(Exception):  # `sweep` removes leftovers
                self._backend.remove(part)
        return Artifact(name, sha256, size, media_type)

    def open(self, sha256: str) -> BinaryIO:
        """Open an object to read, in binary. Its content is not checked: `fetch` does that.

        Raises `MissingDataError` if the object does not exist.
        """
        return self._found(sha256, self._backend.open)

    def fetch(self, sha256: str, path: str | os.PathLike[str]) -> None:
        """Write an object into a file; after an error the file does not exist.

        Raises `MissingDataError` if the object does not exist, and `FormatError` if it is
        damaged; it is then set aside, so that submitting the file again repairs the store.
        """
        target = Path(path)
        part = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}")
        digest = hashlib.sha256()
        with self.open(sha256) as source:
            try:
                with _writing(target), part.open("xb") as file:
                    while True:
                        with self._errors(f"object {sha256} cannot be read"):
                            piece = source.read(_PIECE)
                        if not piece:
                            break
                        digest.update(piece)
                        file.write(piece)
                if digest.hexdigest() != sha256:
                    self._set_aside_if_damaged(sha256)
                    raise FormatError(
                        "the content of this object of the lab's store is damaged",
                        path=f"{self.url}/{_path_of(sha256)}",
                        hint="submit the file again",
                    )
                with _writing(target):
                    part.replace(target)
            finally:
                part.unlink(missing_ok=True)

    @property
    def is_empty(self) -> bool:
        """Return True without any object, such as when the store's disk is not mounted."""
        with self._errors("the lab's store cannot be read"):
            return not self._backend.has(_OBJECTS)

    def free_bytes(self) -> int | None:
        """Return the free space; None for a store at a URL, which is only reached."""
        with self._errors("the lab's store cannot be reached"):
            if isinstance(self._backend, FolderBackend):
                return self._backend.free_bytes()
            self._backend.has(_OBJECTS)
            return None

    def has(self, sha256: str) -> bool:
        try:
            self.size(sha256)
        except MissingDataError:
            return False
        return True

    def hold(self, sha256: str) -> bool:
        """Do `has`, and let the object count as new: a `sweep` then does not remove it before the
        job that names it is added.
        """
        return self._renew(sha256, None)

    def size(self, sha256: str) -> int:
        """Return the size in bytes. Raises `MissingDataError` if the object does not exist."""
        return self._found(sha256, self._backend.size)

    def begin(self, token: str) -> bool:
        """Note that an attempt at a job begins. False when it was noted before: something started
        it again."""
        with self._errors("the lab's store cannot be written"):
            if self.began(token):
                return False
            try:
                file = self._backend.create(f"{_ATTEMPTS}/{token}")
            except FileExistsError:
                return False
            file.write(b"begun\n")  # some object stores keep no empty files
            self._backend.finish(file)
            return True

    def began(self, token: str) -> bool:
        """True when a worker has begun an attempt."""
        if not _TOKEN.fullmatch(token):
            raise UsageError(f"{token[:80]!r} is not a token of an attempt")
        with self._errors("the lab's store cannot be read"):
            return self._backend.has(f"{_ATTEMPTS}/{token}")

    def remove(self, sha256: str, older_than_seconds: float) -> bool:
        """Remove an object that was put, or held, longer ago than that. False if there is none."""
        with self._errors("the lab's store cannot be swept"):
            return self._remove(_path_of(sha256), older_than_seconds)

    def _remove(self, name: str, older_than_seconds: float) -> bool:
        try:
            is_old = self._backend.age(name) > older_than_seconds
        except FileNotFoundError:
            return False
        if is_old:
            self._backend.remove(name)
        return is_old

    def sweep(self, remove_unused: RemoveUnused, older_than_seconds: float) -> int:
        """Remove unused objects that were put, or held, longer ago than that, and leftovers of
        killed writers. remove_unused: `Database.remove_unused`. Return the number of removed
        objects."""
        with self._errors("the lab's store cannot be swept"):
            for folder in (_PARTS, _DAMAGED, _ATTEMPTS):
                kept = max(older_than_seconds, _ATTEMPTS_KEPT if folder == _ATTEMPTS else -1)
                for name in self._backend.names(folder):
                    self._remove(name, kept)
            names = (name.rpartition("/")[2] for name in self._backend.names(_OBJECTS))
            objects = filter(_SHA256.fullmatch, names)
            removed = 0
            while batch := list(islice(objects, _AT_ONCE)):
                removed += remove_unused(
                    batch, partial(self.remove, older_than_seconds=older_than_seconds)
                )
            return removed

    def _renew(self, sha256: str, size: int | None) -> bool:
        """Let an object count as new. False when there is none, or it has to be put again: it has
        another size, or cannot count as new."""
        path = _path_of(sha256)
        try:
            with self._errors("the lab's store cannot be read"):
                found = self._backend.size(path)
                if size is not None and found != size:
                    return False
                return self._backend.touch(path) or size is None
        except _Missing:  # there is none, or a sweep has just removed it
            return False

    def _found(self, sha256: str, action: Callable[[str], _Result]) -> _Result:
        path = _path_of(sha256)
        try:
            with self._errors("the lab's store cannot be read"):
                return action(path)
        except _Missing as error:
            raise MissingDataError(
                f"the lab's store has no object {sha256}", hint="submit the file again, by its path"
            ) from error

    def _set_aside_if_damaged(self, sha256: str) -> None:
        """Move an object away, unless it was damaged only when it was transferred."""
        with suppress(Exception), self._backend.open(_path_of(sha256)) as source:
            digest = hashlib.sha256()
            while piece := source.read(_PIECE):
                digest.update(piece)
            if digest.hexdigest() != sha256:
                self._backend.move(_path_of(sha256), f"{_DAMAGED}/{sha256}-{secrets.token_hex(4)}")

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Raise errors of the backend, which are of any class, as `LabError`."""
        try:
            yield
        except EtscopeError:
            raise
        except FileNotFoundError as error:
            raise _Missing(f"{what}: {error}") from error
        except Exception as error:
            number = error.errno if isinstance(error, OSError) else None
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            hint = f"make room in {self.url}" if number in _FULL else f"the store is {self.url}"
            raise LabError(f"{what}: {reason}", hint=hint) from error


class _Missing(LabError):
    """A file of the store does not exist."""


def _path_of(sha256: str) -> str:
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise UsageError(f"{str(sha256)[:80]!r} is not a SHA-256: 64 digits of 0-9a-f")
    return f"{_OBJECTS}/{sha256[:2]}/{sha256}"


def _pieces_of(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
    except FileNotFoundError as error:
        raise MissingFileError(f"file not found: {path}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raise errors of a file outside the store as `LabError`."""
    try:
        yield
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror or error}") from error
