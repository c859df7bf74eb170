"""Walk upstream's devtools and etscope, and list what etscope has not: modules, names, parameters.

    python -m tests.contract.upstream_names

Upstream is read as source, so that nothing of it is imported; etscope is imported.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

DIFFERENCES = Path(__file__).parents[2] / "docs/appendix/differences.md"
_NOT_OF_THE_API = re.compile(r"(^|/)(tests?|generated)/|_test\.py$")


def upstream_folder() -> Path:
    """Where upstream's devtools are installed."""
    spec = importlib.util.find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations))) / "devtools"


def upstream_modules(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    """Each module below `folder` with its dotted path ("" for the root), tests left out."""
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder).as_posix()
        if not _NOT_OF_THE_API.search(relative):
            parts = relative.removesuffix(".py").split("/")
            dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield dotted, ast.parse(path.read_text())


def missing(folder: Path) -> list[str]:
    """The modules, names and parameters of upstream that etscope has not, as `module`,
    `module.name`, `module.Class.name` and `module.name(parameter)`."""
    found: list[str] = []
    for dotted, tree in upstream_modules(folder):
        try:
            ours = importlib.import_module(f"etscope.{dotted}".rstrip("."))
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("etscope"):
                raise
            found.append(dotted)
            continue
        found += _missing_of(dotted, _public(tree), ours)
    return found


def _missing_of(place: str, wanted: dict[str, ast.stmt | None], ours: Any) -> Iterator[str]:
    for name, node in wanted.items():
        dotted = f"{place}.{name}".lstrip(".")
        fields = getattr(ours, "__dataclass_fields__", {})
        try:
            value = getattr(ours, name)
        except AttributeError:
            if name not in fields:
                yield dotted
            continue
        if isinstance(node, ast.ClassDef):
            yield from _missing_of(dotted, _public_of_class(node), value)
        wanted_parameters = _parameters(node)
        if wanted_parameters and callable(value):
            known = inspect.signature(value).parameters
            if not any(one.kind is one.VAR_KEYWORD for one in known.values()):
                yield from (f"{dotted}({one})" for one in wanted_parameters if one not in known)


def _public(tree: ast.Module) -> dict[str, ast.stmt | None]:
    """The names of `__all__`, or all that the module itself defines and that are not private."""
    defined = dict(_definitions(tree.body))
    if "__all__" in defined:
        assigned = defined["__all__"]
        assert isinstance(assigned, ast.Assign)
        return {name: defined.get(name) for name in ast.literal_eval(assigned.value)}
    return {name: node for name, node in defined.items() if not name.startswith("_")}


def _public_of_class(node: ast.ClassDef) -> dict[str, ast.stmt | None]:
    return {name: item for name, item in _definitions(node.body) if not name.startswith("_")}


def _definitions(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((target.id, node) for target in targets if isinstance(target, ast.Name))


def _parameters(node: ast.stmt | None) -> list[str]:
    """The parameters with which something is called; for a dataclass, its fields."""
    if isinstance(node, ast.FunctionDef):
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        return [one.arg for one in every if one.arg not in ("self", "cls")]
    if isinstance(node, ast.ClassDef):
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                return _parameters(item)
        if any("dataclass" in ast.unparse(one) for one in node.decorator_list):
            fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
            return [ast.unparse(item.target) for item in fields]
    return []


def declared() -> dict[str, str]:
    """Rows of the names in docs/appendix/differences.md: pattern -> why it is not there."""
    _, _, section = DIFFERENCES.read_text().partition("## Names that are not there")
    rows = re.findall(r"^\| (`.+`) \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)
    return {
        pattern: reason for names, reason in rows for pattern in re.findall(r"`([^`]+)`", names)
    }


def is_declared(name: str, patterns: dict[str, str]) -> bool:
    """True if `name`, or what it is in, is in the table."""
    return any(
        fnmatchcase(name, one) or name.startswith((f"{one}.", f"{one}(")) for one in patterns
    )


if __name__ == "__main__":
    known = declared()
    for name in missing(upstream_folder()):
        print(name, "(declared)" if is_declared(name, known) else "")
