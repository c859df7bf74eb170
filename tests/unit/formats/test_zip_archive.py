"""Zip files: members are what the directory says, or an error."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest

from etscope.errors import FormatError
from etscope.formats.bytes import zip_archive
from etscope.formats.bytes.zip_archive import NewMember, ZipArchive, open_archive, write_archive
from tests.support.etrecord_files import zip_bytes


def opened(data: bytes) -> ZipArchive:
    return open_archive(memoryview(data), "zip file")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_read(compression: int) -> None:
    data = zip_bytes({"a": b"one" * 100, "b/c": b"", "ümlaut": b"\0\1"}, compression)
    archive = opened(data)
    assert list(archive.members) == ["a", "b/c", "ümlaut"]
    assert [bytes(archive.read(name)) for name in archive.members] == [b"one" * 100, b"", b"\0\1"]
    assert archive.members["a"].size == 300


def test_where_an_archive_may_begin_and_what_is_a_view() -> None:
    data = zip_bytes({"a": b"x" * 1000})
    assert opened(data).read("a").obj is memoryview(data).obj
    assert bytes(opened(b"#!/bin/sh\n" + zip_bytes({"a": b"x"})).read("a")) == b"x"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive, archive.open("a", "w", force_zip64=True) as file:
        file.write(b"content")
    assert bytes(opened(stream.getvalue()).read("a")) == b"content"


def test_a_missing_member() -> None:
    with pytest.raises(FormatError, match="missing") as caught:
        opened(zip_bytes({"a": b""})).read("b")
    assert caught.value.member == "b"


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_changed_byte_is_noticed(compression: int) -> None:
    data = bytearray(zip_bytes({"a": b"weights" * 20}, compression))
    data[35] ^= 0xFF
    with pytest.raises(FormatError) as caught:
        opened(bytes(data)).read("a")
    assert caught.value.member == "a"


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "a\\b", "a\nb", "a\0b"])
def test_names_that_lead_elsewhere(name: str) -> None:
    stand_in = "q" * len(name)
    data = zip_bytes({stand_in: b"1"}).replace(stand_in.encode(), name.encode())
    with pytest.raises(FormatError, match="unsafe name"):
        opened(data)


def test_archives_that_are_not_read() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", b"2")
    encrypted = bytearray(zip_bytes({"a": b"1"}))
    encrypted[encrypted.index(b"PK\1\2") + 8] |= 1
    for data, message in (
        (stream.getvalue(), "two members have this name"),
        (bytes(encrypted), "encrypted"),
        (zip_bytes({"a": b"1"}, zipfile.ZIP_BZIP2), "compression method"),
        (zip_bytes({"a": b"1"}, zipfile.ZIP_LZMA), "compression method"),
    ):
        with pytest.raises(FormatError, match=message):
            opened(data)


def directory_field(data: bytes, offset: int, layout: str, value: int) -> bytes:
    """The archive with a field of the first directory entry changed."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, data.index(b"PK\1\2") + offset, value)
    return bytes(changed)


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archive, "FREE_BYTES", 1000)
    bomb = zip_bytes({"a": b"\0" * 1_000_000}, zipfile.ZIP_DEFLATED)
    with pytest.raises(FormatError, match="unpacks from"):
        opened(bomb)
    with pytest.raises(FormatError, match="declared size"):
        opened(directory_field(bomb, 24, "<L", 900)).read("a")


def test_bombs_and_members_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archive, "MAX_UNPACKED_TOTAL", 5_000)
    with pytest.raises(FormatError, match="unpack to 6,000 bytes"):
        opened(zip_bytes({"a": b"\0" * 3000, "b": b"\0" * 3000}, zipfile.ZIP_DEFLATED))
    monkeypatch.setattr(zip_archive, "MAX_MEMBERS", 3)
    with pytest.raises(FormatError, match="4 members"):
        opened(zip_bytes({str(number): b"" for number in range(4)}))


def test_members_that_share_bytes() -> None:
    data = zip_bytes({"a": b"x" * 50, "b": b"y" * 50})
    first, second = data.index(b"PK\3\4"), data.rindex(b"PK\3\4")
    entry = data.rindex(b"PK\1\2")
    overlapping = bytearray(data)
    struct.pack_into("<L", overlapping, entry + 42, first)
    with pytest.raises(FormatError, match="overlap"):
        opened(bytes(overlapping))
    longer = bytearray(data)  # the first one claims the second's bytes too
    struct.pack_into("<LL", longer, data.index(b"PK\1\2") + 20, second + 50, second + 50)
    with pytest.raises(FormatError, match="overlaps"):
        opened(bytes(longer)).read("a")


def test_a_directory_that_lies_about_members() -> None:
    with pytest.raises(FormatError, match="another name"):
        opened(zip_bytes({"abc": b"1"}).replace(b"abc", b"xyz", 1)).read("abc")
    data = zip_bytes({"a": b"x" * 100})
    with pytest.raises(FormatError, match="not at its declared place"):
        opened(directory_field(data, 42, "<L", 5)).read("a")


def test_what_is_written_is_read_and_the_same_each_time(tmp_path: Path) -> None:
    parts = [NewMember("a", b"text" * 100, deflate=True), NewMember("b/c", memoryview(b"weights"))]
    path = tmp_path / "out.zip"
    write_archive(parts, path)
    archive = opened(path.read_bytes())
    assert [member.deflated for member in archive.members.values()] == [True, False]
    assert bytes(archive.read("a")) == b"text" * 100
    assert zipfile.ZipFile(path).testzip() is None
    stream = io.BytesIO()
    write_archive(parts, stream)
    assert stream.getvalue() == path.read_bytes()


def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    def parts() -> object:
        yield NewMember("a", b"new")
        raise RuntimeError("halfway")

    path = tmp_path / "out.zip"
    path.write_bytes(b"old")
    stream = io.BytesIO()
    for destination in (path, stream):
        with pytest.raises(RuntimeError, match="halfway"):
            write_archive(parts(), destination)  # type: ignore[arg-type]
    assert [file.name for file in tmp_path.iterdir()] == ["out.zip"]
    assert path.read_bytes() == b"old" and stream.getvalue() == b""
