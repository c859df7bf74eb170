"""Pages in the system's Chromium, driven by Playwright: fixtures of all tests of pages.

A file of tests has one profile of the browser that `launched` starts. `page` is a page of it that
is blank again for each test, and its `failures` are what went wrong on it (exceptions, and errors
on its console). Nothing but this machine can be reached from it. `page_of` writes the page of a
report's document. `screenshot` keeps a picture where `$ETSCOPE_SCREENSHOTS` says: those of the
documentation are made so; a person can look at what a test saw.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etscope.capture.files import runs_of_files
from etscope.reporting.report import ReportOptions, report_inputs
from etscope.views.page import document_of, page_html
from tests.support.browser.launched import PATIENCE

SCREENSHOTS = "ETSCOPE_SCREENSHOTS"
SIZE = {"width": 1400, "height": 900}


@pytest.fixture(scope="module")
def profile(chromium: Any) -> Iterator[Any]:
    """A Playwright `BrowserContext` for the tests of a file, with one page."""
    context = chromium.new_context(viewport=SIZE)
    context.set_default_timeout(PATIENCE)
    watched(context.new_page())
    yield context
    context.close()


@pytest.fixture
def page(profile: Any) -> Any:
    """The file's Playwright `Page`, blank and of the usual size, without others that a test opened;
    `page.failures` is a list of texts."""
    shared, *others = profile.pages
    for other in others:
        other.close()
    shared.goto("about:blank")
    shared.set_viewport_size(SIZE)
    shared.emulate_media(color_scheme="light")
    shared.failures.clear()
    return shared


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], str]:
    """Writes the page of a report's document, and returns its address."""

    def written(document: Any) -> str:
        path = tmp_path_factory.mktemp("report") / "report.html"
        path.write_text(page_html(document))
        return path.as_uri()

    return written


@pytest.fixture(scope="module")
def report(document: Any, page_of: Callable[[Any], str]) -> str:
    """The address of the page of what the file's fixture `document` gives."""
    return page_of(document)


def run_document(*files: Path | None, **options: Any) -> dict[str, Any]:
    """The document of a report of these files, with `ReportOptions`."""
    runs = runs_of_files([path for path in files if path is not None])
    return document_of(list(report_inputs(runs, ReportOptions(**options))))


def watched(page: Any) -> Any:
    """The page with the list `failures` of what goes wrong on it from now on."""
    page.set_default_timeout(PATIENCE)
    page.failures = []
    page.on("pageerror", lambda error: page.failures.append(str(error)))
    page.on(
        "console",
        lambda message: page.failures.append(message.text) if message.type == "error" else None,
    )
    return page


def draw(page: Any) -> None:
    """Wait until what the page has changed is drawn: a few frames, however long they take."""
    page.evaluate(
        """async () => {
             for (let frame = 0; frame < 3; frame++)
               await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
           }"""
    )


def set_scheme(page: Any, scheme: str) -> None:
    """Ask an open report for "dark" or "light", and wait until it is.

    A page hears of the system's scheme with its next frame: `emulate_media` can return before it.
    """
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function(
        "scheme => document.documentElement.dataset.theme === scheme", arg=scheme
    )


def find(page: Any, text: str, kind: str) -> None:
    """Find `text` in a report and go to the first thing of that kind, by keys alone."""
    box = '[data-testid="finder-box"]'
    page.keyboard.press("Control+k")
    page.wait_for_selector(box)
    page.keyboard.type(text)
    option = page.wait_for_selector(f'[role="option"][data-kind="{kind}"]')
    for _ in range(60):
        if option.get_attribute("aria-selected") == "true":
            break
        page.keyboard.press("ArrowDown")
    assert page.get_attribute(box, "aria-activedescendant") == option.get_attribute("id")
    page.keyboard.press("Enter")
    page.wait_for_selector(box, state="detached")


def screenshot(page: Any, name: str, still: float = 500) -> None:
    """Keep a picture of the page as `name`.png, if someone wants pictures; `still` are the
    milliseconds after which nothing moves."""
    folder = os.environ.get(SCREENSHOTS)
    if folder:
        page.wait_for_timeout(still)
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{name}.png"))
