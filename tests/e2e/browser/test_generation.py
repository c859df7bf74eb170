"""The page of a language model's generation, of a real run: its pictures, tables and keys."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from etscope.capture.files import RunFiles, runs_of_files
from etscope.cli import main
from etscope.reporting.report import ReportOptions, report_inputs
from etscope.run import generate
from etscope.views.page import document_of
from tests.support.artifacts import artifacts
from tests.support.browser.chromium import draw, screenshot, set_scheme

DECODES = 24


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    with generate(
        artifacts("llama_generate").pte,
        prompt_length=20,
        seed=1,
        max_new_tokens=DECODES + 1,
        end_tokens=(),
        iterations=1,
        profiled_iterations=1,
        runner="python",
    ) as run:
        run.save(folder)
    return folder


@pytest.fixture(scope="module")
def document(saved: Path) -> dict[str, Any]:
    files = artifacts("llama_generate")
    runs = runs_of_files([saved], RunFiles.given(record=files.etrecord, program=files.pte))
    return document_of(list(report_inputs(runs, ReportOptions(numerics=False))))


def opened(page: Any, report: str, controls: str = "") -> Any:
    page.goto(f"{report}#run0/generation/0{controls}")
    page.wait_for_selector('[data-testid="stack-decode"] canvas')
    return page


def test_it_fits_the_window(page: Any, report: str) -> None:
    opened(page, report)
    for width, theme in ((800, "dark"), (1280, "light")):
        page.set_viewport_size({"width": width, "height": 1600})
        set_scheme(page, theme)
        draw(page)
        screenshot(page, f"generation-{width}-{theme}")
        wide = page.evaluate(
            """() => [...document.querySelectorAll('[data-testid="generation"] .card')]
                 .filter((one) => one.scrollWidth > one.clientWidth + 1)
                 .map((one) => one.dataset.testid)"""
        )
        assert wide == []
    page.keyboard.press("0")  # the tenth tab
    page.wait_for_selector('[data-testid="tab-memory"][aria-selected="true"]')
    page.keyboard.press("5")
    page.wait_for_selector('[data-testid="generation"]')
    assert page.failures == []


def test_the_numbers_are_those_of_inspect(
    page: Any, report: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = artifacts("llama_generate")
    arguments = [str(saved), "-r", str(files.etrecord), "-p", str(files.pte), "-f", "json"]
    assert main(["inspect", *arguments]) == 0
    told = json.loads(capsys.readouterr().out)
    opened(page, report)
    shown = page.locator('[data-testid="phase-table"] tbody tr').evaluate_all(
        """all => all.map(row => Object.fromEntries([...row.querySelectorAll("td")].map(
             cell => [cell.dataset.col, cell.dataset.value])))"""
    )
    assert [row["phase"] for row in shown] == ["prefill", "decode"]
    for row, phase in zip(shown, told["phases"], strict=True):
        assert int(row["calls"]) == phase["calls"]
        assert math.isclose(float(row["time"]), phase["time_ms"])
        assert math.isclose(float(row["rate_p50"]), phase["rate_p50_tokens_s"])
    grown = [row["growth"] for row in told["rows"] if row.get("growth") is not None]
    more = page.query_selector('[data-testid="generation-growth"] .more')
    if more:
        more.click()
    figures = page.locator('[data-testid="growth-table"] .figure').evaluate_all(
        "all => all.map(one => Number(one.dataset.value))"
    )
    assert sorted(figures) == pytest.approx(sorted(grown))


def test_a_call_under_the_pointer_and_by_keys(
    page: Any, report: str, document: dict[str, Any]
) -> None:
    calls = document["runs"][0]["generation"]["calls"]
    opened(page, report, "?generation.over=call")
    plot = page.locator('[data-testid="stack-decode"] .stack-plot')
    plot.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    point = page.wait_for_selector('[data-testid="stack-decode"] [data-testid="stack-point"]')
    decodes = [at for at, phase in enumerate(calls["phase"]) if phase == 1]
    text = point.inner_text()
    assert f"position {calls['position'][decodes[1]]}" in text
    assert "1 token" in text and f"call {calls['number'][decodes[1]]}" in text
    value = float(point.query_selector(".figure").get_attribute("data-value"))
    assert math.isclose(value, calls["time"][decodes[1]])
    box = plot.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 40)
    last = f"call {calls['number'][decodes[-1]]}"
    page.wait_for_function(
        "text => document.querySelector('[data-testid=stack-point]').innerText.includes(text)",
        arg=last,
    )
    # A click leads to the call's track on the timeline.
    page.mouse.click(box["x"] + 2, box["y"] + 40)
    page.wait_for_selector('[data-testid="timeline-canvas"]')
    assert f"timeline.run={calls['run'][decodes[0]]}" in page.url
    card = page.wait_for_selector('[data-testid="timeline-card"] b')
    assert card.inner_text()
    assert page.failures == []


def test_shares_are_those_of_the_groups(page: Any, report: str, document: dict[str, Any]) -> None:
    generation = document["runs"][0]["generation"]
    decode = [at for at, phase in enumerate(generation["calls"]["phase"]) if phase == 1]
    opened(page, report)
    for by in ("op", "module", "source"):
        page.click(f'[data-testid="stack-by"] [data-key="{by}"]')
        shares = page.locator('[data-testid="stack-legend"] tbody tr').evaluate_all(
            "all => all.map(row => Number(row.lastElementChild.dataset.value))"
        )
        total = sum(generation["calls"]["time"][at] for at in decode)
        wanted = [
            sum(series[at] for at in decode) / total for series in generation["groups"][by]["times"]
        ]
        assert shares == pytest.approx(wanted)
        assert sum(shares) == pytest.approx(1)
    assert "generation.by=source" in page.url
    page.reload()
    page.wait_for_selector('[data-testid="stack-by"] [data-key="source"][aria-pressed="true"]')


def test_the_whole_generation_is_on_a_timeline(page: Any, report: str) -> None:
    opened(page, report)
    names = page.locator('[data-testid="whole"] [data-testid="timeline-track"]')
    assert names.all_inner_texts() == ["forward", "sampling", "host"]
    canvas = page.locator('[data-testid="whole-canvas"]')
    assert int(canvas.get_attribute("data-spans")) >= 2 * (DECODES + 1)
    canvas.focus()
    card = '[data-testid="whole"] [data-testid="timeline-card"] b'
    for name in ("prefill, position 0", "decode, position 20"):
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "([card, name]) => document.querySelector(card)?.innerText === name", arg=[card, name]
        )
    assert page.failures == []
