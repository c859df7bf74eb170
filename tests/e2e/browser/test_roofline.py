"""The page of rooflines, of real runs: its dots, table, selection and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etscope.formats.calibration import write_calibration
from tests.support.artifacts import artifacts
from tests.support.browser.chromium import draw, run_document, screenshot, set_scheme
from tests.support.calibrations import calibration


def document_with(name: str, peaks: Path | None) -> dict[str, Any]:
    files = artifacts(name)
    return run_document(files.etdump, files.etrecord, files.pte, numerics=False, peaks=peaks)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    peaks = tmp_path_factory.mktemp("peaks") / "peaks.json"
    write_calibration(calibration(), peaks)
    return document_with("cnn_portable", peaks)


def opened(page: Any, report: str, rest: str = "") -> Any:
    page.goto(f"{report}#run0/roofline/0{rest}")
    page.wait_for_selector('[data-testid="roofline-plot"] [data-dot]')
    return page


def test_it_fits_the_window_and_has_the_numbers_of_the_document(
    page: Any, report: str, document: dict[str, Any]
) -> None:
    opened(page, report, "/row-0-3")
    for width, theme in ((800, "dark"), (1280, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        set_scheme(page, theme)
        draw(page)
        screenshot(page, f"roofline-{width}-{theme}")
        assert page.evaluate(
            """() => {
                 const view = document.querySelector('[data-testid="roofline"]');
                 const plot = view.querySelector('svg').getBoundingClientRect();
                 const place = view.getBoundingClientRect();
                 return view.scrollWidth <= view.clientWidth + 1 && plot.right <= place.right + 1;
               }"""
        )
    run = document["runs"][0]
    points = run["roofline"]["methods"][0]
    drawn = page.locator("[data-dot]").evaluate_all("all => all.map(one => +one.dataset.dot)")
    placed = [
        at
        for at, place in enumerate(points["place"])
        if run["roofline"]["places"][place] in ("computes", "moves data")
    ]
    assert sorted(drawn) == placed and len(placed) > 5
    names = page.locator("[data-ceiling]").evaluate_all("all => all.map(o => o.dataset.ceiling)")
    assert names == ["L1", "memory", "float32", "8da4w", "int8"]
    assert "100.0% of the time" in page.locator('[data-testid="roofline-count"]').inner_text()
    assert page.failures == []


def test_a_click_and_the_keys_select_the_operator(page: Any, report: str) -> None:
    opened(page, report)
    box = page.locator('[data-dot="0"]').bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector(".dot-mark")
    assert "/row-0-" in page.url
    first = page.url
    chosen = page.wait_for_selector('[data-testid="roofline-table"] [aria-selected="true"]')
    assert chosen.inner_text()
    # The list: j goes to the next row; the other tabs show the same operator.
    page.keyboard.press("j")
    page.wait_for_function("url => location.href !== url", arg=first)
    selected = page.url.split("/row-0-")[1].split("?")[0]
    page.click('[data-testid="tab-events"]')
    page.wait_for_selector('[data-testid="instructions-table"] [aria-selected="true"]')
    assert f"/row-0-{selected}" in page.url
    # The picture: arrow keys go from dot to dot, Enter selects.
    page.click('[data-testid="tab-roofline"]')
    page.focus('[data-testid="roofline-plot"]')
    page.keyboard.press("End")
    text = page.wait_for_selector('[data-testid="roofline-point"]').inner_text()
    assert "FLOP/byte" in text and "GFLOP/s" in text and "of the peak" in text
    page.keyboard.press("Enter")
    page.wait_for_function("row => !location.href.includes('/row-0-' + row)", arg=selected)
    # Details lead to the roofline and back.
    page.goto(f"{report}#run0/events/0/row-0-3")
    for tab in ("roofline", "graph", "roofline"):
        page.click(f'.show-in button:has-text("{tab}")')
        page.wait_for_selector(f'[data-testid="tab-{tab}"][aria-selected="true"]')
        assert f"/{tab}/" in page.url
    page.wait_for_selector('[data-testid="roofline-plot"] .dot-mark')
    assert "/row-0-3" in page.url
    assert page.failures == []


def test_it_zooms_with_the_wheel_the_pointer_and_keys(page: Any, report: str) -> None:
    opened(page, report)
    draw(page)

    def ends(at: int) -> tuple[float, float]:
        box = page.locator(f'[data-dot="{at}"]').bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def dots() -> int:
        return int(page.locator("[data-dot]").count())

    everything = dots()
    before = ends(0)
    page.mouse.move(*before)
    for _ in range(4):
        page.mouse.wheel(0, -200)
    page.wait_for_selector('[data-testid="roofline-whole"]')
    page.wait_for_function(
        "all => document.querySelectorAll('[data-dot]').length < all", arg=everything
    )
    # What is under the pointer, which stands at a whole pixel, stays there.
    assert ends(0) == pytest.approx(before, abs=4)
    assert page.locator('[data-testid="roofline"]').evaluate("one => one.scrollTop") == 0
    screenshot(page, "roofline-zoomed")
    # A drag moves the picture, and selects nothing.
    held = ends(0)
    page.mouse.down()
    page.mouse.move(before[0] + 60, before[1] + 5, steps=3)
    page.mouse.up()
    assert ends(0)[0] == pytest.approx(held[0] + 60, abs=2)
    assert "/row-0-" not in page.url
    page.mouse.dblclick(before[0] + 10, before[1] + 60)
    page.wait_for_selector('[data-testid="roofline-whole"]', state="detached")
    assert dots() == everything and ends(0) == pytest.approx(before, abs=1)
    # The keys.
    page.focus('[data-testid="roofline-plot"]')
    for _ in range(4):
        page.keyboard.press("+")
    page.wait_for_selector('[data-testid="roofline-whole"]')
    for _ in range(12):
        page.keyboard.press("Shift+ArrowRight")
    assert dots() < everything
    page.keyboard.press("0")
    page.wait_for_selector('[data-testid="roofline-whole"]', state="detached")
    page.keyboard.press("+")
    page.click('[data-testid="roofline-whole"]')
    page.wait_for_selector('[data-testid="roofline-whole"]', state="detached")
    assert dots() == everything
    assert page.failures == []


def test_groups_filter_and_what_the_address_keeps(page: Any, report: str) -> None:
    opened(page, report)
    each = page.locator("[data-dot]").count()
    page.click('[data-testid="roofline-by"] [data-key="module"]')
    page.wait_for_function(
        "each => document.querySelectorAll('[data-dot]').length < each", arg=each
    )
    grouped = page.locator("[data-dot]").count()
    assert grouped > 2
    page.locator("[data-dot]").last.hover()  # the one drawn over the others
    assert page.wait_for_selector('[data-testid="roofline-point"] b').inner_text()
    page.reload()
    page.wait_for_selector('[data-testid="roofline-by"] [data-key="module"][aria-pressed="true"]')
    page.fill('[data-testid="filter"]', "share>10%")
    page.wait_for_function(
        "grouped => document.querySelectorAll('[data-dot]').length < grouped", arg=grouped
    )
    assert " of " in page.locator('[data-testid="roofline-count"]').inner_text()
    assert page.failures == []


def test_without_a_calibration_it_says_how_to_get_ceilings(page: Any, page_of: Any) -> None:
    opened(page, page_of(document_with("cnn_xnnpack", None)))
    assert page.locator("[data-ceiling]").count() == 0
    assert "etscope calibrate" in page.locator('[data-testid="roofline-notes"]').inner_text()
    assert "XnnpackBackend" in page.locator('[data-testid="roofline-legend"]').inner_text()
    assert page.failures == []
