"""How far files are on their way to or from a lab, on a terminal's stderr after a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_PATIENCE = 1.0  # seconds


@contextmanager
def transfers() -> Iterator[Callable[[str, int, int], None]]:
    """What a `Client` calls with the words, the bytes done and all bytes."""
    if not sys.stderr.isatty():
        yield lambda what, done, size: None
        return
    bars = _Bars()
    try:
        yield bars.show
    finally:
        bars.stop()


class _Bars:
    """One bar at a time: of the file that is under way."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._bar: Any = None
        self._task: Any = None
        self._what = ""

    def show(self, what: str, done: int, size: int) -> None:
        began = self._since.setdefault(what, time.monotonic())
        if done >= size:
            self.stop()
            self._since.pop(what, None)
        elif time.monotonic() - began > _PATIENCE:
            self._draw(what, done, size)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self, what: str, done: int, size: int) -> None:
        if self._bar is None or self._what != what:
            self.stop()
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

            self._what = what
            self._bar = Progress(
                "{task.description}",
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._bar.add_task(what, total=size)
            self._bar.start()
        self._bar.update(self._task, completed=done)
