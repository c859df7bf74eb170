"""Ctrl-C while a server works: its answer comes first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Patience:
    """What becomes of a Ctrl-C inside `kept`: the first is noted, and `told` is called if a run
    waits; the second is what it was before. Signals reach the main thread only."""

    def __init__(self, told: Callable[[], None]) -> None:
        self.noted = False
        self._told = told
        self._kept = False
        self._waiting = False
        self._asked = False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Note a Ctrl-C; `noted` says whether there was one. Of several the outermost counts."""
        if self._kept:
            yield
            return
        self.noted = False
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(before):
            yield
            return

        def note(number: int, frame: Any) -> None:
            signal.signal(signal.SIGINT, before)
            self.noted = True
            self._told()

        self._kept = True
        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self._kept = False

    @contextmanager
    def later(self) -> Iterator[None]:
        """A Ctrl-C inside, but outside of `kept`, comes when this is over: for what takes note of
        an answer."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(before):
            yield
            return
        came = False

        def note(number: int, frame: Any) -> None:
            nonlocal came
            if self._kept:  # the second one of a request
                before(number, frame)
            came = True

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        if came:
            before(signal.SIGINT, None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While the answer of a run is waited for, it may be interrupted."""
        self._asked, self._waiting = False, True
        if self.noted:
            self._told()
        try:
            yield
        finally:
            self._waiting = False

    def may_interrupt(self) -> bool:
        """Whether a run waits that nobody has asked to end yet; the caller does that now."""
        may = self._waiting and not self._asked
        self._asked = self._asked or may
        return may
