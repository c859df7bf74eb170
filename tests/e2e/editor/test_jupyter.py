"""A notebook in a real JupyterLab, and what nbconvert makes of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.artifacts import artifacts
from tests.support.ports import free_port

PYTHON = Path(__file__).parents[3] / "build" / "jupyter" / "bin" / "python"
FILES = "run.etdp model.etrecord"
CELLS = (
    "from etscope import Inspector\n%load_ext etscope",
    "inspector = Inspector('run.etdp', etrecord='model.etrecord')\ninspector",
    "view = inspector.report()\nview.tab = 'events'\nview",
    f"%%etscope inspect {FILES}\nexplain {FILES}",
    f"%etscope report {FILES}",
    "print(view.selected.values.get('event', []))",
)

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not PYTHON.is_file():
        pytest.skip("no JupyterLab: make test-editor installs it")
    found = tmp_path_factory.mktemp("notebook")
    files = artifacts("cnn_xnnpack")
    shutil.copy(files.etdump, found / "run.etdp")
    shutil.copy(files.etrecord, found / "model.etrecord")
    cells = [
        {"id": str(number), "cell_type": "code", "source": text, "metadata": {}, "outputs": [],
         "execution_count": None}
        for number, text in enumerate(CELLS)
    ]  # fmt: skip
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4,
                "nbformat_minor": 5}  # fmt: skip
    (found / "run.ipynb").write_text(json.dumps(notebook))
    return found


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    port = free_port()
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(folder), "IPYTHONDIR": str(folder)}
    command = [PYTHON, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}",
               "--IdentityProvider.token=", f"--notebook-dir={folder}"]  # fmt: skip
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert any(f"127.0.0.1:{port}/lab" in line for line in server.stderr)
        yield f"http://127.0.0.1:{port}/lab/tree/run.ipynb"
        server.terminate()


def test_reprs_widget_and_magic(page: Any, address: str, folder: Path) -> None:
    page.goto(address)
    page.wait_for_selector("text=Python 3 (ipykernel) | Idle")
    page.click(".lm-MenuBar >> text=Run")
    page.click(".lm-Menu >> text=Run All Cells")
    cells = page.locator(".jp-Notebook .jp-Cell")
    for number, text in ((1, "IGEMM"), (3, "over the runs"), (5, "[]")):
        cells.nth(number).locator(f".jp-OutputArea-output >> text={text} >> nth=0").wait_for()
    assert cells.nth(3).locator("table").count() >= 2
    cells.nth(4).locator("iframe").wait_for()
    assert "wrote" not in cells.nth(4).inner_text()
    frame = cells.nth(2).locator("iframe").element_handle().content_frame()
    frame.wait_for_selector('[data-testid="instructions-table"] [data-row="3"]').click()
    page.wait_for_timeout(1000)  # the kernel hears of it, and the page cannot tell
    cells.nth(5).locator(".jp-InputArea-editor").click()
    page.keyboard.press("Shift+Enter")
    cells.nth(5).locator(".jp-OutputArea-output >> text=/Convol/").wait_for()
    assert page.failures == []
    page.keyboard.press("Control+s")
    page.wait_for_function(
        "async () => /Convol.*IGEMM #/.test((await (await fetch('/files/run.ipynb')).text())"
        ".split('selected').pop())"
    )

    # What JupyterLab has saved is static, and so is what nbconvert makes of it.
    command = [PYTHON, "-m", "nbconvert", "--to", "html", folder / "run.ipynb"]
    subprocess.run(command, check=True, capture_output=True)
    page.goto((folder / "run.html").as_uri())
    written = page.locator(".jp-Cell")
    for number in (2, 4):
        written.nth(number).locator("table >> text=what matters").wait_for()
    assert written.nth(3).locator("table").count() >= 2
