"""Benchmarks can be imported and run; those that are measured by themselves take their place among
the others' rows."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks.run import HEAD, MARKS, merged
from etscope.errors import MissingDependencyError

FOLDER = Path(benchmarks.__file__).parent
ROOT, PAGE = FOLDER.parent, "docs/appendix/benchmarks.md"
OURS = {"benchmarks", "etscope", "etscope_lab", "lab_support", "tests"}

TITLES = ["first", "second, `a | b`", "third"]
RULE = "|---|---|"


def page(*rows: str) -> str:
    return "\n".join(["# Title", MARKS[0], "Measured.", "", HEAD, RULE, *rows, MARKS[1], "| end |"])


def test_rows_that_are_not_measured_anew_stay() -> None:
    old = page("| first **missed** | 1 s |", "| third | 3 s |", "| gone | 4 s |")
    new = [HEAD, RULE, "| second, `a | b` | 2 s |", "| third **missed** | 9 s |"]
    assert merged(new, old, TITLES)[2:] == [
        "| first **missed** | 1 s |",
        "| second, `a | b` | 2 s |",
        "| third **missed** | 9 s |",
    ]
    # Also where the page has no table yet.
    assert merged([HEAD, RULE, "| first | 1 s |"], page(), TITLES)[2:] == ["| first | 1 s |"]


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("[!_]*.py")))
def test_what_a_benchmark_imports_is_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks are run by hand, so a name that moved would be noticed late."""
    # As programs, some set these for themselves and the processes that they start.
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    try:
        importlib.import_module(f"benchmarks.{name}")
        # Imports in functions, too.
        for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            if node.module.partition(".")[0] not in OURS:
                continue
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
    except MissingDependencyError as error:
        pytest.skip(error.message)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in OURS:
            raise
        pytest.skip(f"{error.name} is not installed")


# The smallest numbers with which the benchmarks of the page run to their end.
SMALLEST = {
    "ab_alarms": ("--minutes 0.05 --trials 2",),
    "collect": ("--dumps 2 --upstream 1",),
    "diff_power": ("--processes 8 --iterations 20 --trials 2",),
    "export_profile": ("--rounds 1 --depth 1",),
    "explain_rules": ("--seed 1 --only threshold",),
    "lab_bisect": ("--walks 1 --commits 4",),
    "lab_pages": ("--jobs 40",),
    "lab_queue": (
        "crowd --jobs 40 --devices 4 --seconds 1",
        "rest --seconds 1",
        "idle --jobs 4 --devices 2 --seconds 0.1",
        "faults --jobs 3 --devices 2 --seconds 0.1",
    ),
    "lab_watches": ("--series 1",),
    "planted_faults": ("--only cnn",),
}


def test_each_documented_benchmark_has_smallest_numbers() -> None:
    documented = set(re.findall(r"benchmarks[./](\w+)", (ROOT / PAGE).read_text("utf-8")))
    assert documented - {"run"} == set(SMALLEST)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "command", [f"{name} {numbers}" for name, all_of in SMALLEST.items() for numbers in all_of]
)
def test_a_documented_benchmark_runs_to_its_end(command: str) -> None:
    line = [sys.executable, "-m", *shlex.split(f"benchmarks.{command}")]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0 and done.stdout, done.stderr[-2000:]
