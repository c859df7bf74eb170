"""The public surface is the list in public_names.txt; changing it is visible in a diff. What is
imported anywhere exists."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.source_tree import LAB, SOURCE, modules
from tests.support.docs.pages import ROOT, blocks

NAMES = (Path(__file__).parent / "public_names.txt").read_text().split()


def by_module() -> dict[str, list[str]]:
    """Module -> the public names that the list gives it."""
    found: dict[str, list[str]] = defaultdict(list)
    for dotted in NAMES:
        module, _, name = dotted.rpartition(".")
        found[module].append(name)
    return dict(found)


def test_the_list_is_sorted_and_has_no_doubles() -> None:
    assert sorted(set(NAMES)) == NAMES


@pytest.mark.parametrize("module", by_module())
def test_all_is_the_list_and_can_be_imported(module: str) -> None:
    loaded = importlib.import_module(module)
    assert sorted(loaded.__all__) == by_module()[module]
    assert [name for name in by_module()[module] if not hasattr(loaded, name)] == []


def imported(code: str) -> Iterator[str]:
    """The names that code imports, wherever the import stands."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)


def test_the_documentation_imports_public_names() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = {
        name: f"{page.name}:{block.line}"
        for page in pages
        for block in blocks(page)
        if block.language == "python"
        for name in imported(block.code)
        if name.partition(".")[0] in {"etscope", "etscope_lab"}
    }
    assert len(found) > 50, found
    known = {*NAMES, *by_module()}
    assert {name: where for name, where in found.items() if name not in known} == {}


def test_the_lab_imports_public_names() -> None:
    modules = sorted((LAB / "src").rglob("*.py"))
    found = {
        name: str(path.relative_to(LAB))
        for path in modules
        for name in imported(path.read_text())
        if name.partition(".")[0] == "etscope"
    }
    assert len(found) > 100, found
    known = {*NAMES, *by_module()}
    assert {name: where for name, where in found.items() if name not in known} == {}


# At the start of a line, also of a program inside a text; and what `python -m` runs.
IMPORT = re.compile(
    r"^[ >]*from (?P<module>etscope[\w.]*) import (?P<names>\([^)]*\)|.*)"
    r"|^[ >]*import (?P<whole>etscope[\w.]*)|-m[\", ]+(?P<run>etscope[\w.]*\w)",
    re.M,
)


def test_every_module_and_name_that_is_imported_exists() -> None:
    """Also where mypy does not look: in tests that seldom run, documentation and child programs."""
    known = modules(SOURCE) | modules(LAB / "src" / "etscope_lab")
    # All words of a module, as lazy names are texts.
    words = {name: set(re.findall(r"\w+", path.read_text())) for name, path in known.items()}
    wrong, count = [], 0
    for folder in ("src", "packages", "tests", "docs", "benchmarks", "examples", "scripts"):
        for path in (ROOT / folder).rglob("*.[pm][yd]"):
            for found in IMPORT.finditer(path.read_text()):
                count += 1
                module = found["module"] or found["whole"] or found["run"]
                names = re.findall(r"(\w+)(?: as \w+)?,?", re.sub(r"#.*", "", found["names"] or ""))
                missing = [one for one in names if one not in words.get(module, names)]
                missing = [one for one in missing if f"{module}.{one}" not in known]
                if module not in known or missing:
                    wrong.append(f"{path.relative_to(ROOT)}: {found[0]}")
    assert count > 5_000
    assert wrong == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    import etscope

    with pytest.raises(AttributeError, match="no attribute 'Inspektor'"):
        etscope.Inspektor  # noqa: B018
