"""Bytes that are read, files that are written, and what is kept of bytes."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import pytest

from etscope.errors import FormatError, MissingFileError, UsageError
from etscope.formats.bytes import files
from etscope.formats.bytes.files import ParseCache, atomic_write, open_source


def test_a_file_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    for given in (path, str(path)):
        source = open_source(given, "ETDump")
        assert bytes(source.buffer) == b"abc"
        assert (source.path, source.name, source.size) == (str(path), str(path), 3)
        assert source.buffer.readonly
    path.unlink()
    assert bytes(source.buffer) == b"abc"


def test_a_file_is_read_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows does not replace a file that is mapped."""
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    monkeypatch.setattr("sys.platform", "win32")
    assert open_source(path, "ETDump").buffer.obj == b"abc"
    monkeypatch.setattr(files, "_READ_ON_WINDOWS", 2)
    assert isinstance(open_source(path, "ETDump").buffer.obj, mmap.mmap)


def test_bytes_in_memory() -> None:
    for given in (b"abc", bytearray(b"abc"), memoryview(b"abc")):
        source = open_source(given, "ETDump")
        assert bytes(source.buffer) == b"abc"
        assert (source.path, source.name) == (None, "<memory>")
        assert source.buffer.readonly
    assert open_source(memoryview(bytes(16)).cast("Q"), "ETDump").size == 16
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

    with pytest.raises(MissingFileError, match="ETDump file not found") as caught:
        open_source(tmp_path / "none", "ETDump")
    assert str(tmp_path / "none") in str(caught.value)
    with pytest.raises(FormatError, match="it is empty"):
        open_source(b"", "ETDump")
    with pytest.raises(UsageError, match="from int"):
        open_source(3, "ETDump")  # type: ignore[arg-type]


# -- writing


def test_a_new_file_appears_when_it_is_whole_or_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_write(path) as file:
        file.write(b"abc")
        assert not path.exists()
    assert path.read_bytes() == b"abc"
    assert list(tmp_path.iterdir()) == [path]

    path.chmod(0o640)
    with pytest.raises(ZeroDivisionError), atomic_write(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == b"abc"
    assert list(tmp_path.iterdir()) == [path]

    with atomic_write(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_links_are_followed_and_devices_are_written(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(target)
    with atomic_write(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    with atomic_write("/dev/null") as file:
        file.write(b"gone")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "file"
    with pytest.raises(UsageError, match=r"cannot write .*: No such file"), atomic_write(nowhere):
        pass
    with pytest.raises(UsageError, match="cannot write"), atomic_write(tmp_path):
        pass
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "file"):
        (tmp_path / "other").read_bytes()
    with (
        pytest.raises(UsageError, match=r"cannot write .*: No space left"),
        atomic_write("/dev/full"),
    ):
        raise OSError(28, "No space left on device")


# -- what is kept of files: for the same bytes, and of bounded size


def test_the_same_bytes_and_options_are_made_once() -> None:
    kept, made = ParseCache[object](most=100), list[object]()

    def make() -> object:
        made.append(object())
        return made[-1]

    first = kept.made((b"graph", b"cuts"), "name", make)
    assert kept.made((bytearray(b"graph"), memoryview(b"cuts")), "name", make) is first
    for content in ((b"Graph", b"cuts"), (b"graphc", b"uts")):
        assert kept.made(content, "name", make) is not first
    assert kept.made((b"graph", b"cuts"), 1, make) is not first
    assert len(made) == 4


def test_those_used_last_stay_and_large_ones_are_not_kept() -> None:
    kept = ParseCache[str](most=10)
    kept.made((b"aaaa",), None, lambda: "a")
    kept.made((b"bbbb",), None, lambda: "b")
    assert kept.made((b"aaaa",), None, lambda: "a again") == "a"
    kept.made((b"cccc",), None, lambda: "c")
    assert kept.made((b"aaaa",), None, lambda: "a again") == "a"
    assert kept.made((b"bbbb",), None, lambda: "b again") == "b again"
    for again in ("large", "large again"):
        assert kept.made((b"d" * 11,), None, lambda again=again: again) == again
    assert kept.made((b"bbbb",), None, lambda: "b a third time") == "b again"


def test_errors_and_none_are_not_kept() -> None:
    kept = ParseCache[str | None](most=10)
    assert kept.made((b"a",), None, lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        kept.made((b"a",), None, lambda: str(1 / 0))
    assert kept.made((b"a",), None, lambda: "a") == "a"
