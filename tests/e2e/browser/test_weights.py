"""The treemap of a program's weights: its rectangles are the parts of `etscope info --size`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etscope.capture.files import runs_of_files
from etscope.cli import main
from etscope.reporting.report import report_inputs
from etscope.views.page import document_of
from tests.support.artifacts import artifacts
from tests.support.browser.chromium import screenshot

MODELS = ("cnn_xnnpack_int8", "transformer")  # weights in delegates, weights of the program
COLUMNS = ("kind", "module", "dtype", "operator", "offset", "size")
WEIGHTS = "memory/0?memory.show=weights"
Told = Callable[[str], list[dict[str, Any]]]
ROW = '[data-testid="weights-table"] [data-row="{}"]'
LEAF = '[data-testid="weights-pane"]:nth-child({}) [data-testid="weights-leaf"]'


@pytest.fixture(scope="module")
def report(page_of: Any) -> str:
    files = [artifacts(model) for model in MODELS]
    inputs = [
        one
        for each in files
        for one in report_inputs(runs_of_files([each.etdump_timing, each.etrecord, each.pte]))
    ]
    found: str = page_of(document_of(inputs))
    return found


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """The parts that `etscope info --size --format json` gives for a model."""

    def rows(model: str) -> list[dict[str, Any]]:
        files = artifacts(model)
        command = ["info", "--size", str(files.pte), "--etrecord", str(files.etrecord)]
        assert main([*command, "--format", "json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)["reports"]
        listed: list[dict[str, Any]] = found["sections"]["parts"]
        return [{name: part[name] for name in COLUMNS} for part in listed]

    return rows


def leaves(page: Any, pane: int = 1) -> list[dict[str, Any]]:
    page.wait_for_selector(LEAF.format(pane))
    found: list[dict[str, Any]] = page.eval_on_selector_all(
        LEAF.format(pane),
        """all => all.map(one => {
          const box = one.querySelector('rect').getBBox();
          return {path: one.dataset.path, bytes: Number(one.dataset.bytes),
                  parts: Number(one.dataset.parts), area: box.width * box.height};
        })""",
    )
    return found


def by_top_module(rows: list[dict[str, Any]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for row in rows:
        if row["module"] is not None:
            top = row["module"].split(".")[0]
            sizes[top] = sizes.get(top, 0) + row["size"]
    return sizes


@pytest.mark.parametrize("number", range(len(MODELS)))
def test_rectangles_are_the_parts_of_the_file(
    page: Any, report: str, told: Told, number: int
) -> None:
    files = artifacts(MODELS[number])
    rows = told(MODELS[number])
    size = Path(files.pte).stat().st_size
    page.goto(f"{report}#run{number}/{WEIGHTS}")
    shown = leaves(page)

    assert sum(one["bytes"] for one in shown) == size == sum(row["size"] for row in rows)
    assert sum(one["parts"] for one in shown) == len(rows) > len(shown) / 2 > 5
    scale = sum(one["area"] for one in shown) / size
    for one in shown:
        assert one["area"] == pytest.approx(one["bytes"] * scale, rel=1e-3)
    for module, expected in by_top_module(rows).items():
        drawn = [
            one["bytes"]
            for one in shown
            if one["path"].split(".")[0] == (module if module != "(root)" else "")
        ]
        # The smallest of the file are drawn together, at no module.
        assert sum(drawn) <= expected or module == "(root)"
    total = page.get_attribute('[data-testid="weights-file"] [data-col="size"]', "data-value")
    assert total == str(size)

    # All parts are in the table.
    page.set_viewport_size({"width": 1400, "height": 60 * len(rows)})
    page.wait_for_selector(ROW.format(len(rows) - 1))
    cells = page.locator('[data-testid="weights-table"] [data-row]').evaluate_all(
        """(all, names) => all.map(row => names.map(
             name => row.querySelector(`[data-col="${name}"]`).dataset.value))""",
        COLUMNS,
    )
    told_rows = [["" if row[name] is None else str(row[name]) for name in COLUMNS] for row in rows]
    assert sorted(cells) == sorted(told_rows)
    assert page.failures == []


def test_a_click_zooms_in_and_a_reload_keeps_it(page: Any, report: str, told: Told) -> None:
    sizes = by_top_module(told(MODELS[1]))
    page.goto(f"{report}#run1/{WEIGHTS}")
    modules = [one for one in leaves(page) if one["path"].split(".")[0] in sizes]
    largest = max(modules, key=lambda one: one["bytes"])
    page.click(f'[data-testid="weights-leaf"][data-path="{largest["path"]}"] >> nth=0')
    crumbs = page.wait_for_selector('[data-testid="weights-crumbs"] button:nth-of-type(1)')
    page.wait_for_function("!location.hash.endsWith('weights')")

    zoomed = page.locator('[data-testid="weights-crumbs"] button').last.inner_text()
    inside = leaves(page)
    assert zoomed != crumbs.inner_text()
    assert {one["path"].split(".")[0] for one in inside} == {zoomed.split(".")[0]}
    assert sum(one["bytes"] for one in inside) <= sizes[zoomed.split(".")[0]]
    shown, hidden, file = (
        int(page.get_attribute(f'[data-testid="{one}"] [data-col="size"]', "data-value"))
        for one in ("weights-shown", "weights-hidden", "weights-file")
    )
    assert shown == sum(one["bytes"] for one in inside)
    assert shown + hidden == file == Path(artifacts(MODELS[1]).pte).stat().st_size

    page.reload()
    assert leaves(page) == inside
    page.click('[data-testid="weights-crumbs"] button >> nth=0')
    page.wait_for_selector('[data-testid="weights-shown"]', state="detached")
    assert sum(one["bytes"] for one in leaves(page)) == file
    assert page.failures == []


def test_keys_go_from_module_to_module(page: Any, report: str, told: Told) -> None:
    sizes = by_top_module(told(MODELS[0]))
    page.goto(f"{report}#run0/{WEIGHTS}")
    leaves(page)
    page.focus('[data-testid="weights-keys"]')
    page.keyboard.press("ArrowDown")  # into the largest part
    chosen = page.wait_for_selector('[data-testid="weights-bytes"]')
    assert page.is_visible('[data-testid="weights-chosen"]')
    assert int(chosen.get_attribute("data-value")) == max(sizes.values())
    screenshot(page, "report-weights")
    page.keyboard.press("Enter")
    page.wait_for_selector('[data-testid="weights-shown"]')
    assert sum(one["bytes"] for one in leaves(page)) == max(sizes.values())
    page.keyboard.press("Backspace")
    page.wait_for_selector('[data-testid="weights-shown"]', state="detached")
    assert page.failures == []


def test_the_finding_leads_to_weights_and_two_runs_share_one_scale(page: Any, report: str) -> None:
    page.goto(f"{report}#run1/summary/0")
    page.click('[data-testid="more-insights"] > summary')
    page.click('[data-testid="insights"] [data-kind="weights"] a')
    page.wait_for_selector('[data-testid="weights"]')
    assert leaves(page)

    page.goto("about:blank")
    page.goto(f"{report}#run1/{WEIGHTS}&weights.beside=run0")
    areas = []
    for pane, model in ((1, MODELS[1]), (2, MODELS[0])):
        shown = leaves(page, pane)
        size = sum(one["bytes"] for one in shown)
        assert size == Path(artifacts(model).pte).stat().st_size
        areas.append(sum(one["area"] for one in shown) / size)
    # Panes are as wide as whole pixels.
    assert areas[0] == pytest.approx(areas[1], rel=0.05)
    assert page.failures == []


def test_weights_in_a_ptd_file_have_a_place_of_their_own(
    page: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = artifacts("external_portable")
    data = made.extra("weights.ptd")
    path = tmp_path / "report.html"
    command = ["report", str(made.pte), str(made.etrecord), "--data", str(data), "-o", str(path)]
    assert main(command) == 0
    whole = made.pte.stat().st_size + data.stat().st_size
    page.goto(f"{path.as_uri()}#run0/{WEIGHTS}")
    shown = leaves(page)
    assert sum(one["bytes"] for one in shown) == whole
    inside = [one for one in shown if one["path"].split("/")[0] == "weights.ptd"]
    assert sum(one["bytes"] for one in inside) == data.stat().st_size
    assert "second" in {one["path"].rpartition("/")[2] for one in inside}
    assert page.is_visible("text=first.weight: float32[8, …")

    capsys.readouterr()
    assert main(["info", "--size", str(made.pte), str(data), "-f", "json"]) == 0
    totals = json.loads(capsys.readouterr().out)["reports"][1]["sections"]["savings"]
    expected = {row["change"]: row["saves"] for row in totals}
    for column, change in (
        ("saved_by_float16", "float32 to float16"),
        ("saved_by_int8", "float32 to int8 by channel"),
    ):
        sum_cell = f'[data-testid="weights-file"] [data-col="{column}"]'
        assert page.get_attribute(sum_cell, "data-value") == str(expected[change])
    page.click('[data-testid="weights-leaf"][data-path="weights.ptd/second"] >> nth=0')
    page.wait_for_selector('[data-testid="weights-shown"]')
    zoomed = leaves(page)
    assert sum(one["bytes"] for one in zoomed) == data.stat().st_size
    page.reload()
    assert leaves(page) == zoomed
    assert page.failures == []


def test_without_a_program_there_are_no_weights(page: Any, page_of: Any) -> None:
    files = artifacts("cnn_portable")
    (found,) = report_inputs(runs_of_files([files.etdump_timing]))
    document = document_of([found])
    page.goto(f"{page_of(document)}#run0/{WEIGHTS}")
    page.wait_for_selector("text=Memory: unknown without the program")
    assert document["runs"][0]["weights"] is None
    assert page.failures == []
