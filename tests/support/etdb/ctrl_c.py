"""Ctrl-C at a known moment, not after milliseconds in which a busy machine does nothing."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.etdb.server import SECONDS, eventually


def press() -> None:
    """What Ctrl-C does: it is the main thread that hears it."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


def is_heard_by(handler: object) -> bool:
    return signal.getsignal(signal.SIGINT) is handler


@contextmanager
def pressing(seconds: float = 0.0) -> Iterator[None]:
    """Ctrl-C so many seconds after a request inside begins to wait for its server."""
    before = signal.getsignal(signal.SIGINT)
    over = threading.Event()

    def wait_and_press() -> None:
        if eventually(lambda: over.is_set() or not is_heard_by(before), SECONDS, every=0.0005):
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
