"""Fixtures for the tests of the debugger."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.support.etdb.runtime_sessions import OPEN


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Whoever runs the tests in the background has SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def sessions_are_closed() -> Iterator[None]:
    """Sessions on the runtime end with their test."""
    yield
    for one in OPEN:
        one.debugger.close()
    OPEN.clear()
