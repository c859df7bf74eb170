"""A sign of life on stderr for work that takes over a second."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import Any

_PATIENCE = 1.0  # seconds


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
