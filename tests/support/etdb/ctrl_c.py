"""Ctrl-C at a known moment, not after milliseconds in which a busy machine does nothing."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.waiting import until


def press() -> None:
    """What Ctrl-C does: it is the main thread that hears it."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


class Waited(threading.Event):
    """An event that tells when somebody waits for it a second time, as a loop of waits does."""

    def __init__(self) -> None:
        super().__init__()
        self.is_awaited = threading.Event()
        self._waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self._waits += 1
        if self._waits == 2:
            self.is_awaited.set()
        return super().wait(timeout)


def is_heard_by(handler: object) -> bool:
    return signal.getsignal(signal.SIGINT) is handler


@contextmanager
def pressing(seconds: float = 0.0) -> Iterator[None]:
    """Ctrl-C so many seconds after a request inside begins to wait for its server."""
    before = signal.getsignal(signal.SIGINT)
    over = threading.Event()

    def wait_and_press() -> None:
        until(lambda: over.is_set() or not is_heard_by(before), every=0.0005)
        time.sleep(seconds)
        if not over.is_set():
            press()

    thread = threading.Thread(target=wait_and_press)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
