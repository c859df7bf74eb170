"""A plugin of pytest: upstream's tests of its devtools run with etscope in place of what they test.

    python -m pytest -p tests.support.upstream_in_place --import-mode=importlib FILE …

Modules of tests stay upstream's; all other modules of `executorch.devtools` are etscope's. A name
that a test imports and etscope does not have is a `NotThere`, so that the file's other tests run.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from etscope import compat
from tests.contract.upstream_names import upstream_folder

_FOLDERS = {"tests", "test", "util"}


def upstream_tests() -> list[Path]:
    """Upstream's files of tests, and what only they use."""
    folder = upstream_folder()
    return [
        path
        for path in sorted(folder.rglob("*.py"))
        if _FOLDERS & set(path.relative_to(folder).parts) or path.stem.endswith("_test")
    ]


class NotThere:
    """A name that etscope does not have: to use it fails."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"etscope has no {self.__dict__['_name']}")

    __call__ = __getattr__ = __setattr__ = __getitem__ = _refuse


class _UpstreamsTests(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parts = fullname.split(".")
        if parts[:2] != ["executorch", "devtools"] or not _FOLDERS & set(parts):
            return None
        place = upstream_folder().joinpath(*parts[2:])
        if place.is_dir():
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(place)]
            return spec
        return importlib.util.spec_from_file_location(fullname, place.with_suffix(".py"))


def _imported(path: Path) -> Iterator[tuple[str, str]]:
    """The modules of etscope that a file imports from, with the names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            ours = compat.counterpart(node.module or "")
            if ours is not None and not _FOLDERS & set(ours.split(".")):
                yield from ((ours, alias.name) for alias in node.names)


def _fill_gaps() -> None:
    for path in upstream_tests():
        for ours, name in _imported(path):
            module = importlib.import_module(ours)
            if hasattr(module, "__path__") and importlib.util.find_spec(f"{ours}.{name}"):
                continue  # a module
            if not hasattr(module, name):
                setattr(module, name, NotThere(f"{ours}.{name}"))


compat.install()
sys.meta_path.insert(0, _UpstreamsTests())
_fill_gaps()
