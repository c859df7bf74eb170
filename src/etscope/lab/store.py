"""The content-addressed store of artefacts: a folder, or any URL that fsspec knows.

An object is at ``sha256/ab/abcdef…``, by the SHA-256 of its content, so that equal files are kept
once, and what is read can be checked. It is written under another name (``new/…``) and moved when
it is whole: nobody sees a half of it, whatever dies meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import fsspec

from etscope.errors import FormatError, LabError, MissingDataError, UsageError
from etscope.lab.records import Artifact

_PIECE = 1 << 20  # bytes
_HASH = re.compile(r"[0-9a-f]{64}\Z")
_BINARY = "application/octet-stream"


class Store:
    """Files by their content. Usable from threads and processes.

    url: a folder, which is made if needed, or an fsspec URL ("s3://bucket/lab", "memory://lab").
    Every method raises `LabError` when the store cannot be reached or is full, and `UsageError`
    for what is no SHA-256.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url = os.fspath(url)
        try:
            self._files, root = fsspec.core.url_to_fs(self.url)
        except (ValueError, ImportError) as error:
            raise UsageError(
                f"not the place of a store: {self.url} ({error})",
                hint="a folder, or a URL whose fsspec package is installed",
            ) from error
        self._root = str(root).rstrip("/")
        self._is_local = "file" in _names(self._files.protocol)

    def put_file(
        self, path: str | os.PathLike[str], name: str = "", media_type: str = _BINARY
    ) -> Artifact:
        """Take a file in."""
        with Path(path).open("rb") as file:
            return self.put_stream(_pieces(file), name or Path(path).name, media_type)

    def put_bytes(self, data: bytes, name: str, media_type: str = _BINARY) -> Artifact:
        return self.put_stream([data], name, media_type)

    def put_stream(
        self,
        chunks: Iterable[bytes],
        name: str,
        media_type: str = _BINARY,
        limit: int | None = None,
    ) -> Artifact:
        """Take content in as it comes. limit: bytes; `UsageError` for more."""
        new = f"{self._root}/new/{secrets.token_hex(16)}"
        digest, size = hashlib.sha256(), 0
        with self._working(f"{name} cannot be put into the store"):
            try:
                self._files.makedirs(f"{self._root}/new", exist_ok=True)
                with self._files.open(new, "wb") as out:
                    for chunk in chunks:
                        size += len(chunk)
                        if limit is not None and size > limit:
                            raise UsageError(f"{name} is larger than {limit:,} bytes")
                        digest.update(chunk)
                        out.write(chunk)
                    if self._is_local:
                        out.flush()
                        os.fsync(out.fileno())
                self._move(new, self._place(digest.hexdigest()))
            except BaseException:
                with contextlib.suppress(Exception):
                    self._files.rm_file(new)
                raise
        return Artifact(name, digest.hexdigest(), size, media_type)

    def open(self, sha256: str) -> BinaryIO:
        """A file to read from. `MissingDataError` when there is none of this content."""
        place = self._place(sha256)
        with self._working("the store cannot be read"):
            try:
                return cast("BinaryIO", self._files.open(place, "rb"))
            except FileNotFoundError:
                raise _missing(sha256) from None

    def fetch(self, sha256: str, path: str | os.PathLike[str]) -> None:
        """Write an object to a local file, all or nothing. `FormatError` when the store holds
        something else than it should."""
        target = Path(path)
        new = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}")
        digest = hashlib.sha256()
        try:
            with (
                self._working("the store cannot be read"),
                self.open(sha256) as source,
                new.open("wb") as out,
            ):
                for piece in _pieces(source):
                    digest.update(piece)
                    out.write(piece)
            if digest.hexdigest() != sha256:
                raise FormatError(
                    "the content is not that of its SHA-256: it was changed or damaged",
                    path=f"{self.url}: {self._place(sha256)}",
                    hint="remove this object, and submit or run again",
                )
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)

    def has(self, sha256: str) -> bool:
        place = self._place(sha256)
        with self._working("the store cannot be read"):
            return bool(self._files.isfile(place))

    def size(self, sha256: str) -> int:
        """Bytes. `MissingDataError` when there is none of this content."""
        place = self._place(sha256)
        with self._working("the store cannot be read"):
            try:
                return int(self._files.info(place)["size"])
            except FileNotFoundError:
                raise _missing(sha256) from None

    def sweep(self, keep: Collection[str], older_than_seconds: float) -> int:
        """Remove objects that are not in `keep` and were not written lately, and what interrupted
        writers left; how many there were."""
        kept = frozenset(keep)
        before = time.time() - older_than_seconds
        removed = 0
        with self._working("the store cannot be swept"):
            found: dict[str, dict[str, Any]] = self._files.find(self._root, detail=True)
            for place, about in found.items():
                name = place.rpartition("/")[2]
                if name not in kept and _written(about) <= before:
                    self._files.rm_file(place)
                    removed += 1
        return removed

    def _place(self, sha256: str) -> str:
        if not _HASH.match(sha256):
            raise UsageError(f"not a SHA-256: {sha256!r}")
        return f"{self._root}/sha256/{sha256[:2]}/{sha256}"

    def _move(self, new: str, place: str) -> None:
        folder = place.rpartition("/")[0]
        self._files.makedirs(folder, exist_ok=True)
        if self._is_local:
            Path(new).replace(place)
            _sync_folder(folder)
        else:
            self._files.mv(new, place)

    @contextmanager
    def _working(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                free = ""
                with contextlib.suppress(OSError):
                    free = f": {shutil.disk_usage(self._root).free:,} bytes are free"
                raise LabError(
                    f"the store {self.url} is full{free}", hint="make room, and run the job again"
                ) from error
            raise LabError(
                f"{what} ({self.url}): {error.strerror or error}",
                hint="is it there, and may this user write to it?",
            ) from error


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _missing(sha256: str) -> MissingDataError:
    return MissingDataError(f"the store has no object {sha256}")


def _names(protocol: str | tuple[str, ...]) -> tuple[str, ...]:
    return (protocol,) if isinstance(protocol, str) else protocol


def _written(about: dict[str, Any]) -> float:
    """When an object was written, in seconds since 1970; 0 when the store does not say."""
    for key in ("mtime", "LastModified", "created"):
        value = about.get(key)
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, datetime):
            return value.timestamp()
    return 0.0


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
