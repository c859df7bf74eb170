"""Hooks of the build of etscope-lab: its version is that of etscope, and the script of its pages is
built from web/ of the repository. In an sdist both are made already.
"""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY = Path(__file__).resolve().parents[2]
VERSION = REPOSITORY / "src" / "etscope" / "_version.py"


class SameVersion(MetadataHookInterface):
    """Takes the version of etscope, and requires that version of it."""

    def update(self, metadata: dict[str, Any]) -> None:
        if not VERSION.is_file():
            return  # an sdist, whose PKG-INFO has them
        found = re.search(r'__version__ = "(.+)"', VERSION.read_text())
        assert found is not None
        extras = ",".join(self.config["extras"])
        metadata["version"] = found[1]
        metadata["dependencies"] = [
            f"etscope[{extras}]=={found[1]}",
            *self.config["dependencies"],
        ]


class ScriptOfPages(BuildHookInterface):
    """Builds the script as the repository's own hook builds the page of the report."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._web: Any = None
        if VERSION.is_file():
            spec = spec_from_file_location("etscope_web", REPOSITORY / "hatch_build.py")
            assert spec is not None and spec.loader is not None
            self._web = module_from_spec(spec)
            spec.loader.exec_module(self._web)

    def dependencies(self) -> list[str]:
        return [] if self._web is None else self._web.required(self._web.LAB)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self._web is not None:
            self._web.build(self._web.LAB)
