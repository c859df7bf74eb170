"""`chromium`: one browser for the whole test run.

A fixture of the outermost conftest.py: imported into two, it would be two browsers in one process,
which Playwright refuses.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
_NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 120_000  # ms, on a busy machine


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A Playwright `Browser`. The test is skipped on a machine without one."""
    playwright = pytest.importorskip("playwright.sync_api")
    executable = next(filter(None, map(shutil.which, _NAMES)), None)
    if executable is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=executable, args=list(FLAGS), timeout=PATIENCE
        )
        yield browser
        browser.close()
