"""Runs again and again, on a busy machine, the tests whose outcome could depend on its speed.

    python -m tests.support.stress [--times 50] [--load 8] [--minutes 60] [PATH...]

These are the test files that wait, start processes or threads, open ports or drive a browser, by
themselves or through helpers in `tests.support`. Each is run so many times, in rounds, in a pytest
of its own beside so many processes that compute without end. What was run, and the output of runs
that failed, is kept in a folder (`--out`), from which a later call goes on.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "packages" / "etscope-lab" / "tests"
# What takes time, or goes on beside a test.
WAITING = (
    *("asyncio", "concurrent", "distributed", "multiprocessing", "playwright", "pty", "select"),
    *("selectors", "signal", "socket", "socketserver", "subprocess", "threading", "time"),
    *("etscope.etdb.protocol.launch", "etscope_lab.engine", "etscope.run"),
)
# Nearly all tests have files of these, which are made once.
HELPERS = ("tests.", "lab_support.")
MADE_ONCE = {"tests.support.artifacts", "tests.support.native.compiling", "tests.support.aarch64"}
BUSY = (  # until whoever started it is gone
    "import os, sys, threading\n"
    "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\n"
    "while True: pass\n"
)


def waiting_tests(paths: Sequence[Path]) -> list[Path]:
    """The files of tests below these paths that wait for something."""
    found = {one for path in paths for one in ([path] if path.is_file() else path.rglob("test_*"))}
    return sorted(one for one in found if one.suffix == ".py" and _waits(one))


def _waits(test: Path) -> bool:
    todo, seen = [test], {test}
    while todo:
        names = _names(todo.pop())
        if any(f"{name}.".startswith(tuple(f"{one}." for one in WAITING)) for name in names):
            return True
        helpers = {_file_of(name) for name in names - MADE_ONCE if name.startswith(HELPERS)}
        todo += helpers - seen
        seen |= helpers
    return False


@functools.cache
def _names(path: Path | None) -> set[str]:
    """The modules that a file imports, or that have a fixture which it may use; what it imports
    from them, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes() if path else b"")):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and "importorskip" in ast.unparse(node.func):
            found |= {str(one.value) for one in node.args[:1] if isinstance(one, ast.Constant)}
        elif isinstance(node, ast.arguments):
            found |= {_fixtures()[one.arg] for one in node.args if one.arg in _fixtures()}
    return found


@functools.cache
def _fixtures() -> dict[str, str]:
    """The modules of fixtures that a test may have without an import."""
    found = {}
    for conftest in (*ROOT.glob("tests/**/conftest.py"), *LAB.rglob("conftest.py")):
        tree = ast.parse(conftest.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(HELPERS):
                found.update({alias.name: str(node.module) for alias in node.names})
            elif isinstance(node, ast.FunctionDef):
                found[node.name] = ".".join(conftest.relative_to(ROOT).with_suffix("").parts)
    return found


def _file_of(module: str) -> Path | None:
    place = (LAB if module.startswith("lab_support.") else ROOT).joinpath(*module.split("."))
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in files if file.exists()), None)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Have so many processes compute meanwhile."""
    with ExitStack() as stack:
        for _ in range(processes):
            started = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE)
            stack.callback(started.wait)
            stack.callback(started.kill)
        yield


def ran(test: Path, number: int, out: Path) -> dict[str, str]:
    """Run a file of tests; the failed ones, each with the file that has the output."""
    report, text = out / "report.xml", out / f"{test.parent.name}-{test.stem}-{number}.txt"
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "", f"--junitxml={report}"]
    with text.open("w") as output:
        command = [sys.executable, "-m", "pytest", *options, str(test)]
        code = subprocess.run(
            command, cwd=ROOT, stdout=output, stderr=output, check=False
        ).returncode
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    failed = {str(one.get("name")): str(text) for one in cases
              if {"failure", "error"} & {part.tag for part in one}}  # fmt: skip
    if code not in (0, 5) and not failed:
        failed = {f"(pytest: exit code {code})": str(text)}
    if not failed:
        text.unlink()
    return {"": str(len(cases)), **failed}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "paths", nargs="*", type=Path, default=[ROOT / "tests", LAB], metavar="PATH"
    )
    parser.add_argument("--times", type=int, default=50, help="runs of each file (50)")
    parser.add_argument("--load", type=int, default=8, help="processes that compute beside it (8)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run later")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "stress", help="folder")
    parser.add_argument("--list", action="store_true", help="list the files, and run nothing")
    options = parser.parse_args()
    tests = waiting_tests([path.resolve() for path in options.paths])
    if options.list:
        print(*(test.relative_to(ROOT) for test in tests), sep="\n")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "runs.json"
    runs: dict[str, list[dict[str, str]]] = json.loads(kept.read_text()) if kept.exists() else {}
    end = time.monotonic() + 60 * options.minutes
    with busy(options.load):
        for number in range(options.times):
            for test in tests:
                done = runs.setdefault(str(test.relative_to(ROOT)), [])
                if len(done) == number and time.monotonic() < end:
                    done.append(ran(test, number, options.out))
                    kept.write_text(json.dumps(runs, indent=1))
    shown = [str(test.relative_to(ROOT)) for test in tests if runs[str(test.relative_to(ROOT))]]
    print(f"{'file':60} {'tests':>6} {'runs':>5} {'failures':>9}")
    for name in shown:
        failures = Counter(test for one in runs[name] for test in one if test)
        print(f"{name:60} {runs[name][0]['']:>6} {len(runs[name]):5} {failures.total():9}")
        for test, count in failures.items():
            first = next(one[test] for one in runs[name] if test in one)
            print(f"  {test}: {count} times, first in {first}")
    return 1 if any(len(one) > 1 for name in shown for one in runs[name]) else 0


if __name__ == "__main__":
    sys.exit(main())
