"""Zip files as directories of bounded, checked members: ETRecords and `torch.save` files.

`zipfile` reads the directory. This module reads the members: a stored one becomes a view of the
mapped file without a copy, and no member may unpack beyond its declared size.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from threading import Thread
from typing import IO

from etscope.errors import FormatError, reading
from etscope.formats.bytes.files import PathLike, atomic_write
from etscope.formats.bytes.flatbuffer import Span

__all__ = ["open_archive"]

MAX_MEMBERS = 65_535  # the limit of zip without its 64-bit extension
# Largest ratio of sizes: graph JSON deflates 20 to 50 times, and deflate's own limit is 1,032.
MAX_RATIO = 250
FREE_BYTES = 64 << 20  # below this a member's ratio does not matter
MAX_UNPACKED_MEMBER = 2 << 30  # of a deflated member; a stored one is bounded by the file
MAX_UNPACKED_TOTAL = 8 << 30  # of all deflated members

_LOCAL_HEADER = struct.Struct("<4s5HL2L2H")
# Bits of a member's flags (APPNOTE 4.4.4).
_ENCRYPTED = 0x1
_UTF8_NAME = 0x800
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True, slots=True)
class Member:
    """An entry of a zip file's directory. `size` is unpacked, `stored_size` as in the file."""

    name: str
    size: int
    stored_size: int
    deflated: bool
    crc: int
    offset: int  # of its local header
    limit: int  # the start of the next member, or of the directory


@dataclass(frozen=True, slots=True)
class ZipArchive:
    """The members of a zip file by name, in the directory's order."""

    buffer: memoryview
    members: Mapping[str, Member]
    kind: str = "zip file"
    path: str | None = None
    _checked: set[str] = field(default_factory=set, repr=False, compare=False)

    def read(self, name: str) -> memoryview:
        """A member's bytes, checked against its CRC; for a stored member a view, not a copy.

        Raises `FormatError` if the member is missing, or contradicts the directory.
        """
        member = self.members.get(name)
        if member is None:
            raise FormatError("this member is missing", path=self.path, member=name)
        with reading(self.kind, self.path, member=name):
            data = self._unpacked(member)
            if name not in self._checked and zlib.crc32(data) != member.crc:
                raise FormatError("the member is damaged: its CRC-32 is wrong")
            self._checked.add(name)
            return data

    def read_beside(self, name: str) -> tuple[memoryview, Callable[[], None]]:
        """A member's bytes while a thread still checks them, and a function that waits for it.

        Do not use results of the bytes before the function returns. Raises the errors of `read`;
        the function raises the error for a wrong CRC.
        """
        member = self.members.get(name)
        if member is None or member.deflated or name in self._checked:
            return self.read(name), lambda: None
        with reading(self.kind, self.path, member=name):
            data = self._unpacked(member)
        errors: list[Exception] = []

        def check() -> None:
            try:
                self.read(name)
            except FormatError as error:
                errors.append(error)

        def wait() -> None:
            thread.join()
            if errors:
                raise errors[0]

        thread = Thread(target=check, daemon=True)
        thread.start()
        return data, wait

    def stored_span(self, member: Member) -> Span:
        """Return the place of a member's stored bytes, after its local header.

        Raises `FormatError` if the member contradicts the directory.
        """
        # The local header must exist and have the same name.
        header = self.buffer[member.offset : member.offset + _LOCAL_HEADER.size]
        if member.offset < 0 or len(header) < _LOCAL_HEADER.size:
            raise FormatError("the member's header is not in the file", offset=member.offset)
        signature, _, flags, *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        if signature != b"PK\x03\x04":
            raise FormatError(
                "the member's header is not at its declared place", offset=member.offset
            )
        name_start = member.offset + _LOCAL_HEADER.size
        name = bytes(self.buffer[name_start : name_start + name_length])
        if name.decode("utf-8" if flags & _UTF8_NAME else "cp437") != member.name:
            raise FormatError("the member has another name in its own header", offset=member.offset)
        start: int = name_start + name_length + extra_length
        if start + member.stored_size > min(member.limit, len(self.buffer)):
            raise FormatError("the member overlaps the next one", offset=member.offset)
        return Span(start, member.stored_size)

    def _unpacked(self, member: Member) -> memoryview:
        span = self.stored_span(member)
        data = self.buffer[span.offset : span.offset + span.size]
        if not member.deflated:
            return data
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        unpacked = unpacker.decompress(data, member.size + 1)
        if len(unpacked) != member.size or not unpacker.eof:
            raise FormatError("the member is damaged: it does not unpack to its declared size")
        return memoryview(unpacked)


def open_archive(
    buffer: memoryview, kind: str, path: str | None = None, *, checked: bool = False
) -> ZipArchive:
    """Read the directory of a zip file in memory or mapped. `kind` names the format in messages.

    checked: the bytes as a whole are already checked, so skip the CRCs of members.

    Raises `FormatError` for a file that is not a zip file, and for an unsafe one: members overlap,
    share a name, are encrypted, unpack beyond the limits of this module, or have absolute names or
    names with "..".
    """
    with reading(kind, path):
        with zipfile.ZipFile(_SeekableView(buffer)) as directory:
            entries = directory.infolist()
            end = directory.start_dir
        if len(entries) > MAX_MEMBERS:
            raise FormatError(f"{len(entries)} members; the limit is {MAX_MEMBERS}")
        # Each member ends before the next header, the last one before the directory.
        offsets = sorted(entry.header_offset for entry in entries)
        for offset, following in pairwise(offsets):
            if offset == following:
                raise FormatError("two members overlap", offset=offset)
        limits = dict(zip(offsets, [*offsets[1:], end], strict=True))

        members: dict[str, Member] = {}
        for entry in entries:
            _check_entry(entry)
            if entry.filename in members:
                raise FormatError("two members have this name", member=entry.filename)
            members[entry.filename] = Member(
                name=entry.filename,
                size=entry.file_size,
                stored_size=entry.compress_size,
                deflated=entry.compress_type == zipfile.ZIP_DEFLATED,
                crc=entry.CRC,
                offset=entry.header_offset,
                limit=limits[entry.header_offset],
            )
        total = sum(member.size for member in members.values() if member.deflated)
        if total > MAX_UNPACKED_TOTAL:
            raise FormatError(
                f"the members unpack to {total:,} bytes; the limit is {MAX_UNPACKED_TOTAL:,}"
            )
        return ZipArchive(buffer, members, kind, path, set(members) if checked else set())


def _check_entry(entry: zipfile.ZipInfo) -> None:
    """Raise `FormatError` for a member with an unsafe name, packing or size."""
    name = entry.filename
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or _CONTROL.search(entry.orig_filename):
        raise FormatError(f"a member has an unsafe name: {entry.orig_filename[:80]!r}")
    if entry.flag_bits & _ENCRYPTED:
        raise FormatError("the member is encrypted", member=name)
    if entry.compress_type == zipfile.ZIP_STORED:
        if entry.file_size != entry.compress_size:
            raise FormatError(
                "the zip member is not compressed, but its packed and unpacked sizes differ",
                member=name,
            )
    elif entry.compress_type == zipfile.ZIP_DEFLATED:
        limit = min(max(FREE_BYTES, MAX_RATIO * entry.compress_size), MAX_UNPACKED_MEMBER)
        if entry.file_size > limit:
            raise FormatError(
                f"the member unpacks from {entry.compress_size:,} to {entry.file_size:,} bytes; "
                f"the limit is {limit:,}",
                member=name,
            )
    else:
        raise FormatError(f"unknown compression method {entry.compress_type}", member=name)


class _SeekableView(io.RawIOBase):
    """A buffer as a file that `zipfile` can read."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._position = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._position, len(self._buffer))[whence]
        if base + offset < 0:
            raise OSError("seek before the start")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        end = None if size is None or size < 0 else self._position + size
        data = bytes(self._buffer[self._position : end])
        self._position += len(data)
        return data


# --------------------------------------------------------------------------------------------
# Writing.

_CHUNK = 16 << 20  # bytes: bounds the memory for a copy of a large member
_TIME = (1980, 1, 1, 0, 0, 0)  # always the same: equal content gives equal files
_MODE = 0o644 << 16  # Unix permissions, in the upper half of the external attributes


@dataclass(frozen=True, slots=True)
class NewMember:
    """A member to write. Text is worth deflating, weights are not."""

    name: str
    data: bytes | memoryview
    deflate: bool = False


def write_archive(members: Iterable[NewMember], destination: PathLike | IO[bytes]) -> None:
    """Write a zip file to a path or a stream.

    The file appears, or replaces an older one, when it is complete; if `members` raises, nothing
    remains. A stream gets its bytes after the last member is made. Raises `UsageError` for a path
    that cannot be written.
    """
    if isinstance(destination, (str, os.PathLike)):
        with atomic_write(destination) as file:
            _write_members(members, file)
        return
    import tempfile  # imports random: a reader needs neither

    with tempfile.TemporaryFile() as file:
        _write_members(members, file)
        file.seek(0)
        shutil.copyfileobj(file, destination, _CHUNK)


def _write_members(members: Iterable[NewMember], file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for member in members:
            info = zipfile.ZipInfo(member.name, _TIME)
            info.compress_type = zipfile.ZIP_DEFLATED if member.deflate else zipfile.ZIP_STORED
            info.external_attr = _MODE
            info.file_size = len(member.data)
            view = memoryview(member.data)
            with archive.open(info, "w") as out:
                for start in range(0, len(view), _CHUNK):
                    out.write(view[start : start + _CHUNK])
