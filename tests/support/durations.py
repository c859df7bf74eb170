"""Make tests/DURATIONS.md from the JUnit XML of a run of all tests.

python -m tests.support.durations build/junit.xml        writes the table
python -m tests.support.durations build/junit.xml -      prints it
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.costs import PROPERTY

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "DURATIONS.md"
KINDS = ("exports", "artefacts", "processes", "browser", "docs", "rest")
# All of a file is of the kind of its folder.
FOLDERS = {
    "tests/e2e/browser": "browser",
    "packages/etscope-lab/tests/e2e": "browser",
    "tests/e2e/docs": "docs",
}
LEAST = 1.0  # seconds of a file that has a row
SHARE = 40  # seconds that a file should take at most

HEAD = """\
# Durations

Seconds of the tests of each file in `make test-all` (two workers on 2 cores: one waits for half of
the sum), and what they went into: exports in the test's process, making or unpacking artefacts,
waiting for processes; all of the browser and docs tests. `make durations` after `make test-all`
writes this page anew. A file should take at most 40 s (`tests/contract/test_durations.py`).
"""


@dataclass
class File:
    """The tests of a file: how many, and their seconds by kind."""

    tests: int = 0
    seconds: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def files(junit: Path) -> dict[str, File]:
    """The files of a JUnit XML, by path."""
    found: dict[str, File] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        path = _path(case.get("classname", ""))
        one = found.setdefault(path, File())
        one.tests += 1
        left = float(case.get("time", 0))
        folder = next((kind for start, kind in FOLDERS.items() if path.startswith(start)), None)
        if folder is None:
            for given in case.iter("property"):
                name, value = given.get("name", ""), given.get("value", "")
                if name.startswith(PROPERTY):
                    taken = min(left, float(value))
                    one.seconds[name.removeprefix(PROPERTY)] += taken
                    left -= taken
        one.seconds[folder or "rest"] += left
    return found


def _path(classname: str) -> str:
    """A test's file: its class, if it has one, is the end of the name."""
    parts = classname.split(".")
    while parts and not (ROOT / "/".join(parts)).with_suffix(".py").exists():
        parts.pop()
    return "/".join(parts) + ".py" if parts else classname


def table(found: dict[str, File]) -> str:
    """The page."""
    columns = ("file", "tests", "seconds", *KINDS)
    rows = [
        (path, one)
        for path, one in sorted(found.items(), key=lambda pair: -pair[1].total)
        if one.total >= LEAST
    ]
    every = File(
        sum(one.tests for one in found.values()),
        sum((one.seconds for one in found.values()), Counter()),
    )
    lines = [f"| {' | '.join(columns)} |", f"|---|{'--:|' * (len(columns) - 1)}"]
    for path, one in [("all", every), *rows]:
        cells = [f"{one.seconds[kind]:.0f}" if one.seconds[kind] >= 0.5 else "" for kind in KINDS]
        lines.append(f"| {path} | {one.tests} | {one.total:.0f} | {' | '.join(cells)} |")
    return f"{HEAD}\n{chr(10).join(lines)}\n"


def main(arguments: list[str]) -> None:
    """Write or print the table of a JUnit XML."""
    text = table(files(Path(arguments[0])))
    if arguments[1:] == ["-"]:
        print(text)
    else:
        TABLE.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
