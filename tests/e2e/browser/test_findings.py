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
  text: item.querySelector('.insight-headline').innerText,
  href: item.querySelector('a')?.getAttribute('href') ?? null}))"""


@pytest.mark.parametrize("name", MODELS)
def test_the_first_page_says_what_explain_and_inspect_say(
    name: str, page: Any, page_of: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    files = artifacts(name)
    report = page_of(run_document(files.etdump, files.etrecord, files.pte, numerics=False))
    arguments = (files.etdump, "-r", files.etrecord, "-p", files.pte, "-f", "json")
    assert main(["explain", *map(str, arguments)]) == 0
    told = json.loads(capsys.readouterr().out)["findings"]
    # By its reasons, explain divides what inspect sums up.
    said = {"layout-conversions", "outside-delegates", *(one["kind"] for one in told)}
    assert main(["inspect", *map(str, arguments)]) == 0
    told += [
        one for one in json.loads(capsys.readouterr().out)["findings"] if one["kind"] not in said
    ]

    page.goto(f"{report}#run0/summary/0")
    page.wait_for_selector('[data-testid="insights"]')
    page.click('[data-testid="more-insights"] > summary')
    shown = page.eval_on_selector_all('[data-testid="insights"] ol > li', READ)

    by_kind = {one["kind"]: one for one in shown}
    assert sorted(by_kind) == sorted(one["kind"] for one in told)
    assert len(shown) == len(by_kind)
    for expected in told:
        one = by_kind[expected["kind"]]
        assert expected["sentence"].replace("`", "") in " ".join(one["text"].split())
        if expected["quantity"] is not None:
            assert float(one["value"]) == pytest.approx(expected["quantity"]["value"])
    for question, answers in ANSWERS.items():
        assert by_kind.keys() & answers, question

    linked = 0
    for expected in told:
        where = expected["where"]
        if where is None or where["view"] != "events" or where["select"] is None:
            continue
        if "explanation" in expected:
            continue  # of the median, or of rows that would be faster, not gone
        page.goto("about:blank")  # what another finding led to would still be there
        page.goto(f"{report}{by_kind[expected['kind']]['href']}")
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
    link = page.wait_for_selector('[data-testid="insights"] [data-kind="changed"] a')
    assert document["comparisons"][0]["headline"][0] in " ".join(link.inner_text().split())
    link.click()
    page.wait_for_selector('#view[data-tab="compare"]')
    assert document["comparisons"][0]["headline"][0] in page.inner_text("#view")


def test_an_insight_has_its_line_its_fix_and_a_command_to_copy(page: Any, page_of: Any) -> None:
    files = artifacts("cnn_portable")
    document = run_document(files.etdump_timing, files.etrecord, files.pte, numerics=False)
    told = document["runs"][0]["insights"][0]
    assert told["kind"] == "not-delegated"
    fix = told["explanation"]["remedies"][0]["text"].partition("`")[0].strip()

    page.goto(f"{page_of(document)}#run0/summary/0")
    first = page.locator('[data-testid="insights"] ol > li').first
    assert f"Fix: {fix}" in " ".join(first.inner_text().split())
    first.locator("summary").click()
    opened = " ".join(first.inner_text().split())
    assert "kernels ran, and no delegate call." in opened
    assert "convolution.out, instruction 3, stages.0.first.conv, cnn.py:" in opened
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    first.locator(".insight-headline .copy").click()
    page.wait_for_function("document.querySelector('.copy').innerText === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == told["next"]
    first.locator(".frame button").click()
    page.wait_for_selector('#view[data-tab="source"] tr.chosen')
    page.go_back()
    first.locator("a").first.click()
    page.wait_for_selector('#view[data-tab="events"]')
