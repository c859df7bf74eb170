"""The artefact store with many at once, killed writers, and a network that breaks."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from etscope.errors import FormatError, LabError, MissingDependencyError
from etscope.lab.store import Store

DATA = bytes(range(256)) * 5_000
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_readers_among_writers(kind: str, tmp_path: Path) -> None:
    """Whoever finds an object finds all of it, while others put the same."""
    store = Store(tmp_path / "store" if kind == "folder" else f"memory://{uuid.uuid4().hex}")

    def work(number: int) -> None:
        for other in range(10):
            kept = store.put_stream([DATA, bytes([other])], "x")
            target = tmp_path / f"{number}-{other}"
            store.fetch(kept.sha256, target)
            assert target.read_bytes() == DATA + bytes([other])
            target.unlink()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


@pytest.mark.parametrize("size", [0, 3_000_000])
def test_a_writer_that_is_killed_leaves_no_object(tmp_path: Path, size: int) -> None:
    code = f"""
import os, signal
from etscope.lab.store import Store
def chunks():
    yield os.urandom({size})
    os.kill(os.getpid(), signal.SIGKILL)
Store({str(tmp_path)!r}).put_stream(chunks(), "x")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.parent.name for path in left] == ["parts"]
    assert Store(tmp_path).sweep([], older_than_seconds=-1) == 0
    assert not left[0].exists()


def test_sweep_spares_what_was_just_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept = [store.put_stream([bytes([number])], "x") for number in range(4)]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    assert store.hold(kept[0].sha256)  # a job that names it is about to be added
    store.put_stream([bytes([1])], "x")  # it came again
    assert store.has(kept[2].sha256)  # to look is not to name
    assert store.sweep([], older_than_seconds=3600) == 2
    assert [store.has(one.sha256) for one in kept] == [True, True, False, False]
    assert not store.hold(kept[3].sha256)


class Broken:
    """A file on its way through a network that changes a byte, or breaks."""

    def __init__(self, file: BinaryIO, error: Exception | None) -> None:
        self._file, self._error = file, error

    def __enter__(self) -> Broken:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        if self._error is not None:
            raise self._error
        return self._file.read(size).replace(b"\x00", b"\x01")


@pytest.mark.parametrize("error", [None, ConnectionResetError("reset"), RuntimeError("OfACloud")])
def test_a_network_that_breaks(
    error: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is whole in the store stays there."""
    store = Store(tmp_path / "store")
    store.put_stream([DATA], "x")
    place: Any = store._backend
    opened, calls = place.open, []

    def through_a_network(name: str) -> Any:
        calls.append(name)
        return Broken(opened(name), error) if len(calls) == 1 else opened(name)

    monkeypatch.setattr(place, "open", through_a_network)
    with pytest.raises(FormatError if error is None else LabError):
        store.fetch(SHA256, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    store.fetch(SHA256, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == DATA


def test_a_place_whose_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(MissingDependencyError, match="sftp://host/lab"):
        Store("sftp://host/lab")
