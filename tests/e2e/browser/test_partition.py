"""The details of a node of the edge program say who did not take it, and why."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.artifacts import artifacts
from tests.support.browser.chromium import run_document, screenshot

REFUSALS = '[data-testid="refusals"] .fact'


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    made = artifacts("partitioned")
    return run_document(made.extra("both.model.etrecord"), made.extra("both.model.pte"))


def test_details_of_nodes(document: dict[str, Any], page: Any, report: str) -> None:
    (graph,) = [one for one in document["runs"][0]["graphs"] if one["key"] == "edge/forward"]
    names = [node["name"] for node in graph["nodes"]]

    def told(name: str) -> list[list[str]]:
        page.goto(f"{report}#run0/graph/0/node-{names.index(name)}-edge%2Fforward")
        page.wait_for_selector('[data-testid="details"]')
        page.wait_for_function(f"document.body.textContent.includes({name!r})")
        found: list[list[str]] = page.eval_on_selector_all(
            REFUSALS, "all => all.map(one => [...one.children].map(part => part.textContent))"
        )
        return found

    assert told("aten_cumsum_default") == [
        ["VulkanBackend", "no operator implementation"],
        ["XnnpackBackend", "unknown operator"],
    ]
    assert "Why it is not delegated" in page.inner_text('[data-testid="details"]')
    screenshot(page, "partition")
    assert told("aten_convolution_default") == [["VulkanBackend", "op args not supported"]]
    assert "Who refused it before" in page.inner_text('[data-testid="details"]')
    assert told("aten_embedding_default") == []
