"""Waits for what goes on beside a test: as long as a busy machine takes."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable

PATIENCE = 300.0  # seconds


def until(
    condition: Callable[[], object],
    *,
    every: float = 0.02,
    shown: Callable[[], object] | None = None,
) -> None:
    """Wait until it holds; fail with its text, and with what is shown then, when it does not."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            more = "" if shown is None else f"\n{shown()}"
            message = f"in {PATIENCE:g} s not: {inspect.getsource(condition)}{more}"
            raise AssertionError(message)
        time.sleep(every)
