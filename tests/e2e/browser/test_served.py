"""The page with data from a server: it follows its files."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etscope import Inspector
from etscope.analysis.profile.scale import Scale
from etscope.units import TimeScale
from tests.e2e.browser.test_report import near, table
from tests.support.artifacts import artifacts

pytest.importorskip("werkzeug")
MS = Scale(TimeScale.NS, TimeScale.MS)


def total_of(dump: Path, record: Path) -> float:
    profile = Inspector(dump, etrecord=record).trace.profiles()[0]
    return float(MS(profile.total).mean())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = artifacts("cnn_xnnpack")
    shutil.copy(files.etdump_timing, tmp_path / "run.etdp")
    shutil.copy(files.etrecord, tmp_path / "model.etrecord")
    return tmp_path


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "etscope", "report", "--serve", str(folder), "-X", "numerics=false"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.mark.filterwarnings("ignore::etscope.errors.EtscopeWarning")
def test_the_page_follows_the_files(page: Any, address: str, folder: Path) -> None:
    files = artifacts("cnn_xnnpack")
    before = total_of(files.etdump_timing, files.etrecord)
    after = total_of(files.etdump, files.etrecord)
    page.goto(f"{address}#run0/events/0")
    rows = table(page, "instructions-table")
    assert near(rows[max(rows)]["avg"], before)

    shutil.copy(files.etdump, folder / "run.etdp")

    page.wait_for_function(
        """after => [...document.querySelectorAll(
            '[data-testid="instructions-table"] [data-col="avg"]'
        )].some(cell => Math.abs(Number(cell.dataset.value) - after) <= 1e-12 * after)""",
        arg=after,
    )
    assert page.failures == []


_DROP = """files => {
  const data = new DataTransfer();
  for (const [name, packed] of files)
    data.items.add(new File([Uint8Array.from(atob(packed), one => one.charCodeAt(0))], name));
  document.body.dispatchEvent(
    new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


@pytest.mark.filterwarnings("ignore::etscope.errors.EtscopeWarning")
def test_dropped_files_are_a_report(page: Any, address: str) -> None:
    files = artifacts("cnn_xnnpack")
    page.goto(address)
    page.wait_for_selector('[data-testid="open-files"]', state="attached")
    page.evaluate(_DROP, [["a.py", base64.b64encode(b"print(1)").decode()]])
    page.wait_for_selector('[data-testid="opening"].bad >> text=not a file that etscope reads')
    page.failures.clear()  # the console has the refusal
    given = {"m.etrecord": files.etrecord, "other.etdp": files.etdump}
    page.evaluate(
        _DROP, [[name, base64.b64encode(one.read_bytes()).decode()] for name, one in given.items()]
    )
    page.wait_for_url("**report=*")
    page.click('[data-testid="tab-events"]')
    rows = table(page, "instructions-table")
    assert near(rows[max(rows)]["avg"], total_of(files.etdump, files.etrecord))
    assert page.failures == []
