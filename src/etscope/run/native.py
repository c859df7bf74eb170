"""Find the native runner and the debugger's server, or build them: python -m etscope.run.native

prints the path of the runner; with --server, of the debugger's server; with --sources, of the
folder of their C++, to build them for another machine.

The C++ is in `native/` of a checkout and in `etscope/native_src` of an installed package. It is
built against the `executorch` package, which from version 1.5 on is a C++ SDK on Linux. Binaries
are kept in the user's cache folder, under a name that changes with the source and the SDK.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from etscope.errors import (
    EtscopeError,
    MissingDependencyError,
    MissingFileError,
    RuntimeFailure,
    UsageError,
)
from etscope.run.process import require_posix
from etscope.support.exits import exit_with

__all__ = ["find_runner", "native_missing"]

BINARY = "etscope-runner"
VARIABLE = "ETSCOPE_RUNNER"
SERVER = "etdb-server"
SERVER_VARIABLE = "ETSCOPE_ETDB_SERVER"

_PACKAGE = Path(__file__).resolve().parents[1]
_SOURCE_FOLDERS = (_PACKAGE / "native_src", _PACKAGE.parents[1] / "native")
_LOG_LINES = 30  # of a failed build: its last errors

_GET_SDK = (
    "pip install 'executorch>=1.5' on Linux, or build native/ against an ExecuTorch of your own "
    f"and name the binary in ${VARIABLE}"
)
_GET_CMAKE = "pip install cmake, or the system's package of that name"
_GET_COMPILER = "install g++ or clang++ (Debian, Ubuntu: apt-get install g++)"
_GET_MAKE = "pip install ninja, or the system's package make"


def find_runner() -> Path:
    """Return the runner: from `$ETSCOPE_RUNNER`, else from the cache, else built now.

    Raises `MissingDependencyError` when a tool that building needs is missing, and `RuntimeFailure`
    with the log when building fails.
    """
    return _find(BINARY, VARIABLE)


def find_server() -> Path:
    """Return the debugger's server, `etdb-server`: from `$ETSCOPE_ETDB_SERVER`, else like the
    runner; both are built together."""
    return _find(SERVER, SERVER_VARIABLE)


def native_missing() -> str | None:
    """Return why a native runner is missing and cannot be built here; None if one exists or can be
    built. Builds nothing."""
    try:
        if os.environ.get(VARIABLE):
            _given(VARIABLE)
        elif not _kit().binary(BINARY).exists():
            _check_tools()
    except (MissingDependencyError, MissingFileError) as error:
        return error.message if error.hint is None else f"{error.message}; {error.hint}"
    return None


def find_sources() -> Path:
    """Return the folder of the runner's C++ and its CMakeLists.txt."""
    for folder in _SOURCE_FOLDERS:
        if (folder / "CMakeLists.txt").is_file():
            return folder
    raise MissingDependencyError(
        "the native runner's C++ is not in this installation of etscope",
        hint=f"name a binary in ${VARIABLE}, or install etscope again",
    )


def find_sdk() -> Path:
    """Return the folder of the `executorch` package, which is not imported."""
    try:
        spec = importlib.util.find_spec("executorch")
    except (ImportError, ValueError):
        spec = None
    folders = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    for folder in folders:
        if (folder / "lib" / "libexecutorch_etdump.so").is_file():
            return folder.resolve()
    if not folders:
        raise MissingDependencyError("executorch is not installed", hint=_GET_SDK)
    raise MissingDependencyError(
        "the installed executorch has no C++ libraries, which the native runner needs",
        hint=_GET_SDK,
    )


def _find(name: str, variable: str) -> Path:
    if os.environ.get(variable):
        return _given(variable)
    kit = _kit()
    binary = kit.binary(name)
    if not binary.exists():
        _check_tools()
        with _locked(kit.binary(BINARY)):
            if not binary.exists():
                # The build takes minutes; the user waits at a terminal or reads a job's log.
                print(
                    "building the native runner and etdb-server, once: this takes a minute or two",
                    file=sys.stderr,
                    flush=True,
                )
                kit.build()
    return binary


@dataclass(frozen=True, slots=True)
class _Kit:
    """The sources and the SDK of the binaries, and the folder where they are kept, under their
    names and `key`."""

    sources: Path
    sdk: Path
    folder: Path
    key: str

    def binary(self, name: str) -> Path:
        return self.folder / f"{name}-{self.key}"

    def build(self) -> None:
        """Build in a folder that is removed afterwards; a binary appears when it is complete."""
        with tempfile.TemporaryDirectory(prefix="building-", dir=self.folder) as folder:
            build = Path(folder)
            cmake, ninja = str(_find_tool("cmake")), _find_tool("ninja")
            generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
            configure = [cmake, "-S", str(self.sources), "-B", str(build), *generator]
            settings = [
                f"-DCMAKE_PREFIX_PATH={self.sdk}",
                f"-DCMAKE_CXX_COMPILER={_find_compiler()}",
                "-DCMAKE_BUILD_TYPE=Release",
            ]
            jobs = str(os.cpu_count() or 1)
            make = [cmake, "--build", str(build), "--parallel", jobs]
            for command in ([*configure, *settings], make):
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
                if done.returncode:
                    lines = done.stdout.decode(errors="replace").splitlines()
                    raise RuntimeFailure(
                        f"the native runner cannot be built: {' '.join(command)} failed",
                        log="\n".join(lines[-_LOG_LINES:]),
                    )
            for name in (SERVER, BINARY):
                (build / name).replace(self.binary(name))


def _kit() -> _Kit:
    require_posix("the native runner")
    sources, sdk = find_sources(), find_sdk()
    version = metadata.version("executorch")
    digest = hashlib.sha256(os.fsencode(sdk) + b"\0" + version.encode())
    for path in sorted(sources.rglob("*")):
        if path.suffix not in (".cpp", ".h", ".cmake") and path.name != "CMakeLists.txt":
            continue
        digest.update(b"\0" + path.relative_to(sources).as_posix().encode())
        digest.update(b"\0" + path.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "etscope"
    return _Kit(sources, sdk, folder, f"{version}-{digest.hexdigest()[:12]}")


def _given(variable: str) -> Path:
    """Return the binary that the user names in an environment variable."""
    path = os.environ[variable]
    if not os.access(path, os.X_OK) or Path(path).is_dir():
        raise MissingFileError(
            f"${variable} names {path}, which is not a program",
            hint="unset the variable to have the runner built",
        )
    return Path(path).absolute()


def _find_tool(*names: str) -> str | None:
    """Return the first of some programs on the PATH, or next to this Python, where pip puts
    them."""
    beside = str(Path(sys.executable).parent)
    for name in names:
        found = shutil.which(name) or shutil.which(name, path=beside)
        if found:
            return found
    return None


def _find_compiler() -> str | None:
    if os.environ.get("CXX"):
        return os.environ["CXX"]
    return _find_tool("c++", "g++", "clang++")


def _check_tools() -> None:
    for what, found, hint in (
        ("cmake", _find_tool("cmake"), _GET_CMAKE),
        ("a C++ compiler", _find_compiler(), _GET_COMPILER),
        ("ninja or make", _find_tool("ninja", "make"), _GET_MAKE),
    ):
        if found is None:
            raise MissingDependencyError(
                f"{what} is needed to build the native runner, and is not installed", hint=hint
            )


@contextlib.contextmanager
def _locked(binary: Path) -> Iterator[None]:
    """Let one process at a time build a binary; others wait, and then find it."""
    import fcntl  # not on Windows; see _kit

    try:
        binary.parent.mkdir(parents=True, exist_ok=True)
        lock = binary.with_name(f"{binary.name}.lock").open("wb")
    except OSError as error:
        raise RuntimeFailure(
            f"the native runner cannot be kept in {binary.parent}: {error.strerror}",
            hint="name a folder that can be written to in $XDG_CACHE_HOME",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


_FOUND: dict[tuple[str, ...], Callable[[], Path]] = {
    (): find_runner,
    ("--server",): find_server,
    ("--sources",): find_sources,
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = tuple(sys.argv[1:] if arguments is None else arguments)
    try:
        if given not in _FOUND:
            raise UsageError(
                f"unknown arguments: {' '.join(given)}", hint="--server, --sources, or nothing"
            )
        print(_FOUND[given]())
    except EtscopeError as error:
        return _failed(error)
    return 0


def serve(arguments: Sequence[str] | None = None) -> int:
    """Run the command `etdb-server`: this process becomes the server, which is built if needed."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        server = find_server()
    except EtscopeError as error:
        return _failed(error)
    try:
        os.execv(server, [SERVER, *given])
    except OSError as error:  # made for another machine, for example
        print(f"error: {server} cannot be executed: {error.strerror}", file=sys.stderr)
        return 5


def _failed(error: EtscopeError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    exit_with(main)
