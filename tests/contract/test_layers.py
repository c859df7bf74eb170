"""Imports point down only. The table is the architecture; the rest reads the source."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.contract.source_tree import LAB, SOURCE, Import, cycles, imports, modules

LAYERS: dict[float, str] = {
    0: "_version errors units support",
    1: "formats",
    2: "model",
    2.5: "backends",
    3: "analysis",
    3.5: "capture",
    4: "views",
    4.5: "bridge",
    5: "debug_format etdump etrecord bundled_program",
    5.4: "diagnosis",
    5.6: "reporting",
    5.8: "explain check",
    6: "inspector intermediate_output_tap backend_debug pte_tool size_analysis_tool visualization",
    6.5: "scripts",
    7: "export run etdb search evaluation agent",
    8: "cli pytest",
    9: "compat __main__",
}
RANKS = {name: rank for rank, names in LAYERS.items() for name in names.split()}
RANKS[""] = 9  # etscope/__init__.py: the face, which names everything and loads nothing
APPLICATIONS = set(LAYERS[7].split())
MAY_KNOW = {
    "etdb": {"run"},
    "search": {"run", "export"},
    "evaluation": {"run"},
}
HEAVY = {"torch", "executorch"}
SHARED_PRIVATE_MODULES = {"_version"}
TYPING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"


def layer(module: str) -> str:
    """The part of the package below the root that `module` belongs to."""
    return [*module.split("."), ""][1]


def complaint(found: Import) -> str | None:
    """What is wrong with one import, or None."""
    importer, place = layer(found.importer), f"{found.importer}:{found.line}"
    if found.target.split(".")[0] in HEAVY:
        if found.eager and importer != "bridge":
            return f"{place} imports {found.target} at module level; only bridge/ may"
        return None
    if found.target.split(".")[0] == "etscope_lab":
        return f"{place} imports {found.target}: the core must not know its lab"
    if found.target.split(".")[0] != "etscope":
        return None
    target = layer(found.target)
    if target not in RANKS:
        return f"{place} imports {found.target}, which has no rank in this test"
    if RANKS[target] > RANKS[importer]:
        return f"{place} imports {found.target}: upward"
    if target == "bridge" != importer and found.eager:
        return f"{place} imports {found.target} at module level; only functions may"
    if {importer, target} <= APPLICATIONS and target not in {importer, *MAY_KNOW.get(importer, ())}:
        return f"{place} imports {found.target}: {importer} must not know {target}"
    return None


def complaints(package: Path) -> list[str]:
    unranked = [name for name in modules(package) if layer(name) not in RANKS]
    wrong = [f"{name} has no rank in this test" for name in unranked]
    if unranked:
        return wrong
    return [text for found in imports(package) if (text := complaint(found))]


def edges(package: Path) -> list[tuple[str, str]]:
    """Pairs of modules of the package of which one imports the other, wherever the import stands:
    at module level, in a function, under TYPE_CHECKING. An `__init__` forwards names of its own
    package and is left out."""
    known = {name for name, path in modules(package).items() if path.name != "__init__.py"}
    return [
        (found.importer, found.target)
        for found in imports(package)
        if {found.importer, found.target} <= known and found.importer != found.target
    ]


def folder_circles(package: Path) -> list[tuple[str, list[str]]]:
    """Packages and those of their folders that import each other in a circle, at any depth. A
    module beside folders counts as one; a package's own `__init__` does not."""
    known = modules(package)
    rooms: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for found in imports(package):
        if found.target in known:
            path = list(zip(found.importer.split("."), found.target.split("."), strict=False))
            fork = next((depth for depth, (a, b) in enumerate(path) if a != b), None)
            if fork is not None:
                rooms[".".join(a for a, _ in path[:fork])].append(path[fork])
    return [(place, circle) for place, pairs in rooms.items() for circle in cycles(pairs)]


def private_imports(package: Path) -> list[str]:
    """Imports of a private module of another package: each `_name` in the target's path must be
    below a package that the importer is in."""
    wrong = []
    for found in imports(package):
        parts = found.target.split(".")
        for depth, part in enumerate(parts):
            private = part.startswith("_") and part not in SHARED_PRIVATE_MODULES
            if (
                parts[0] in {"etscope", "etscope_lab"}
                and private
                and found.importer.split(".")[:depth] != parts[:depth]
            ):
                wrong.append(f"{found.importer}:{found.line} imports {found.target}")
    return wrong


def test_imports_point_down_without_circles_and_private_names() -> None:
    assert complaints(SOURCE) == []
    assert list(cycles(edges(SOURCE))) == []
    assert private_imports(SOURCE) == []


def test_folders_of_a_package_have_an_order() -> None:
    assert folder_circles(SOURCE) == []


def test_the_lab_has_no_circles_and_private_names() -> None:
    package = LAB / "src" / "etscope_lab"
    assert list(cycles(edges(package))) == []
    assert private_imports(package) == []


def test_upstream_devtools_are_never_imported() -> None:
    used = [found for found in imports(SOURCE) if found.target.startswith("executorch.devtools")]
    assert used == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "etscope"
    for folder in ("formats", "model", "bridge", "run", "reporting", "etdb", "inspector"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "errors.py").write_text("")
    return package


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("formats/a.py", "from etscope.model import table", "upward"),
        ("formats/a.py", "import etscope.model", "upward"),
        ("formats/a.py", "from etscope import model", "upward"),
        ("formats/a.py", "from ..model import graph", "upward"),
        ("formats/a.py", "def f():\n    from etscope import model", "upward"),
        ("formats/a.py", "class A:\n  async def f(self):\n    import etscope.inspector", "upward"),
        ("errors.py", "import importlib\nimportlib.import_module('etscope.run')", "upward"),
        ("errors.py", "from etscope import Inspector", "upward"),
        ("formats/a.py", "def f():\n    from etscope.bridge import x", "upward"),
        ("inspector/a.py", "from etscope import bridge", "only functions"),
        ("inspector/a.py", "import torch.nn", "only bridge/"),
        ("inspector/a.py", "try:\n    import executorch\nexcept ImportError: ...", "only bridge/"),
        ("run/a.py", "def f():\n    import etscope.etdb.walk", "run must not know etdb"),
        ("run/a.py", "from etscope_lab import x", "must not know its lab"),
        ("run/a.py", "import etscope.nowhere", "no rank"),
        ("nowhere.py", "", "no rank"),
        # Right ones are left alone.
        ("model/a.py", "from etscope.formats import a\nfrom . import b", None),
        ("inspector/a.py", "def f():\n    from etscope.bridge import x", None),
        ("inspector/a.py", f"{TYPING}    import torch, etscope.bridge", None),
        ("bridge/a.py", "import torch\nfrom etscope.bridge import b", None),
        ("etdb/a.py", "import etscope.run, etscope.reporting", None),
        ("__init__.py", "def f():\n    import etscope.inspector", None),
    ],
)
def test_a_wrong_import_is_found(tree: Path, file: str, text: str, words: str | None) -> None:
    (tree / file).write_text(text)
    wanted = [] if words is None else [True]
    assert [str(words) in line for line in complaints(tree)] == wanted, complaints(tree)


@pytest.mark.parametrize("before", ["", "def f():\n    ", f"{TYPING}    "])
def test_a_circle_is_found(tree: Path, before: str) -> None:
    (tree / "model/a.py").write_text("import etscope.model.b")
    (tree / "model/b.py").write_text("from etscope.model import c")
    (tree / "model/c.py").write_text(f"{before}from etscope.model.a import x")
    (tree / "model/d.py").write_text("import etscope.model.a")
    names = ["etscope.model.a", "etscope.model.b", "etscope.model.c"]
    assert list(cycles(edges(tree))) == [names]


@pytest.mark.parametrize("place", ["formats", "lab/jobs"])
def test_a_circle_of_folders_is_found(tree: Path, place: str) -> None:
    for folder in ("a", "b", "c/inner"):
        (tree / place / folder).mkdir(parents=True)
    name = f"etscope.{place.replace('/', '.')}"
    (tree / place / "a/one.py").write_text(f"from {name}.b import one")
    (tree / place / "b/one.py").write_text(f"def f():\n    import {name}.b.two")
    (tree / place / "b/two.py").write_text(f"{TYPING}    import {name}.c.inner.one")
    (tree / place / "c/inner/one.py").write_text(f"from {name}.a import two\nimport {name}.d")
    (tree / place / "a/two.py").write_text(f"import {name}.d")
    (tree / place / "d.py").write_text("import etscope.errors")
    assert list(cycles(edges(tree))) == []
    assert folder_circles(tree) == [(name, ["a", "b", "c"])]


def test_a_private_import_is_found(tree: Path) -> None:
    (tree / "run/_inner.py").write_text("")
    (tree / "run/a.py").write_text("from etscope.run._inner import x\nimport etscope.support.lazy")
    (tree / "_lazy.py").write_text("")
    (tree / "etdb/a.py").write_text("def f():\n    from etscope.run import _inner")
    assert private_imports(tree) == ["etscope.etdb.a:2 imports etscope.run._inner"]
