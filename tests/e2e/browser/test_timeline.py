"""The timeline of the report's page: all runs, and the sums of a marked part of time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.artifacts import artifacts
from tests.support.browser.chromium import draw, run_document, screenshot

SUMS = '[data-testid="span-sums"]'


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    files = artifacts("cnn_xnnpack")
    return run_document(files.etdump_timing, files.etrecord, files.pte)


def shown(page: Any) -> tuple[float, int, float]:
    """The total, the number of runs, and the sum of the rows."""
    total = page.wait_for_selector('[data-testid="span-total"]')
    rows = page.locator('[data-testid="span-row"]').evaluate_all(
        "all => all.map(one => Number(one.dataset.value))"
    )
    assert rows
    return (
        float(total.get_attribute("data-value")),
        int(total.get_attribute("data-runs")),
        sum(rows),
    )


def test_all_runs_are_on_tracks_and_their_sum_is_that_of_the_events(
    page: Any, report: str, document: dict[str, Any]
) -> None:
    method = document["runs"][0]["methods"][0]
    excluded = method["excluded"] or {"totals": []}  # they are drawn, too
    totals = [*method["totals"], *excluded["totals"]]
    page.goto(f"{report}#run0/timeline/0")
    page.wait_for_selector('[data-testid="timeline-track"]')
    tracks = page.locator('[data-testid="timeline-track"]').all_inner_texts()
    assert sum(text.startswith("run ") for text in tracks) == len(totals) > 3

    assert page.locator('[data-testid="timeline-legend"] span').count() > 3

    page.focus('[data-testid="timeline-canvas"]')
    page.keyboard.press("f")
    page.keyboard.press("m")  # nothing is selected: what is seen, which is all
    page.wait_for_selector(SUMS)

    for by in ("op", "module", "type"):
        page.select_option('[data-testid="span-by"]', by)
        total, runs, rows = shown(page)
        assert math.isclose(total, sum(totals), rel_tol=1e-6)
        assert math.isclose(rows, total, rel_tol=1e-6)
        assert runs == len(totals)
    screenshot(page, "timeline-sums")
    page.reload()
    assert math.isclose(shown(page)[0], sum(totals), rel_tol=1e-6)
    assert "timeline.by=type" in page.url
    page.focus('[data-testid="timeline-canvas"]')
    page.keyboard.press("x")
    page.wait_for_selector(SUMS, state="detached")
    assert page.failures == []


def test_a_part_is_marked_with_the_mouse_and_moved_with_keys(page: Any, report: str) -> None:
    page.goto(f"{report}#run0/timeline/0")
    canvas = page.wait_for_selector('[data-testid="timeline-canvas"]')
    draw(page)
    box = canvas.bounding_box()
    y = box["y"] + 10  # the ruler
    page.mouse.move(box["x"] + 0.2 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], y, steps=4)
    page.mouse.up()
    page.wait_for_selector(SUMS)
    marked = page.url
    part, _, rows = shown(page)
    assert "timeline.span=" in marked
    assert math.isclose(rows, part, rel_tol=1e-6)

    page.focus('[data-testid="timeline-canvas"]')
    page.keyboard.press("ArrowRight")  # selects the first span
    page.keyboard.press("m")
    page.wait_for_function("url => location.href !== url", arg=marked)
    total, runs, _ = shown(page)
    assert runs >= 1 and total > 0

    for text in ("5-1", "NaN-2"):  # what is no span is not taken
        page.goto("about:blank")
        page.goto(f"{report}#run0/timeline/0?timeline.span={text}")
        page.wait_for_selector('[data-testid="timeline-track"]')
        assert page.locator(SUMS).count() == 0
    assert page.failures == []
