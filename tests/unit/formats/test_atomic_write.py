from __future__ import annotations

import stat
from pathlib import Path

import pytest

from etscope.errors import UsageError
from etscope.formats.bytes.files import atomic_write


def test_a_new_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_write(path) as file:
        file.write(b"abc")
        assert not path.exists()

    assert path.read_bytes() == b"abc"
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_stays_if_the_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with pytest.raises(ZeroDivisionError), atomic_write(path) as file:
        file.write(b"new")
        raise ZeroDivisionError

    assert path.read_bytes() == b"old"
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


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "file"
    with pytest.raises(UsageError, match=r"cannot write .*: No such file"), atomic_write(nowhere):
        pass
    with pytest.raises(UsageError, match="cannot write"), atomic_write(tmp_path):
        pass


def test_errors_of_other_files_are_not_of_the_writing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "file"):
        (tmp_path / "other").read_bytes()

    with (
        pytest.raises(UsageError, match=r"cannot write .*: No space left"),
        atomic_write("/dev/full"),
    ):
        raise OSError(28, "No space left on device")
