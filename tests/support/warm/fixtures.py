"""Fixtures of integration tests: runs of the Python runner, which are in processes of their own, do
not import torch anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import pytest

from tests.support.warm import warm_python

REAL = ("test_artifacts",)


@pytest.fixture(scope="module", autouse=True)
def _warm_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.module.__name__.endswith(REAL) or find_spec("executorch") is None:
        yield
        return
    from etscope.run import python

    run_process = python.run_process

    def warm(command: Sequence[str], *others: Any, **options: Any) -> int:
        return run_process([warm_python(), *command[1:]], *others, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(python, "run_process", warm)
        yield


@pytest.fixture
def real_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is the matter of the test: how it begins, ends and fails, and what it takes."""
    from etscope.run import process, python

    monkeypatch.setattr(python, "run_process", process.run_process)
