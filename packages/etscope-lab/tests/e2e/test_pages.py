"""The lab as its documentation tells it: from submit to the TensorBoard tab, in a browser."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from etscope.formats.etdump.reader import read_etdump
from tests.support.artifacts import artifacts
from tests.support.browser.chromium import SIZE, screenshot, watched
from tests.support.docs.pages import ROOT, blocks

PAGE = ROOT / "docs/tutorials/lab.md"


@dataclass(frozen=True)
class Served:
    """A lab at work. job: of the page's submit command."""

    address: str
    home: Path
    job: str
    folder: Path

    def etscope(self, *arguments: str) -> str:
        return etscope(self.home, self.folder, *arguments)


def etscope(home: Path, folder: Path, *arguments: str) -> str:
    """What a command says on standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "etscope", *arguments],
        cwd=folder,
        env={**os.environ, "ETSCOPE_LAB": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def documented(beginning: str) -> list[str]:
    """The arguments of the page's command that begins so."""
    found = [
        command
        for block in blocks(PAGE)
        if block.language == "console"
        for command in block.commands
        if command.startswith(beginning)
    ]
    return shlex.split(found[0])[1:]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The page's two commands, and its first job."""
    folder = tmp_path_factory.mktemp("docs")
    home = folder / "lab"
    made = artifacts("transformer")
    for name, path in (("model.pte", made.pte), ("model.etrecord", made.etrecord)):
        assert path is not None
        shutil.copyfile(path, folder / name)
    process = subprocess.Popen(
        [sys.executable, "-m", "etscope", *documented("etscope lab serve"), "--port", "0"],
        cwd=folder,
        env={**os.environ, "ETSCOPE_LAB": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
        submit = documented("etscope lab submit model.pte --etrecord")
        said = etscope(home, folder, *submit, "--format", "json")
        yield Served(address.rstrip("/"), home, json.loads(said)["id"], folder)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def test_from_submit_to_the_tensorboard_tab(served: Served, page: Any) -> None:
    page.goto(served.address)
    row = page.locator("tr", has=page.locator(f'a[href="/jobs/{served.job}"]'))
    assert row.locator(".state").inner_text() == "done"
    row.get_by_role("link", name="model.pte").click()
    page.wait_for_url(f"**/jobs/{served.job}")

    # The numbers are those of the job's raw samples.
    job = json.loads(served.etscope("lab", "status", served.job, "--format", "json"))
    text = json.dumps(job)
    p50 = page.locator(".figures > div", has=page.locator("dt", has_text="p50")).first
    shown = p50.locator("dd").inner_text()
    assert any(
        abs(float(found) - milliseconds(shown)) <= 1e-3 * milliseconds(shown)
        for found in re.findall(r'"p50(?:_ms)?": ([0-9.e-]+)', text)
    ), (shown, text)
    page.locator("[data-chart=samples] canvas").wait_for()  # one
    page.locator("table[data-sortable]").wait_for()
    operators = page.locator("table[data-sortable]").inner_text()
    assert "Method::execute" in operators and "transformer.py:" in operators
    screenshot(page, "lab-job")

    page.locator("#report").scroll_into_view_if_needed()
    report = page.frame_locator("#report iframe")
    report.get_by_role("tab", name="Events").click()
    report.locator("[role=row], tr").nth(1).wait_for()

    with page.expect_download() as saving:
        page.get_by_role("link", name="Download etdump").click()
    assert saving.value.suggested_filename == "model.etdp"
    assert read_etdump(saving.value.path()).size > 0

    with page.context.expect_page() as opening:
        page.get_by_role("link", name="Open in TensorBoard").click()
    board = opening.value
    board.set_viewport_size(SIZE)
    board.wait_for_url(f"**/jobs/{served.job}/tensorboard/**")
    graph = board.locator("tf-graph-dashboard")
    graph.locator("g.node").first.wait_for()
    screenshot(board, "lab-tensorboard")
    board.get_by_role("tab", name=re.compile("executorch", re.I)).click()
    inside = board.frame_locator("iframe").frame_locator("iframe[title='ExecuTorch report']")
    inside.get_by_role("tab", name="Graph").wait_for()
    assert page.failures == []


def milliseconds(text: str) -> float:
    number, unit = re.findall(r"([\d,.]+)\s*(ns|µs|ms|s)", text)[0]
    return float(number.replace(",", "")) * {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def test_a_job_is_followed_and_cancelled_from_its_page(served: Served, page: Any) -> None:
    waiting = ["lab", "submit", "model.pte", "--device", "elsewhere-*", "--async"]
    job = json.loads(served.etscope(*waiting, "--format", "json"))["id"]
    page.goto(f"{served.address}/jobs/{job}")
    assert page.locator("#head .state").inner_text() == "queued"
    watching = watched(page.context.new_page())
    watching.goto(f"{served.address}/jobs/{job}")
    page.get_by_role("button", name="Cancel").click()
    page.locator(".state-cancelled").first.wait_for()
    # The other page finds out by itself.
    watching.bring_to_front()
    watching.locator("#head .state-cancelled").wait_for()
    assert page.failures == watching.failures == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_pages_fit_and_have_no_errors(served: Served, page: Any, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    job = served.job
    for path in ("/", f"/jobs/{job}", "/history", f"/compare?first={job}&second={job}", "/devices"):
        page.goto(served.address + path)
        page.locator("main").wait_for()
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, path
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        if path == "/history" and width > 400:
            page.locator("[data-chart=history] canvas").wait_for()
    assert page.failures == []


def test_pages_can_be_read_without_the_script(served: Served, chromium: Any) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = watched(context.new_page())
    page.goto(f"{served.address}/jobs/{served.job}")
    assert page.locator(".figures dd").count() >= 12
    assert page.get_by_role("link", name="Open in TensorBoard").count() == 1
    context.close()


def test_a_language_model(served: Served, page: Any) -> None:
    """The phases, a chart of the time of each token, and both phases' operators."""
    shutil.copyfile(artifacts("llama_generate").pte, served.folder / "llama.pte")
    options = ["-X", "new_tokens=8", "-X", "cold=1", "-X", "runner=native", "--format", "json"]
    lengths = ["--prompt-length", "9", "--prompt-length", "20"]
    command = ["lab", "submit", "llama.pte", *lengths, *options]
    job = json.loads(served.etscope(*command))
    page.goto(f"{served.address}/jobs/{job['id']}")
    section = page.locator("section", has=page.locator("#generation-title"))
    section.locator("[data-chart=samples] canvas").nth(1).wait_for()
    assert section.locator("[data-chart=samples] canvas").count() == 2
    [prompts, phases] = section.locator("table[data-sortable] tbody").all()
    assert "20 tokens of seed 0" in prompts.inner_text()
    assert phases.locator("tr").count() == 4
    operators = page.locator("section", has=page.locator("#operators-title"))
    operators.locator("table").nth(1).wait_for()
    captions = operators.locator("caption").all_inner_texts()
    assert captions == ["forward · prefill", "forward · decode"]
    for width in (390, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.goto(f"{served.address}/history")
    cards = page.locator(".series .card")
    cards.nth(0).wait_for()
    assert cards.filter(has_text="cold first token").count() == 2
    assert page.failures == []
