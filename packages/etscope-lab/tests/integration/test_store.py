"""The artefact store: whole objects or none, whatever goes wrong."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from etscope.errors import (
    FormatError,
    LabError,
    MissingDataError,
    MissingDependencyError,
    MissingFileError,
    UsageError,
)
from etscope_lab.store import Store

DATA = bytes(range(256)) * 5_000
SHA256 = hashlib.sha256(DATA).hexdigest()
FOLDER = "a store, 100% größer"


@pytest.fixture(params=["folder", "file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    folder = tmp_path / FOLDER
    name = uuid.uuid4().hex
    return Store({"folder": str(folder), "file": f"file://{folder}", "memory": f"memory://{name}"}[
        request.param
    ])  # fmt: skip


def files(store: Store) -> list[str]:
    """All that is kept, below the store's root."""
    filesystem, root = fsspec.core.url_to_fs(store.url)
    if not filesystem.exists(root):
        return []
    return sorted(str(path)[len(str(root).rstrip("/")) + 1 :] for path in filesystem.find(root))


def all_of_them(files: Collection[str], remove: Callable[[str], bool]) -> int:
    return sum(map(remove, files))


def test_what_is_put_is_found_by_its_content(store: Store, tmp_path: Path) -> None:
    assert not store.has(SHA256)
    (tmp_path / "net.pte").write_bytes(DATA)
    kept = store.put_file(tmp_path / "net.pte", "net.pte", "application/x")

    assert (kept.name, kept.sha256, kept.size) == ("net.pte", SHA256, len(DATA))
    assert kept.media_type == "application/x"
    assert store.put_stream([DATA], "other").sha256 == SHA256
    pieces = [DATA[:10], b"", DATA[10:]]
    assert store.put_stream(pieces, "third").sha256 == SHA256
    assert files(store) == [f"sha256/{SHA256[:2]}/{SHA256}"]
    assert store.has(SHA256) and store.size(SHA256) == len(DATA)
    with store.open(SHA256) as file:
        assert file.read(7) == DATA[:7] and file.read() == DATA[7:]
    store.fetch(SHA256, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == DATA
    assert store.put_stream([b""], "../../nothing").size == 0
    assert {path.name for path in tmp_path.iterdir()} <= {"net.pte", "fetched", FOLDER}


def test_what_is_not_there(store: Store, tmp_path: Path) -> None:
    for act in (store.open, store.size, lambda sha256: store.fetch(sha256, tmp_path / "x")):
        with pytest.raises(MissingDataError, match=SHA256):
            act(SHA256)
    assert not store.has(SHA256) and list(tmp_path.glob("*x*")) == []
    with pytest.raises(MissingFileError):
        store.put_file(tmp_path / "none", "none")
    assert files(store) == []


def test_only_a_hash_becomes_a_path(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    names = ["", "..", "../../etc/passwd", "/etc/passwd", SHA256[:-1], SHA256 + "0", SHA256 + "\n"]
    names += [SHA256.upper(), "sha256/" + SHA256, "\x00" * 64, "*" * 64, "../" * 21 + "a"]
    acts = (store.open, store.size, store.has, lambda one: store.fetch(one, tmp_path / "x"))
    for name, act in product(names, acts):
        with pytest.raises(UsageError, match="SHA-256"):
            act(name)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("error", [KeyError("x"), OSError(errno.EIO, "gone"), KeyboardInterrupt()])
def test_a_source_that_breaks_off(store: Store, error: BaseException) -> None:
    """Its own error comes through, and nothing is left."""

    def chunks() -> Iterator[bytes]:
        yield DATA
        raise error

    with pytest.raises(type(error)) as caught:
        store.put_stream(chunks(), "x")
    assert caught.value is error and files(store) == []


def test_a_damaged_object(store: Store, tmp_path: Path) -> None:
    """It is told, not handed out; and who submits the file again mends the store."""
    store.put_stream([DATA], "x")
    filesystem, root = fsspec.core.url_to_fs(store.url)
    place = f"{root}/sha256/{SHA256[:2]}/{SHA256}"
    target = tmp_path / "fetched"
    target.write_text("before")
    for damage in (DATA[:-1], DATA[:-1] + b"x", b""):
        filesystem.pipe_file(place, damage)
        with pytest.raises(FormatError, match="damaged") as caught:
            store.fetch(SHA256, target)
        assert SHA256 in str(caught.value) and caught.value.hint
        assert target.read_text() == "before"
        store.put_stream([DATA], "x")
        store.fetch(SHA256, tmp_path / "mended")
        assert (tmp_path / "mended").read_bytes() == DATA
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_sweep(store: Store) -> None:
    kept, gone = (store.put_stream([text], "x").sha256 for text in (b"kept", b"gone"))
    filesystem, root = fsspec.core.url_to_fs(store.url)
    filesystem.pipe_file(f"{root}/not of the store", b"somebody's")
    filesystem.makedirs(f"{root}/parts", exist_ok=True)
    filesystem.pipe_file(f"{root}/parts/{'0' * 32}", b"of one that was killed")

    def unused(files: Collection[str], remove: Callable[[str], bool]) -> int:
        return sum(remove(one) for one in files if one != kept)

    assert store.sweep(unused, 3600) == 0 and store.has(gone)
    assert store.sweep(unused, -1) == 1

    assert store.has(kept) and not store.has(gone)
    assert files(store) == sorted(["not of the store", f"sha256/{kept[:2]}/{kept}"])
    assert Store(f"{store.url}/new").sweep(all_of_them, 0) == 0


def test_a_target_that_cannot_be_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.put_stream([DATA], "x")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "no" / "folder", tmp_path / "folder", Path("/proc/x")):
        with pytest.raises(LabError, match="written") as caught:
            store.fetch(SHA256, target)
        assert str(target) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_full_disk(small_disk: Callable[[str], Path]) -> None:
    store = Store(small_disk("1m"))
    small = store.put_stream([b"small"], "x")
    for _ in range(3):
        with pytest.raises(LabError, match="make room"):
            store.put_stream([DATA], "x")
        assert files(store) == [f"sha256/{small.sha256[:2]}/{small.sha256}"]
    assert store.put_stream([b"still room"], "x").size == 10


class Faulty(MemoryFileSystem):  # type: ignore[misc]
    """A file system that fails where `fault` says; the errors of cloud stores are of any class."""

    protocol = "faulty"
    cachable = False
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    fault = ""

    def _fail(self, name: str) -> None:
        if name == Faulty.fault:
            raise OSError(errno.ENOSPC, "No space left on device")
        if f"{name}!" == Faulty.fault:
            raise RuntimeError("AccessDenied")

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        self._fail("open")
        return super()._open(path, mode, **more)

    def cp_file(self, *arguments: Any, **more: Any) -> Any:
        self._fail("move")
        return super().cp_file(*arguments, **more)

    def info(self, *arguments: Any, **more: Any) -> Any:
        self._fail("info")
        return super().info(*arguments, **more)


@pytest.mark.parametrize("fault", ["open", "open!", "move", "move!", "info", "info!"])
def test_a_store_that_fails(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("faulty", Faulty, clobber=True)
    monkeypatch.setattr(Faulty, "store", {})
    store = Store("faulty://lab")
    monkeypatch.setattr(Faulty, "fault", fault)
    with pytest.raises(LabError) as caught:
        store.put_stream([DATA], "x")
    assert caught.value.hint and not isinstance(caught.value, MissingDataError)
    monkeypatch.setattr(Faulty, "fault", "")
    assert files(store) == [] and not store.has(SHA256)
    assert store.put_stream([DATA], "x").sha256 == SHA256


def test_a_place_that_is_none() -> None:
    with pytest.raises(UsageError):
        Store("nosuchkind://x")
    for place in ("/proc/nowhere/store", "/dev/null/store"):
        with pytest.raises(LabError):
            Store(place).put_stream([DATA], "x")


def test_an_attempt_begins_once(store: Store) -> None:
    assert not store.began("a-1")
    assert store.begin("a-1") and store.began("a-1") and store.begin("a-2")
    assert not store.begin("a-1")
    assert Store(store.url).began("a-1") and not store.began("a-3")
    for token in ("", "../sha256", "a/b", "x" * 65):
        with pytest.raises(UsageError):
            store.begin(token)


# -- many at once, killed writers, and a network that breaks


def test_readers_among_writers(store: Store, tmp_path: Path) -> None:
    """Whoever finds an object finds all of it, while others put the same."""

    def work(number: int) -> None:
        for other in range(10):
            kept = store.put_stream([DATA, bytes([other])], "x")
            target = tmp_path / f"{number}-{other}"
            store.fetch(kept.sha256, target)
            assert target.read_bytes() == DATA + bytes([other])
            target.unlink()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(files(store)) == 10


@pytest.mark.parametrize("size", [0, 3_000_000])
def test_a_writer_that_is_killed_leaves_no_object(tmp_path: Path, size: int) -> None:
    code = f"""
import os, signal
from etscope_lab.store import Store
def chunks():
    yield os.urandom({size})
    os.kill(os.getpid(), signal.SIGKILL)
Store({str(tmp_path)!r}).put_stream(chunks(), "x")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.parent.name for path in left] == ["parts"]
    assert Store(tmp_path).sweep(all_of_them, older_than_seconds=-1) == 0
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
    assert store.sweep(all_of_them, older_than_seconds=3600) == 2
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
