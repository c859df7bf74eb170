"""Makes artefacts on demand: ``python -m tests.support.artifact_recipes``.

Every line of standard input is a JSON list ``[module, name, folder]``, every line of output the
exit code of the process that ran that recipe: the function of that name, or `make`, which takes
the name, of a module that has many artefacts of one kind. Importing torch and executorch takes
seven seconds, so it happens once, here; each recipe then runs in a fork of its own.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
from pathlib import Path

from tests.support.artifact_recipes.workbench import Workbench
from tests.support.artifacts import UNAVAILABLE_EXIT, ArtifactUnavailable


def serve() -> None:
    """Answer requests until the input ends."""
    forks = multiprocessing.get_context("fork")
    for line in sys.stdin:
        process = forks.Process(target=make, args=json.loads(line))
        process.start()
        process.join()
        print(process.exitcode, flush=True)


def make(module: str, name: str, folder: str) -> None:
    """Make one artefact in an empty folder; all noise goes to ``build.log`` beside it."""
    with open(Path(folder) / "build.log", "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    bench = Workbench(Path(folder))
    try:
        recipes = importlib.import_module(f"tests.support.artifact_recipes.{module}")
        recipes.make(bench, name) if hasattr(recipes, "make") else getattr(recipes, name)(bench)
    except ArtifactUnavailable as reason:
        print(reason, flush=True)
        sys.exit(UNAVAILABLE_EXIT)
    bench.finish()


if __name__ == "__main__":
    serve()
