"""The artefact store: files by the SHA-256 of their content, in a folder or at any fsspec URL.

The layout is `sha256/ab/<hex>`. An object is written under another name in `parts/`, then moved to
its own: under its own name there is never half of it, whatever dies when. What an object should be
is in its name, so that damage is seen when it is read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from etscope.errors import (
    EtscopeError,
    FormatError,
    LabError,
    MissingDataError,
    MissingFileError,
    UsageError,
)
from etscope.lab.jobs.records import Artifact
from etscope.lab.store.storage_backends import open_place

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
