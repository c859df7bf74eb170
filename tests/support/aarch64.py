"""A machine of another architecture: the programs of native/, built for Linux on aarch64 against
the wheel for it, and run under qemu's user mode emulation."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from etscope.errors import MissingDependencyError
from etscope.run.native import find_sources
from tests.support.artifacts import ArtifactUnavailable, cache_folder

LIBRARIES = Path("/usr/aarch64-linux-gnu")  # of the C and C++ runtimes, where Debian puts them
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
COMPILER = "aarch64-linux-gnu-g++"
PARTS = ("executorch/include/", "executorch/lib/", "executorch/share/")  # the SDK in the wheel


def command(name: str) -> list[str]:
    """How a program of native/ is run: its emulator, and its path. Builds it if it is not there;
    raises `ArtifactUnavailable` where it cannot be had."""
    return [_emulator(), "-L", str(LIBRARIES), str(device() / "bin" / name)]


def script(name: str) -> Path:
    """A program that does the same, for those who name one path."""
    path = device() / f"{name}-under-qemu"
    if not path.exists():
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(f'#!/bin/sh\nexec {" ".join(command(name))} "$@"\n')
        scratch.chmod(0o755)
        scratch.rename(path)
    return path


def device() -> Path:
    """The folder that would be copied to the device: `bin`, and the libraries in `lib`."""
    outcome = _outcome()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@functools.cache
def _outcome() -> Path | ArtifactUnavailable:
    try:
        _emulator()
        compiler = _compiler()
        sources = find_sources()
        version = metadata.version("executorch")
        folder = cache_folder() / f"aarch64-et{version}-{_hash(sources, compiler)}"
        with _locked("aarch64"):
            if not folder.exists():
                _build(sources, _sdk(version), compiler, folder)
    except ArtifactUnavailable as reason:
        return reason
    except (MissingDependencyError, metadata.PackageNotFoundError) as error:
        return ArtifactUnavailable(str(error))
    return folder


def _emulator() -> str:
    found = next(filter(None, map(shutil.which, EMULATORS)), None)
    if found is None or not LIBRARIES.is_dir():
        raise ArtifactUnavailable("qemu's user mode emulation of aarch64 is not installed")
    return found


def _compiler() -> str:
    """Its name, that may end with a version."""
    names = (COMPILER, *(f"{COMPILER}-{version}" for version in range(16, 9, -1)))
    found = next(filter(shutil.which, names), None)
    if found is None or shutil.which("cmake") is None:
        raise ArtifactUnavailable("g++-aarch64-linux-gnu, or cmake, is not installed")
    return found


def _hash(sources: Path, compiler: str) -> str:
    digest = hashlib.sha256(compiler.encode())
    for path in sorted(sources.rglob("*")):
        if path.suffix in (".cpp", ".h", ".cmake", ".txt"):
            digest.update(path.relative_to(sources).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _sdk(version: str) -> Path:
    """The SDK of the other architecture, from the package index."""
    kept = cache_folder() / f"aarch64-sdk-et{version}"
    if not kept.exists():
        with _scratch() as folder:
            _unpack(_download(version, folder), folder / "sdk")
            (folder / "sdk").rename(kept)
    return kept / "executorch"


def _download(version: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wanted = ["--only-binary=:all:", "--platform=manylinux_2_28_aarch64"]
    done = subprocess.run(
        [*pip, *wanted, f"--python-version={python}", f"executorch=={version}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ArtifactUnavailable(f"the aarch64 wheel of executorch: {done.stderr[-500:]}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder, [name for name in file.namelist() if name.startswith(PARTS)])


def _build(sources: Path, sdk: Path, compiler: str, final: Path) -> None:
    """As docs/how-to/record.md says."""
    with _scratch() as folder:
        build = folder / "build"
        toolchain = sources / "toolchains" / "aarch64-linux-gnu.cmake"
        configure = ["cmake", "-S", sources, "-B", build, "--toolchain", toolchain]
        configure += [f"-DCMAKE_PREFIX_PATH={sdk}"]
        if version := compiler.removeprefix(COMPILER).removeprefix("-"):
            configure += [f"-DETSCOPE_GCC_VERSION={version}"]
        if shutil.which("ninja"):
            configure += ["-G", "Ninja"]
        _run(*configure)
        _run("cmake", "--build", build, "--parallel", str(os.cpu_count() or 1))
        _run("cmake", "--install", build, "--prefix", folder / "device", "--strip")
        (folder / "device").rename(final)


def _run(*arguments: object) -> None:
    done = subprocess.run(
        list(map(str, arguments)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        log = done.stdout.decode(errors="replace").splitlines()[-30:]
        raise RuntimeError("\n".join(["the cross build failed:", *log]))


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder beside where its results are kept, so that they appear whole."""
    with tempfile.TemporaryDirectory(prefix="building-aarch64-", dir=cache_folder()) as name:
        yield Path(name)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with open(cache_folder() / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
