"""What may be loaded, and when. Each check is a process of its own.

This file needs only pytest and an installed etscope: the package check runs it in environments
without torch, on every version of Python.
"""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import etscope
from etscope.analysis.insights.facts import Level
from etscope.analysis.insights.insights import rules

HEAVY = ["torch", "executorch", "pandas", "matplotlib", "pyarrow", "scipy", "perfetto", "IPython"]

REPORT = """
import importlib, json, sys
wanted, heavy = json.loads(sys.argv[1])
blame = {}
for name in wanted:
    importlib.import_module(name)
    for package in heavy:
        if package in sys.modules:
            blame.setdefault(package, name)
print(json.dumps(blame))
"""


def blame(wanted: list[str], heavy: list[str]) -> dict[str, str]:
    """Heavy package -> the first of the `wanted` modules that loaded it."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT, json.dumps([wanted, heavy])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, str] = json.loads(done.stdout)
    return result


def modules_without_torch() -> list[str]:
    """All modules but `__main__`, the extension of Model Explorer, which that has loaded before,
    and those of bridge/, which load torch."""
    found = pkgutil.walk_packages(etscope.__path__, "etscope.", onerror=lambda _: None)
    names = [module.name for module in found]
    ends = "__main__", "visualization.main"
    return [name for name in names if ".bridge" not in name and not name.endswith(ends)]


def modules_loaded_by(*arguments: str) -> set[str]:
    """The top-level packages in a process after `etscope *arguments`."""
    program = (
        "import sys, json; from etscope.cli import main; code = main(sys.argv[1:]);"
        "print(json.dumps([code, sorted({m.partition('.')[0] for m in sys.modules})]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    code, names = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    return set(names)


def test_the_report_can_find_something() -> None:
    assert blame(["json", "email"], ["email"]) == {"email": "email"}


def test_importing_etscope_or_the_command_loads_nothing_heavy() -> None:
    assert blame(["etscope"], [*HEAVY, "numpy", "rich", "click"]) == {}
    assert blame(["etscope.cli"], [*HEAVY, "numpy", "rich"]) == {}


def test_no_module_outside_bridge_loads_anything_heavy() -> None:
    names = modules_without_torch()
    assert "etscope.formats" in names
    assert blame(names, HEAVY) == {}


def test_help_loads_neither_numpy_nor_rich() -> None:
    assert modules_loaded_by("--help").isdisjoint({*HEAVY, "numpy", "rich"})


def test_a_table_of_times_and_its_summary_load_neither_graphs_nor_work() -> None:
    """`etscope inspect` without options: half of its time is imports."""
    names = ["etscope.capture.files", "etscope.analysis.tables.profile_table"]
    names += {rule.find.__module__ for rule in rules(Level.SUMMARY).values()}
    unused = ["graphs.partition", "graphs.run_graph", "work.limits", "work.operation", "size"]
    unwanted = [f"etscope.analysis.{name}" for name in unused]
    assert blame(names, [*unwanted, "numpy.ma", "importlib.metadata"]) == {}


def test_every_public_name_is_visible_without_loading_it() -> None:
    program = (
        "import etscope, sys; print(*dir(etscope)); assert 'etscope.inspector' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert set(etscope.__all__) <= set(done.stdout.split())
    assert (Path(etscope.__file__).parent / "py.typed").exists()
