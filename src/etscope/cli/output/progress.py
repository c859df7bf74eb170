"""Progress bars on stderr for work that takes longer than a second."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock, Timer
from time import monotonic
from typing import Any, TextIO

from etscope.support.quiet import quiet

__all__ = ["counting", "progress", "saying", "transfers"]

_PATIENCE = 1.0  # seconds


@contextmanager
def _own_stderr() -> Iterator[TextIO]:
    """Yield a copy of standard error, which `quiet` does not redirect."""
    sys.stderr.flush()
    copy = os.dup(sys.stderr.fileno())
    with os.fdopen(copy, "w", encoding=sys.stderr.encoding) as terminal:
        yield terminal


@contextmanager
def reporting(text: str) -> Iterator[Callable[[str, str], None]]:
    """Show `text` like `progress` while other output is hidden. Yields a function that writes a
    line about a trial to standard error: its name and its result."""
    with _own_stderr() as terminal:

        def report(name: str, result: str) -> None:
            print(f"{name}: {result}", file=terminal, flush=True)

        with progress(text), quiet():
            yield report


@contextmanager
def progress(text: str, detail: Callable[[], str] = str) -> Iterator[None]:
    """Show `text` and the time it takes, on a terminal and after a second only. detail: returns
    what follows the text each time that it is drawn.
    """
    if not sys.stderr.isatty():
        yield
        return
    lock = Lock()
    shown: list[Any] = []
    done = False

    def show() -> None:
        from rich.progress import BarColumn, RenderableColumn, TimeElapsedColumn
        from rich.text import Text

        class Description(RenderableColumn):
            def render(self, task: Any) -> Text:
                return Text(text + detail())

        # A detail needs the room of the bar.
        bars = () if detail is not str else (BarColumn(),)
        bar = _bar(terminal, Description(), *bars, TimeElapsedColumn())
        bar.add_task(text, total=None)
        with lock:
            if not done:
                bar.start()
                shown.append(bar)

    with _own_stderr() as terminal:
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


@contextmanager
def counting(text: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """On a terminal, show `text` with a progress bar, if the work takes longer than a second.

    Yields a function that takes the number done and the total (None while it is unknown); the bar
    appears at its first call after the second. in_bytes: the numbers are bytes: show sizes and the
    speed.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    begin = monotonic()
    shown: list[Any] = []

    def update(done: int, total: int | None) -> None:
        if not shown:
            if monotonic() - begin < _PATIENCE:
                return
            from rich import progress as rich

            counts: list[Any] = [rich.MofNCompleteColumn()]
            if in_bytes:
                counts = [rich.DownloadColumn(), rich.TransferSpeedColumn()]
            times = (rich.TimeElapsedColumn(), rich.TimeRemainingColumn())
            text_and_bar = (rich.TextColumn("{task.description}"), rich.BarColumn())
            bar = _bar(terminal, *text_and_bar, *counts, *times)
            bar.start()
            shown.extend((bar, bar.add_task(text, total=None)))
        bar, task = shown
        bar.update(task, completed=done, total=total)

    with _own_stderr() as terminal:
        try:
            yield update
        finally:
            for bar in shown[:1]:
                bar.stop()


@contextmanager
def saying(name: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the next step, like the text of `progress`. name: shown at
    first.
    """
    with ExitStack() as bars:
        bars.enter_context(progress(name))

        def say(text: str) -> None:
            bars.close()
            bars.enter_context(progress(text))

        yield say


@contextmanager
def transfers() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for the file that a lab's client sends or fetches, like `counting`.

    Yields a function of the client's action ("sending model.pte"), the bytes done and all bytes.
    """
    with ExitStack() as bars:
        update: Callable[[int, int | None], None] | None = None
        shown = ""

        def show(what: str, done: int, size: int) -> None:
            nonlocal update, shown
            if update is None or what != shown:
                bars.close()
                update, shown = bars.enter_context(counting(what, in_bytes=True)), what
            update(done, size)
            if done >= size:
                bars.close()
                update = None

        yield show


def _bar(terminal: Any, *columns: Any) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(
        *columns,
        console=Console(file=terminal),
        transient=True,
        # Otherwise rich shows on the terminal what others write to stderr meanwhile.
        redirect_stdout=False,
        redirect_stderr=False,
    )
