"""Find anything on the report's page: Ctrl-K finds each kind of thing and goes to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etscope.capture.files import runs_of_files
from etscope.reporting.report import report_inputs
from etscope.views.page import document_of
from tests.support.artifacts import artifacts
from tests.support.browser.chromium import find, screenshot

MODEL = "transformer"
BOX = '[data-testid="finder-box"]'


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    files = artifacts(MODEL)
    given = [files.etdump_timing, files.etrecord, files.pte]
    inputs = list(report_inputs(runs_of_files([path for path in given if path is not None])))
    return document_of([*inputs, *inputs])


def test_each_kind_of_thing_is_found_and_shown(
    page: Any, report: str, document: dict[str, Any]
) -> None:
    run = document["runs"][0]
    rows = run["methods"][0]["rows"]["values"]
    number = next(i for i, ops in enumerate(rows["op_types"]) if ops and rows["module"][i])
    operator = rows["op_types"][number][0]
    (index, line), *_ = enumerate(run["source"]["lines"])
    name = f"{Path(run['source']['files'][line['file']]).name}:{line['line']}"
    graph = run["graphs"][-1]
    node = next(n for n, one in enumerate(graph["nodes"]) if one["kind"] == "call_function")
    page.goto(f"{report}#run0/summary/0")
    page.wait_for_selector('#view[data-tab="summary"]')

    find(page, operator, "operator")
    page.wait_for_selector('#view[data-tab="events"]')
    page.wait_for_selector(f'[data-testid="instructions-table"] [data-row="{number}"]')
    every = sum(operator in ops for ops in rows["op_types"])
    assert 0 < every < len(rows["op_types"])
    assert page.inner_text('[data-testid="count"]').startswith(f"{every} of ")

    find(page, rows["event"][number], "event")
    page.wait_for_selector('[data-testid="instructions-table"] .row.chosen')
    assert page.input_value('[data-testid="filter"]') == ""

    find(page, rows["module"][number], "module")
    page.wait_for_selector('#view[data-tab="modules"]')
    title = page.inner_text('[data-testid="details"] h2')
    assert rows["module"][number] in title

    find(page, name, "line")
    page.wait_for_selector(f'#view[data-tab="source"] #line-{index}.chosen')

    find(page, "value", "tensor")
    page.wait_for_selector('#view[data-tab="memory"]')
    page.wait_for_selector('[data-testid="memory-table"] .row.chosen')

    shape = next(texts[0] for texts in rows["outputs"] if texts and texts[0][-2] != "[")
    find(page, shape.partition("[")[2].strip("]").replace(", ", "x"), "shape")
    page.wait_for_selector('#view[data-tab="events"] [data-testid="instructions-table"] [data-row]')

    find(page, f"#{rows['debug_handles'][number][0]}", "handle")
    page.wait_for_selector(f'[data-testid="instructions-table"] [data-row="{number}"]')

    find(page, f"{graph['nodes'][node]['name']} {graph['nodes'][node]['op']}", "node")
    page.wait_for_selector('#view[data-tab="graph"]')
    pane = page.wait_for_selector('[data-testid="graph-pane"]')
    assert "/node-" in page.url
    assert pane.get_attribute("data-graph") == graph["key"]

    page.go_back()
    page.wait_for_selector('#view[data-tab="events"]')
    assert page.failures == []


def test_the_list_is_read_and_left_with_keys(page: Any, report: str) -> None:
    page.set_viewport_size({"width": 800, "height": 700})
    page.goto(f"{report}#run1/events/0")
    page.wait_for_selector('[data-testid="instructions-table"] [data-row]')
    page.click('[data-testid="find"]')
    page.wait_for_selector(BOX)
    assert page.evaluate("document.activeElement.getAttribute('role')") == "combobox"

    page.keyboard.type("linear")
    page.wait_for_selector('[role="option"][aria-selected="true"]')
    screenshot(page, "find")
    kinds = page.locator('[role="listbox"] [role="option"]').evaluate_all(
        "all => all.map(one => one.dataset.kind)"
    )
    assert len(set(kinds)) >= 3
    assert page.evaluate("document.documentElement.scrollWidth") == 800
    for element in page.query_selector_all(".finder-body, .finder-item"):
        assert element.evaluate("one => one.scrollWidth <= one.clientWidth")
    page.keyboard.press("Escape")

    page.wait_for_selector(BOX, state="detached")
    assert page.evaluate("document.activeElement.dataset.testid") == "find"
    page.focus('[data-testid="filter"]')
    page.keyboard.press("Control+k")  # from within another box
    page.wait_for_selector(BOX)
    page.keyboard.press("Escape")
    page.wait_for_selector(BOX, state="detached")
    assert page.evaluate("document.activeElement.dataset.testid") == "filter"
    assert page.failures == []
