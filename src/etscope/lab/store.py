"""The artefact store: files by the SHA-256 of their content, in a folder or at any fsspec URL.

The layout is `sha256/ab/<hex>`. An object is written under another name in `parts/`, then moved to
its own: under its own name there is never half of it, whatever dies when. What an object should be
is in its name, so that damage is seen when it is read.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, cast

from etscope.errors import (
    EtscopeError,
    FormatError,
    LabError,
    MissingDataError,
    MissingDependencyError,
    MissingFileError,
    UsageError,
)
from etscope.lab.jobs.records import Artifact

# Where an artefact store keeps its files: a folder of this machine, or any place fsspec reaches.
#
# Names are paths with "/" below the place's root; the store makes them of hex digits.


class Place(Protocol):
    """Files by name. Raises `FileNotFoundError` for what is not there, and whatever the place
    raises for other troubles."""

    def create(self, name: str) -> Any:
        """A new file, to write to."""
        ...

    def finish(self, file: Any) -> None:
        """End writing; what was written lasts."""
        ...

    def abandon(self, file: Any) -> None: ...

    def move(self, name: str, to: str) -> None:
        """Replaces what is there."""
        ...

    def open(self, name: str) -> BinaryIO: ...

    def size(self, name: str) -> int | None:
        """Bytes; None when it is not there."""
        ...

    def touch(self, name: str) -> None:
        """Let it be as new."""
        ...

    def remove(self, name: str) -> None:
        """Remove it, if it is there."""
        ...

    def older(self, folder: str, seconds: float) -> Iterator[str]:
        """Names of files below a folder that were written longer ago."""
        ...


def open_place(url: str) -> Place:
    """Raises `UsageError` for an unknown kind of URL, `MissingDependencyError` for one whose
    package is not installed."""
    if "://" not in url:
        return Folder(Path(url).expanduser().absolute())
    import fsspec

    try:
        filesystem, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingDependencyError(f"the store {url} needs a package: {error}") from error
    except ValueError as error:
        raise UsageError(
            f"{url} is no place for a store: {error}",
            hint="a folder, or a URL that fsspec knows: memory://, s3://, sftp://, …",
        ) from error
    if "file" in _protocols(filesystem):
        return Folder(Path(root))
    return Remote(filesystem, root.rstrip("/"))


class Folder:
    """A folder of this machine. What is finished is on the disk, even when the power fails."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, name: str) -> BinaryIO:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")

    def finish(self, file: BinaryIO) -> None:
        try:
            file.flush()
            os.fsync(file.fileno())
        finally:
            file.close()

    def abandon(self, file: BinaryIO) -> None:
        file.close()

    def move(self, name: str, to: str) -> None:
        target = self.root / to
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            _sync(target.parent.parent)
        (self.root / name).replace(target)
        _sync(target.parent)

    def open(self, name: str) -> BinaryIO:
        return (self.root / name).open("rb")

    def size(self, name: str) -> int | None:
        try:
            return (self.root / name).stat().st_size
        except FileNotFoundError:
            return None

    def touch(self, name: str) -> None:
        with suppress(PermissionError):  # another user's, in a folder of a team
            os.utime(self.root / name)

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def older(self, folder: str, seconds: float) -> Iterator[str]:
        top = self.root / folder
        for place, _, names in os.walk(top):
            for name in names:
                path = Path(place, name)
                try:
                    age = time.time() - path.stat().st_mtime
                except FileNotFoundError:
                    continue
                if age > seconds:
                    yield path.relative_to(self.root).as_posix()


class Remote:
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

    def size(self, name: str) -> int | None:
        path = self._path(name)
        self._filesystem.invalidate_cache(path.rpartition("/")[0])
        try:
            found = self._filesystem.info(path)
        except FileNotFoundError:
            return None
        size = found.get("size")
        return None if size is None else int(size)

    def touch(self, name: str) -> None:
        """Most of them cannot: a `sweep` there goes by when an object was put."""

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.rm_file(self._path(name))

    def older(self, folder: str, seconds: float) -> Iterator[str]:
        self._filesystem.invalidate_cache()
        now = datetime.now(timezone.utc)
        top = self._path(folder)
        if not self._filesystem.exists(top):
            return
        for path in self._filesystem.find(top):
            try:
                written: datetime = self._filesystem.modified(path)
            except FileNotFoundError:
                continue
            if written.tzinfo is None:
                written = written.replace(tzinfo=timezone.utc)
            if (now - written).total_seconds() > seconds:
                yield path[len(self._root) :].lstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _sync(folder: Path) -> None:
    """Make the names in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_PIECE = 1 << 20  # bytes
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OBJECTS, _PARTS, _DAMAGED = "sha256", "parts", "damaged"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_Result = TypeVar("_Result")


class Store:
    """Files by content. Usable from several threads and processes, on several machines.

    url: a folder, or an fsspec URL ("file:///srv/lab", "memory://lab", "s3://bucket/lab").

    Every method raises `LabError` when the store is full or cannot be reached, and `UsageError` for
    what is no SHA-256 in lower-case hex, so that nothing else can become part of a path.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        """Raises `UsageError` for a URL of an unknown kind, `MissingDependencyError` when the
        package for that kind is not installed."""
        self.url = os.fspath(url)
        self._place = open_place(self.url)

    def put_file(
        self,
        path: str | os.PathLike[str],
        name: str,
        media_type: str = "application/octet-stream",
    ) -> Artifact:
        """Take in a file as it is now. Raises `MissingFileError` when it is not there."""
        source = Path(path)
        # A file that is here already, as that of the last job, is only read.
        sha256, size = _sha256_of(source)
        if self._keeps(sha256, size):
            return Artifact(name, sha256, size, media_type)
        return self.put_stream(_pieces_of(source), name, media_type)

    def put_bytes(
        self, data: bytes, name: str, media_type: str = "application/octet-stream"
    ) -> Artifact:
        sha256 = hashlib.sha256(data).hexdigest()
        if self._keeps(sha256, len(data)):
            return Artifact(name, sha256, len(data), media_type)
        return self.put_stream([data], name, media_type)

    def put_stream(
        self,
        chunks: Iterable[bytes],
        name: str,
        media_type: str = "application/octet-stream",
        *,
        limit: int | None = None,
    ) -> Artifact:
        """Take in what `chunks` yields. Errors of theirs pass through, and then, as for any other,
        nothing is kept. Raises `UsageError` when there are more than `limit` bytes."""
        digest, size = hashlib.sha256(), 0
        part = f"{_PARTS}/{secrets.token_hex(16)}"
        try:
            with _Part(self, part) as file:
                for chunk in chunks:
                    size += len(chunk)
                    if limit is not None and size > limit:
                        raise UsageError(f"{name} is larger than {limit:,} bytes")
                    digest.update(chunk)
                    file.write(chunk)
            sha256 = digest.hexdigest()
            with self._at_work(f"{name} cannot be kept"):
                if not self._keeps(sha256, size):
                    self._place.move(part, _place_of(sha256))
        finally:
            with suppress(Exception):  # what is left of it, `sweep` removes
                self._place.remove(part)
        return Artifact(name, sha256, size, media_type)

    def open(self, sha256: str) -> BinaryIO:
        """An object to read, in binary. Its content is not checked: `fetch` does that.

        Raises `MissingDataError` when it is not there.
        """
        return self._found(sha256, self._place.open)

    def fetch(self, sha256: str, path: str | os.PathLike[str]) -> None:
        """Write an object into a file, which is whole and of the right content or not there.

        Raises `MissingDataError` when there is no such object, and `FormatError` when it is
        damaged; it is then set aside, so that the next one who submits the file mends the store.
        """
        target = Path(path)
        part = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}")
        digest = hashlib.sha256()
        with self.open(sha256) as source:
            try:
                with _writing(target), part.open("xb") as file:
                    while piece := self._read(source, sha256):
                        digest.update(piece)
                        file.write(piece)
                if digest.hexdigest() != sha256:
                    self._set_aside_if_damaged(sha256)
                    raise FormatError(
                        "the content of this object of the lab's store is damaged",
                        path=f"{self.url}/{_place_of(sha256)}",
                        hint="submit the file again",
                    )
                with _writing(target):
                    part.replace(target)
            finally:
                part.unlink(missing_ok=True)

    def has(self, sha256: str) -> bool:
        place = _place_of(sha256)
        with self._at_work("the lab's store cannot be read"):
            return self._place.size(place) is not None

    def hold(self, sha256: str) -> bool:
        """`has`, and from now on the object counts as new: who names it in a job that is about to
        be added keeps a `sweep` from removing it in between."""
        return self._renewed(sha256, None)

    def size(self, sha256: str) -> int:
        """Bytes. Raises `MissingDataError` when it is not there."""
        found = self._found(sha256, self._place.size)
        if found is None:
            raise _missing(sha256)
        return found

    def sweep(self, keep: Collection[str], older_than_seconds: float) -> int:
        """Remove objects that are not in `keep` and were put, or held, longer ago than that; and
        what writers that were killed left behind. Returns how many objects went."""
        kept = frozenset(keep)
        with self._at_work("the lab's store cannot be swept"):
            for folder in (_PARTS, _DAMAGED):
                for place in self._place.older(folder, older_than_seconds):
                    self._place.remove(place)
            removed = 0
            for place in self._place.older(_OBJECTS, older_than_seconds):
                sha256 = place.rpartition("/")[2]
                if _SHA256.fullmatch(sha256) and sha256 not in kept:
                    self._place.remove(place)
                    removed += 1
            return removed

    def _keeps(self, sha256: str, size: int) -> bool:
        """Whether the object is there, whole; it is then as new."""
        return self._renewed(sha256, size)

    def _renewed(self, sha256: str, size: int | None) -> bool:
        place = _place_of(sha256)
        try:
            with self._at_work("the lab's store cannot be read"):
                found = self._place.size(place)
                if found is None or (size is not None and found != size):
                    return False
                self._place.touch(place)
                return True
        except _Gone:  # a sweep, just now
            return False

    def _found(self, sha256: str, action: Callable[[str], _Result]) -> _Result:
        place = _place_of(sha256)
        try:
            with self._at_work("the lab's store cannot be read"):
                return action(place)
        except _Gone as error:
            raise _missing(sha256) from error

    def _read(self, source: BinaryIO, sha256: str) -> bytes:
        with self._at_work(f"object {sha256} cannot be read"):
            return source.read(_PIECE)

    def _set_aside_if_damaged(self, sha256: str) -> None:
        """Unless it was damaged only on its way here."""
        with suppress(Exception), self._place.open(_place_of(sha256)) as source:
            digest = hashlib.sha256()
            while piece := source.read(_PIECE):
                digest.update(piece)
            if digest.hexdigest() != sha256:
                self._place.move(_place_of(sha256), f"{_DAMAGED}/{sha256}-{secrets.token_hex(4)}")

    @contextmanager
    def _at_work(self, what: str) -> Iterator[None]:
        """Errors of the place as `LabError`: those of cloud stores are of any class."""
        try:
            yield
        except EtscopeError:
            raise
        except FileNotFoundError as error:
            raise _Gone(f"{what}: {error}") from error
        except Exception as error:
            number = error.errno if isinstance(error, OSError) else None
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            hint = f"make room in {self.url}" if number in _FULL else f"the store is {self.url}"
            raise LabError(f"{what}: {reason}", hint=hint) from error


class _Gone(LabError):
    """Something of the store is not there."""


class _Part:
    """An object on its way: written under a name that is not its own. Its errors are `LabError`,
    those of who writes pass through."""

    def __init__(self, store: Store, place: str) -> None:
        self._store, self._name = store, place
        self._file: Any = None

    def __enter__(self) -> _Part:
        with self._store._at_work("the lab's store cannot be written"):
            self._file = self._store._place.create(self._name)
        return self

    def write(self, data: bytes) -> None:
        with self._store._at_work("the lab's store cannot be written"):
            self._file.write(data)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(Exception):
                self._store._place.abandon(self._file)
            return
        with self._store._at_work("the lab's store cannot be written"):
            self._store._place.finish(self._file)


def _place_of(sha256: str) -> str:
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise UsageError(f"{str(sha256)[:80]!r} is not a SHA-256: 64 digits of 0-9a-f")
    return f"{_OBJECTS}/{sha256[:2]}/{sha256}"


def _missing(sha256: str) -> MissingDataError:
    return MissingDataError(
        f"the lab's store has no object {sha256}", hint="submit the file again, by its path"
    )


def _sha256_of(path: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    for piece in _pieces_of(path):
        digest.update(piece)
        size += len(piece)
    return digest.hexdigest(), size


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
    """A file outside the store, which somebody wants an object in."""
    try:
        yield
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror or error}") from error
