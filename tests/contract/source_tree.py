"""The imports of a source tree, read from its syntax: nothing is imported to find out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "etscope"
LAB = ROOT / "packages" / "etscope-lab"


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module. `deferred`: inside a function. `typing`: under `if TYPE_CHECKING`."""

    importer: str
    target: str
    line: int
    deferred: bool = False
    typing: bool = False

    @property
    def eager(self) -> bool:
        return not (self.deferred or self.typing)


def modules(package: Path) -> dict[str, Path]:
    """Dotted name -> file, of every module of the package in the folder `package`."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


def imports(package: Path) -> list[Import]:
    """Every import in the package, those inside functions and `import_module("…")` included."""
    known = modules(package)
    found: list[Import] = []
    for name, path in known.items():
        base = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found += _Finder(name, base, known).run(ast.parse(path.read_text(), str(path)))
    return found


class _Finder(ast.NodeVisitor):
    """Collects the imports of one module, and where in it they stand."""

    def __init__(self, name: str, base: str, known: dict[str, Path]) -> None:
        self._base = base
        self._known = known
        self._found: list[Import] = []
        self._here = Import(name, "", 0)

    def run(self, tree: ast.Module) -> list[Import]:
        self.visit(tree)
        return self._found

    def _add(self, target: str, line: int) -> None:
        self._found.append(replace(self._here, target=target, line=line))

    def _visit_in(self, place: Import, nodes: list[ast.stmt]) -> None:
        outer, self._here = self._here, place
        for node in nodes:
            self.visit(node)
        self._here = outer

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_in(replace(self._here, deferred=True), node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        test = node.test
        word = test.id if isinstance(test, ast.Name) else getattr(test, "attr", "")
        typing = self._here.typing or word == "TYPE_CHECKING"
        self._visit_in(replace(self._here, typing=typing), node.body)
        self._visit_in(self._here, node.orelse)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        source = node.module or ""
        if node.level:
            parents = self._base.split(".")[: len(self._base.split(".")) - node.level + 1]
            source = ".".join([*parents, *filter(None, [node.module])])
        for alias in node.names:
            inner = f"{source}.{alias.name}"
            self._add(inner if inner in self._known else source, node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        word = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if word in ("import_module", "require", "available", "__import__") and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                self._add(first.value, node.lineno)
        self.generic_visit(node)


def cycles(edges: list[tuple[str, str]]) -> Iterator[list[str]]:
    """The groups of modules that import each other, by removing what takes part in none."""
    remaining = set(edges)
    while remaining:
        sources = {a for a, _ in remaining}
        targets = {b for _, b in remaining}
        trimmed = {(a, b) for a, b in remaining if a in targets and b in sources}
        if trimmed == remaining:
            yield sorted(sources)
            return
        remaining = trimmed
