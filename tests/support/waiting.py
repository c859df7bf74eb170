"""Waits for what goes on beside a test: as long as a busy machine takes."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable

PATIENCE = 300.0  # seconds


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds; fail with its text when it does not."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"in {PATIENCE:g} s not: {inspect.getsource(condition)}"
        time.sleep(0.02)
