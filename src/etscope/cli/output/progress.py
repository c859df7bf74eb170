"""A sign of life on stderr for work that takes over a second."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from time import monotonic
from typing import Any

__all__ = ["counting"]


_PATIENCE = 1.0  # seconds


@contextmanager
def counting(text: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Show `text` with a bar that counts what is done, on a terminal and after a second only.

    Yields a function of the number done and the total, None while that is not known; the bar
    appears at its first call after the second. in_bytes: both are bytes, shown as sizes and with
    the speed.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    terminal = os.fdopen(os.dup(sys.stderr.fileno()), "w")  # ours, whatever is done to stderr
    begin = monotonic()
    shown: list[Any] = []

    def tell(done: int, total: int | None) -> None:
        if not shown:
            if monotonic() - begin < _PATIENCE:
                return
            shown.append(_bar(text, terminal, in_bytes))
        bar, task = shown[0]
        bar.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        for bar, _ in shown:
            bar.stop()
        terminal.close()


def _bar(text: str, terminal: Any, in_bytes: bool) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *((DownloadColumn(), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(),)),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(file=terminal),
        transient=True,
        # Left alone, rich would show on the terminal what others write to stderr meanwhile.
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.start()
    return bar, bar.add_task(text, total=None)


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show `text` with the time it takes so far, on a terminal and after a second only.

    rich draws it; its import is not paid for by what is done before.
    """
    if not sys.stderr.isatty():
        yield
        return
    terminal = os.fdopen(os.dup(sys.stderr.fileno()), "w")  # ours, whatever is done to stderr
    lock = Lock()
    shown: list[Any] = []
    done = False

    def show() -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        # Left alone, rich would show on the terminal what others write to stderr meanwhile.
        bar = Progress(
            *columns,
            console=Console(file=terminal),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        bar.add_task(text, total=None)
        with lock:
            if not done:
                bar.start()
                shown.append(bar)

    timer = Timer(_PATIENCE, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            done = True
            for bar in shown:
                bar.stop()
        terminal.close()
