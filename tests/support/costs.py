"""What a test's seconds went into, as properties of the test in the JUnit XML.

A pytest plugin that is active with `--junitxml`: `python -m tests.support.durations` makes the
table of tests/DURATIONS.md from it. The kinds are measured, not guessed: exports (torch's and
ExecuTorch's, in this process), artefacts (unpacked or built), processes (waited for). What is
within another kind counts for the outer one.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support import artifacts

PROPERTY = "seconds:"  # before the name of a kind
_seconds: Counter[str] = Counter()
_inside = False

# Where exports begin, by the module that has it; classes are patched, since callers hold names of
# functions.
_EXPORTS = {
    "torch.export._trace": ("_export",),
    "executorch.exir.program._program": (
        "EdgeProgramManager.to_backend",
        "EdgeProgramManager.to_executorch",
        "_gen_edge_manager_for_partitioners",
        "_generate_edge_program",
    ),
}


@contextmanager
def _counted(kind: str) -> Iterator[None]:
    global _inside
    if _inside:
        yield
        return
    _inside, started = True, time.perf_counter()
    try:
        yield
    finally:
        _inside = False
        _seconds[kind] += time.perf_counter() - started


def _count(owner: Any, name: str, kind: str) -> None:
    """Count the seconds of calls of a function, once."""
    function: Callable[..., Any] | None = getattr(owner, name, None)
    if function is None or hasattr(function, "counted_as"):
        return

    @functools.wraps(function)
    def counted(*arguments: Any, **options: Any) -> Any:
        with _counted(kind):
            return function(*arguments, **options)

    counted.counted_as = kind  # type: ignore[attr-defined]
    setattr(owner, name, counted)


def _count_exports() -> None:
    for module, names in _EXPORTS.items():
        if module in sys.modules:
            for name in names:
                holder, _, last = name.rpartition(".")
                owner = sys.modules[module]
                _count(getattr(owner, holder, None) if holder else owner, last, "exports")


class Costs:
    """The hooks."""

    def pytest_sessionstart(self) -> None:
        _count(artifacts, "_found_or_built", "artefacts")
        _count(subprocess.Popen, "wait", "processes")
        _count(subprocess.Popen, "communicate", "processes")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        _seconds.clear()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        _count_exports()  # what setting up has imported
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        finally:
            item.user_properties += [
                (f"{PROPERTY}{kind}", f"{seconds:.3f}") for kind, seconds in _seconds.items()
            ]
