"""The values behind a numeric verdict, as a browser shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("executorch.exir")

from etscope.capture.files import runs_of_files
from etscope.reporting.report import report_inputs
from etscope.views.page import ReportRun, document_of
from tests.support.artifacts import artifacts
from tests.support.browser.chromium import screenshot
from tests.support.faults.one_channel import CHANNEL, NODE

TABLE = '[data-testid="numerics-table"]'


@pytest.fixture(scope="module")
def run() -> ReportRun:
    made = artifacts("one_channel")
    files = [made.extra("run.etdp"), made.extra("right.etrecord")]
    (found,) = report_inputs(runs_of_files(files))
    return found


@pytest.fixture(scope="module")
def report(run: ReportRun, page_of: Any) -> str:
    found: str = page_of(document_of([run]))
    return found


def cell(page: Any, table: str, column: str) -> str:
    selector = f'[data-testid="values-{table}"] tbody tr:first-child [data-col="{column}"]'
    found: str = page.wait_for_selector(selector).get_attribute("data-value")
    return found


def test_a_chosen_row_shows_its_values(page: Any, report: str) -> None:
    page.goto(f"{report}#run0/numerics/0")
    page.click(f'{TABLE} [data-row]:has-text("{NODE}")')

    page.wait_for_selector('[data-testid="values"][data-against="local"]')
    assert cell(page, "channels", "channel") == str(CHANNEL)
    assert cell(page, "elements", "index").startswith(f"[0,{CHANNEL},")
    label = page.get_attribute('[data-testid="values-channels"]', "aria-label")
    assert f"channel {CHANNEL} has 100.0% of the error" in label
    heights = page.locator('[data-testid="values-channels"] rect').evaluate_all(
        "all => all.map(one => Number(one.getAttribute('height')))"
    )
    worst = page.locator('[data-testid="values-channels"] rect.values-worst')
    assert worst.count() == 1
    assert float(worst.get_attribute("height")) == max(heights)
    assert max(heights) == pytest.approx(120)
    histogram = page.locator('[data-testid="values-histogram"]')
    assert histogram.locator("path").count() == 2
    assert histogram.bounding_box()["width"] > 100
    colours = page.evaluate(
        "() => [...document.querySelectorAll('[data-testid=values-histogram] path')]"
        ".map(one => getComputedStyle(one).stroke + getComputedStyle(one).fill)"
    )
    assert len(set(colours)) == 2
    screenshot(page, "values")

    # The choice of the reference is in the address.
    page.focus('[data-testid="values-against"] [data-key="total"]')
    page.keyboard.press("Enter")
    page.wait_for_selector('[data-testid="values"][data-against="total"]')
    assert "numerics.against=total" in page.url
    page.reload()
    page.wait_for_selector('[data-testid="values"][data-against="total"]')
    assert cell(page, "channels", "channel") == str(CHANNEL)

    # Rows are chosen by keys, too.
    page.goto("about:blank")
    page.goto(f"{report}#run0/numerics/0")
    page.wait_for_selector(f"{TABLE} [data-row]")
    page.locator(TABLE).focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.wait_for_selector('[data-testid="values"]')
    assert page.failures == []


def test_rows_with_values_have_a_mark(page: Any, run: ReportRun, page_of: Any) -> None:
    assert run.numerics is not None
    rows = [
        row if row.pair.node == NODE else replace(row, values=None) for row in run.numerics.rows
    ]
    few = replace(run, numerics=replace(run.numerics, rows=tuple(rows)))
    page.goto(f"{page_of(document_of([few]))}#run0/numerics/0")
    page.wait_for_selector(f"{TABLE} [data-row]")
    marked = page.locator(f"{TABLE} [data-row]:has(.values-mark)")
    assert marked.count() == 1
    assert NODE in marked.inner_text()
    page.click(f"{TABLE} [data-row]:not(:has(.values-mark))")
    text = page.wait_for_selector('[data-testid="no-values"]').inner_text()
    assert "of one row only" in text
    assert "etscope numerics --values aten_" in text
    assert page.failures == []


def test_the_summary_says_where_it_goes_wrong_and_what_it_is(page: Any, report: str) -> None:
    page.goto(report)
    card = page.wait_for_selector('[data-testid="numerics-card"]')
    where, what = (line for line in card.inner_text().splitlines() if ": " in line)
    assert NODE in where
    assert "is the first that goes wrong" in where
    assert what.startswith("what it is: ")
    assert f"channel {CHANNEL}" in what
    assert "1.3" in what
    screenshot(page, "numerics-summary")
    page.click(f'[data-testid="numerics-card"] .link:has-text("{NODE}")')
    page.wait_for_selector(f'{TABLE} [data-row]:has-text("{NODE}")')
    assert page.failures == []
