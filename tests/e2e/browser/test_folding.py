"""Repeated blocks share a box, in the module tree and in graphs: it opens, stays open, and does not
hide what is looked for."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.artifacts import artifacts
from tests.support.browser.chromium import find, run_document, screenshot
from tests.support.views.page_reports import Json

BLOCKS = 12
BOX = "blocks.0\N{EN DASH}11"
NAME = f"{BOX} \N{MULTIPLICATION SIGN}{BLOCKS}"
FRAME = '[data-testid="icicle-frame"][data-path="{}"]'


@pytest.fixture(scope="module")
def document() -> Json:
    files = artifacts("deep_transformer")
    return run_document(files.etdump_timing, files.etrecord, files.pte)


def modules_of(document: Json) -> dict[str, Json]:
    return {one["path"]: one for one in document["runs"][0]["methods"][0]["modules"]}


def test_equal_modules_are_one_frame_with_their_sum(page: Any, report: str, document: Json) -> None:
    modules = modules_of(document)
    totals = [modules[f"blocks.{number}"]["total"] for number in range(BLOCKS)]
    page.goto(f"{report}#run0/modules/0")
    frame = page.wait_for_selector(FRAME.format(BOX))
    assert NAME in frame.inner_text()
    assert float(frame.get_attribute("data-total")) == pytest.approx(sum(totals))
    assert page.query_selector(FRAME.format("blocks.7")) is None
    inside = page.wait_for_selector(FRAME.format(f"{BOX}.attention"))
    parts = [modules[f"blocks.{number}.attention"]["total"] for number in range(BLOCKS)]
    assert float(inside.get_attribute("data-total")) == pytest.approx(sum(parts))
    screenshot(page, "modules-folded")

    frame.click()  # opens
    page.wait_for_selector(FRAME.format("blocks.7"))
    told = page.inner_text('[data-testid="icicle-each-block"]')
    assert told.startswith(f"each of {BLOCKS}: ")
    least, greatest = (float(text) for text in re.findall(r"([\d.]+) ms", told)[:2])
    assert [least, greatest] == pytest.approx([min(totals), max(totals)], abs=0.0006)
    for number, total in enumerate(totals):
        block = page.wait_for_selector(FRAME.format(f"blocks.{number}"))
        assert float(block.get_attribute("data-total")) == total
    page.reload()
    page.wait_for_selector(FRAME.format("blocks.7"))
    page.click(FRAME.format(BOX))  # closes
    page.wait_for_selector(FRAME.format("blocks.7"), state="detached")
    assert page.failures == []


def test_what_is_found_is_not_hidden_and_one_choice_draws_the_blocks_of_both_views_apart(
    page: Any, report: str
) -> None:
    page.goto(f"{report}#run0/modules/0")
    page.wait_for_selector(FRAME.format(BOX))
    find(page, "blocks.7.mlp.up", "module")
    chosen = page.wait_for_selector('[data-testid="icicle-frame"][aria-selected="true"]')
    assert chosen.get_attribute("data-path") == "blocks.7.mlp.up"
    page.reload()
    page.wait_for_selector(FRAME.format("blocks.7.mlp.up"))

    page.select_option('[data-testid="graph-repeats"]', "off")
    page.wait_for_selector(FRAME.format("blocks.7"))
    assert page.query_selector(FRAME.format(BOX)) is None
    page.click('[data-testid="tab-graph"]')
    apart = items_drawn(page, "off")
    page.goto("about:blank")  # another fragment of one page would not load it anew
    page.goto(f"{report}#run0/graph/0")
    assert items_drawn(page, "auto") < apart
    assert page.failures == []


def items_drawn(page: Any, choice: str) -> int:
    page.wait_for_selector('[data-testid="graph-drawn"]', state="attached")
    page.click('[data-testid="graph-options"]')
    assert page.input_value('[data-testid="graph-repeats"]') == choice
    page.keyboard.press("Escape")
    return int(page.get_attribute('[data-testid="graph-drawn"]', "data-items"))


def test_a_node_in_a_folded_block_is_found_and_shown(
    page: Any, report: str, document: Json
) -> None:
    graph = document["runs"][0]["graphs"][-1]
    groups = [one["label"] for one in graph["groups"]]
    node = next(
        one
        for one in graph["nodes"]
        if one["group"] is not None
        and groups[one["group"]] == "blocks.7.mlp"
        and one["kind"] == "call_function"
    )
    page.goto(f"{report}#run0/graph/0?graph.left={graph['key']}&graph.repeats=on")
    closed = items_drawn(page, "on")
    find(page, f"{node['name']} {node['op']} blocks.7", "node")
    page.wait_for_selector('[data-testid="graph-card-name"]')
    page.wait_for_function(
        "before => document.querySelector('[data-testid=\"graph-drawn\"]').dataset.items > before",
        arg=closed,
    )
    assert page.inner_text('[data-testid="details"] h2') == node["name"]
    opened = page.get_attribute('[data-testid="graph-drawn"]', "data-items")
    assert f"open.{graph['key']}" in parse_qs(urlsplit(page.url).fragment.partition("?")[2])
    screenshot(page, "graph-unfolded")

    page.reload()
    page.wait_for_selector('[data-testid="graph-drawn"]', state="attached")
    assert page.get_attribute('[data-testid="graph-drawn"]', "data-items") == opened
    assert page.inner_text('[data-testid="details"] h2') == node["name"]

    # A box is named after its parent.
    page.fill('[data-testid="graph-search"]', NAME)
    page.wait_for_selector('[data-testid="graph-found"]')
    page.keyboard.press("Enter")
    page.wait_for_selector('[data-testid="graph-each-block"]')
    path = page.inner_text('[data-testid="graph-card-name"]').split(
        " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
    )
    assert path == ["blocks", NAME]
    assert page.failures == []
