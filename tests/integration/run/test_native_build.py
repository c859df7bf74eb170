"""How the native runner is found or built, and what is said when it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from etscope.errors import MissingDependencyError, MissingFileError, RuntimeFailure
from etscope.run import native as _native_build
from etscope.run.native import find_runner, find_sdk, find_server, native_missing
from tests.support.native.runner import runner

# What stands in for cmake: it notes each build, and leaves a program where the real one does.
FAKE_CMAKE = """#!/bin/sh
if [ "$1" = -S ]; then echo "cmake $*"; exit 0; fi
echo build >> {log}
sleep 0.3
for name in etscope-runner etdb-server; do
  printf '#!/bin/sh\\necho made\\n' > "$2/$name"
  chmod +x "$2/$name"
done
"""

MAIN = "native/src/main.cpp"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An SDK, sources and a cache of the test's own, and a PATH with nothing on it."""
    runner()  # not to be tried where there is no SDK
    monkeypatch.delenv("ETSCOPE_RUNNER", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    sources = tmp_path / "native"
    (sources / "src").mkdir(parents=True)
    (sources / "CMakeLists.txt").write_text("project(x)\n")
    (sources / "src" / "main.cpp").write_text("int main() {}\n")
    monkeypatch.setattr(_native_build, "_SOURCE_FOLDERS", (sources,))
    return tmp_path


def add_tools(folder: Path, *names: str, cmake: str | None = None) -> None:
    for name in names:
        script(folder / "bin" / name, "#!/bin/sh\nexit 0\n")
    if cmake is not None:
        script(folder / "bin" / "cmake", cmake)
    for name in ("sh", "sleep", "chmod"):
        if not (folder / "bin" / name).exists():
            (folder / "bin").mkdir(exist_ok=True)
            (folder / "bin" / name).symlink_to(f"/bin/{name}")


def fake_cmake(folder: Path) -> str:
    return FAKE_CMAKE.format(log=folder / "builds")


def builds(folder: Path) -> int:
    return len((folder / "builds").read_text().splitlines())


# -- what is there


def test_the_sdk_is_found_without_importing_it() -> None:
    code = (
        "import sys; from etscope.run.native import find_sdk; find_sdk();"
        "sys.exit('executorch' in sys.modules or 'torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_programs_that_a_user_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "mine", "#!/bin/sh\necho mine $*\n")
    module = [sys.executable, "-m", "etscope.run.native"]
    assert subprocess.check_output(module, text=True) == f"{runner()}\n"
    monkeypatch.setenv("ETSCOPE_RUNNER", str(program))
    monkeypatch.setenv("ETSCOPE_ETDB_SERVER", str(program))
    assert find_runner() == program
    assert native_missing() is None
    assert subprocess.check_output([*module, "--server"], text=True) == f"{program}\n"
    serve = "import sys; from etscope.run.native import serve; sys.exit(serve())"
    done = subprocess.check_output([sys.executable, "-c", serve, "--help"], text=True)
    assert done == "mine --help\n"
    monkeypatch.setenv("ETSCOPE_ETDB_SERVER", str(tmp_path))
    with pytest.raises(MissingFileError, match="ETSCOPE_ETDB_SERVER"):
        find_server()
    monkeypatch.setenv("ETSCOPE_RUNNER", str(tmp_path))
    with pytest.raises(MissingFileError, match="which is not a program"):
        find_runner()
    assert "unset the variable to have the runner built" in str(native_missing())


# -- building


def test_it_is_built_once(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Processes wait for each other at a lock; threads have files of their own, and so do as
    well."""
    add_tools(alone, "c++", "make", cmake=fake_cmake(alone))
    assert native_missing() is None
    with ThreadPoolExecutor(4) as pool:
        (first,) = {done.result() for done in [pool.submit(find_runner) for _ in range(4)]}
    assert "building the native runner and etdb-server, once" in capsys.readouterr().err
    assert subprocess.check_output([first]) == b"made\n"
    (alone / "bin" / "cmake").unlink()  # what was built needs no tools
    assert find_runner() == first and native_missing() is None
    assert builds(alone) == 1 and capsys.readouterr().err == ""
    server = find_server()  # is built with it
    assert subprocess.check_output([server]) == b"made\n"
    assert server.name == first.name.replace("etscope-runner", "etdb-server")
    kept = {path.name for path in first.parent.iterdir()}
    assert kept == {server.name, first.name, f"{first.name}.lock"}


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / MAIN).write_text("int main() { return 1; }\n"),
        lambda folder: (folder / "native/src/more.h").touch(),
        lambda folder: (folder / MAIN).rename(folder / "native/src/other.cpp"),
    ],
    ids=["edited", "added", "renamed"],
)
def test_other_sources_are_built_again(alone: Path, change: Callable[[Path], object]) -> None:
    add_tools(alone, "c++", "make", cmake=fake_cmake(alone))
    first = find_runner()
    (alone / "native/README.md").write_text("what is not compiled does not matter\n")
    assert find_runner() == first
    change(alone)
    assert find_runner() != first
    assert builds(alone) == 2


def test_tools_beside_python_and_a_compiler_that_the_user_names_are_found(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip puts them there, and a virtual environment need not be active."""
    add_tools(alone)
    (alone / "venv" / "bin").mkdir(parents=True)
    script(alone / "venv/bin/ninja", "#!/bin/sh\n")
    script(alone / "venv/bin/cmake", fake_cmake(alone))
    assert native_missing() is not None
    monkeypatch.setenv("CXX", "/opt/mine/c++")
    assert native_missing() is None
    assert find_runner().exists()


# -- what cannot be


@pytest.mark.parametrize(
    ("tools", "missing", "hint"),
    [
        ((), "cmake", "pip install cmake"),
        (("cmake",), "a C++ compiler", "apt-get install g++"),
        (("cmake", "g++"), "ninja or make", "pip install ninja"),
    ],
)
def test_tools_that_are_missing(
    tools: tuple[str, ...], missing: str, hint: str, alone: Path
) -> None:
    add_tools(alone, *tools)
    with pytest.raises(MissingDependencyError, match=f"^{missing.replace('+', '[+]')} is") as error:
        find_runner()
    assert hint in str(error.value.hint)
    assert str(native_missing()).startswith(f"{missing} is needed to build the native runner")
    assert not (alone / "cache").exists()


def test_sources_that_are_missing(alone: Path) -> None:
    (alone / "native" / "CMakeLists.txt").unlink()
    with pytest.raises(MissingDependencyError, match="not in this installation of etscope"):
        find_runner()


@pytest.mark.parametrize(
    ("made", "say"),
    [(False, "executorch is not installed"), (True, "has no C\\+\\+ libraries")],
    ids=["absent", "older"],
)
def test_without_the_sdk(
    made: bool, say: str, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages before 1.5, and those for other systems, have Python only."""
    if made:
        (alone / "site" / "executorch").mkdir(parents=True)
        (alone / "site" / "executorch" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(alone / "site")])
    monkeypatch.delitem(sys.modules, "executorch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if _finds_paths(one)])
    with pytest.raises(MissingDependencyError, match=say):
        find_sdk()
    assert "executorch>=1.5" in str(native_missing())


def _finds_paths(finder: object) -> bool:
    return getattr(finder, "__name__", "") == "PathFinder"


def test_a_build_that_fails_shows_its_log(alone: Path) -> None:
    cmake = "#!/bin/sh\necho 'CMake Error: the reason'\nexit 1\n"
    add_tools(alone, "c++", "make", cmake=cmake)
    with pytest.raises(RuntimeFailure, match="cannot be built") as error:
        find_runner()
    assert "CMake Error: the reason" in error.value.log
    (lock,) = (alone / "cache" / "etscope").iterdir()
    assert lock.name.endswith(".lock")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written(alone: Path) -> None:
    add_tools(alone, "c++", "make", cmake=fake_cmake(alone))
    (alone / "cache").mkdir(mode=0o500)
    with pytest.raises(RuntimeFailure, match="cannot be kept in"):
        find_runner()


def test_a_cache_that_is_a_file(alone: Path) -> None:
    add_tools(alone, "c++", "make", cmake=fake_cmake(alone))
    (alone / "cache").touch()
    with pytest.raises(RuntimeFailure, match="cannot be kept in") as error:
        find_runner()
    assert "XDG_CACHE_HOME" in str(error.value.hint)
