"""The child process: ``python -m tests.artifact_recipes MODULE NAME FOLDER``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tests.artifact_recipes.workbench import Workbench
from tests.artifacts import UNAVAILABLE_EXIT, ArtifactUnavailable


def main(module: str, name: str, folder: str) -> int:
    """Make one artefact in an empty folder."""
    recipe = getattr(importlib.import_module(f"tests.artifact_recipes.{module}"), name)
    bench = Workbench(Path(folder))
    try:
        recipe(bench)
    except ArtifactUnavailable as reason:
        print(reason, flush=True)
        return UNAVAILABLE_EXIT
    bench.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
