"""The HTML report of BERT base: what it costs to write, and how soon a browser shows it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.side import Cost, process, told
from tests.support.artifacts import artifacts

LARGEST = 8 << 20  # bytes that a report of this size may have

_BROWSE = """
import time
from playwright.sync_api import sync_playwright
from tests.support.browser.chromium import FLAGS
driver = sync_playwright().start()
browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=list(FLAGS))

def painted(address):
    page = browser.new_context().new_page()
    page.goto(address)
    page.wait_for_selector('[data-testid="section-profile"]')
    entries = page.evaluate(
        "performance.getEntriesByName('first-contentful-paint').map(one => one.startTime)")
    page.close()
    return entries[0] / 1000
"""


def written() -> Cost:
    """CPU of the whole process. Fails when the file is larger than it may be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        cost = process(*_command(path), repeats=3, cpu=True)
        size = path.stat().st_size
        if size > LARGEST:
            raise AssertionError(f"the report has {size:,} bytes, {LARGEST:,} are allowed")
        return cost


def painted() -> Cost:
    """From opening the file to the first content on the screen, in headless Chromium."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        process(*_command(path), repeats=1)
        return told(_BROWSE, f"seconds = painted({path.as_uri()!r})", repeats=3)


def _command(path: Path) -> list[str]:
    made = artifacts("bert_base_xnnpack")
    files = [str(made.etdump_timing), str(made.etrecord)]
    return ["-m", "etscope", "report", *files, "-o", str(path)]
