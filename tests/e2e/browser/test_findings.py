"""The first page answers in words: its sentences are the command line's, and each link leads to
rows that add up to the number at stake."""

from __future__ import annotations

import json
from typing import Any

import pytest

from etscope.capture.files import runs_of_files
from etscope.cli import main
from etscope.reporting.report import ReportOptions, report_inputs
from etscope.views.page import document_of
from tests.support.artifacts import artifacts
from tests.support.browser.chromium import run_document

MODELS = ("cnn_xnnpack_int8", "transformer_portable")

# What only the report says: it compares values, and names its files without folders.
OF_THE_REPORT = {"no-values", "values-fine", "values-wrong"}
ANSWERS = {
    # Where all time is in the model itself, no layer stands out: the line does.
    "which layer is slow": {"slowest-module", "slowest-line"},
    "which operator is wrong": OF_THE_REPORT,
    "what takes the memory": {"memory"},
}

READ = """items => items.map(item => ({
  kind: item.dataset.kind, value: item.dataset.value,
  text: item.querySelector('a, span:not(.severity)').innerText,
  href: item.querySelector('a')?.getAttribute('href') ?? null}))"""


@pytest.mark.parametrize("name", MODELS)
def test_the_first_page_says_what_inspect_says(
    name: str, page: Any, page_of: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    files = artifacts(name)
    report = page_of(run_document(files.etdump, files.etrecord, files.pte, numerics=False))
    arguments = ("inspect", files.etdump, "-r", files.etrecord, "-p", files.pte, "-f", "json")
    assert main([str(argument) for argument in arguments]) == 0
    told = json.loads(capsys.readouterr().out)["findings"]

    page.goto(f"{report}#run0/summary/0")
    page.wait_for_selector('[data-testid="findings"]')
    shown = page.eval_on_selector_all('[data-testid="findings"] li', READ)

    assert [one["kind"] for one in shown] == [one["kind"] for one in told]
    for one, expected in zip(shown, told, strict=True):
        assert expected["sentence"] in " ".join(one["text"].split())
        if expected["quantity"] is not None:
            assert float(one["value"]) == pytest.approx(expected["quantity"]["value"])
    kinds = {one["kind"] for one in shown}
    for question, answers in ANSWERS.items():
        assert kinds & answers, question

    linked = 0
    for one, expected in zip(shown, told, strict=True):
        where = expected["where"]
        if where is None or where["view"] != "events" or where["select"] is None:
            continue
        page.goto("about:blank")  # what another finding led to would still be there
        page.goto(f"{report}{one['href']}")
        if where["select"] == "kind:kernel" and expected["kind"] == "nothing-delegated":
            continue  # all rows match: there is no sum of the shown ones
        shown_sum = page.wait_for_selector('[data-testid="sum-shown"] [data-col="avg"]')
        assert float(shown_sum.get_attribute("data-value")) == pytest.approx(
            expected["quantity"]["value"]
        ), expected
        linked += 1
    assert linked


def test_the_first_page_of_two_dumps_says_what_changed(page: Any, page_of: Any) -> None:
    sides = [artifacts(name) for name in ("cnn_portable", "cnn_xnnpack")]
    found = [
        one
        for files in sides
        for one in report_inputs(
            runs_of_files([files.etdump, files.etrecord, files.pte]), ReportOptions(numerics=False)
        )
    ]
    document = document_of(found)

    page.goto(f"{page_of(document)}#run1/summary/0")
    link = page.wait_for_selector('[data-testid="findings"] [data-kind="changed"] a')
    headline = " ".join(document["comparisons"][0]["headline"])
    assert headline in " ".join(link.inner_text().split())
    link.click()
    page.wait_for_selector('#view[data-tab="compare"]')
    assert document["comparisons"][0]["headline"][0] in page.inner_text("#view")


def test_the_first_page_explains_what_explain_explains(
    page: Any, page_of: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    files = artifacts("cnn_portable")
    document = run_document(files.etdump_timing, files.etrecord, files.pte, numerics=False)
    arguments = (files.etdump_timing, "-r", files.etrecord, "-p", files.pte, "-f", "json")
    assert main(["explain", *map(str, arguments)]) == 0
    told = json.loads(capsys.readouterr().out)["findings"]

    page.goto(f"{page_of(document)}#run0/summary/0")
    page.wait_for_selector('[data-testid="explanations"]')
    card = page.locator('[data-testid="explanations"]')
    shown = card.locator("ol > li")
    assert [one.get_attribute("data-kind") for one in shown.all()] == [one["kind"] for one in told]
    assert told[0]["kind"] == "not-delegated"
    first = shown.first
    text = " ".join(first.inner_text().split())
    assert told[0]["sentence"] in text
    assert f"To do: {told[0]['explanation']['remedies'][0]['text']}" in text
    first.locator("summary").click()
    opened = " ".join(first.inner_text().split())
    assert "kernels ran, and no delegate call." in opened
    assert "convolution.out, instruction 3, stages.0.first.conv, cnn.py:" in opened
    first.locator("a").first.click()
    page.wait_for_selector('#view[data-tab="events"]')
