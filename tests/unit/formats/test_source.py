from __future__ import annotations

import os
from pathlib import Path

import pytest

from etscope.errors import FormatError, MissingFileError, UsageError
from etscope.formats.bytes.files import open_source


def test_a_file_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")

    for given in (path, str(path)):
        source = open_source(given, "ETDump")
        assert bytes(source.buffer) == b"abc"
        assert (source.path, source.name, source.size) == (str(path), str(path), 3)
        assert source.buffer.readonly


def test_a_mapping_outlives_the_name(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    source = open_source(path, "ETDump")
    path.unlink()

    assert bytes(source.buffer) == b"abc"


@pytest.mark.parametrize("given", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_bytes_in_memory(given: bytes) -> None:
    source = open_source(given, "ETDump")

    assert bytes(source.buffer) == b"abc"
    assert (source.path, source.name) == (None, "<memory>")
    assert source.buffer.readonly


def test_a_memoryview_of_other_items_is_seen_as_bytes() -> None:
    view = memoryview(bytes(16)).cast("Q")

    assert open_source(view, "ETDump").size == 16
    with pytest.raises(UsageError, match="not contiguous"):
        open_source(memoryview(b"abcdef")[::2], "ETDump")


def test_what_is_not_a_file(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for ever

    for path, message in [
        (tmp_path, "a directory"),
        ("/dev/null", "not a regular file"),
        (tmp_path / "pipe", "not a regular file"),
        (empty, "the file is empty"),
    ]:
        with pytest.raises(FormatError, match=message) as caught:
            open_source(path, "ETDump")
        assert caught.value.path == str(path)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="ETDump file not found") as caught:
        open_source(tmp_path / "none", "ETDump")
    assert str(tmp_path / "none") in str(caught.value)
    with pytest.raises(FormatError, match="there are no bytes"):
        open_source(b"", "ETDump")
    with pytest.raises(UsageError, match="from int"):
        open_source(3, "ETDump")  # type: ignore[arg-type]
