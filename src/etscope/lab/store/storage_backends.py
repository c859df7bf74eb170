"""Where an artefact store keeps its files: a folder of this machine, or any place fsspec reaches.

Names are paths with "/" below the place's root; the store makes them of hex digits.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from etscope.errors import MissingDependencyError, UsageError


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
