"""Words that the report explains have the definitions of docs/reference/glossary.md."""

from __future__ import annotations

import re

import pytest

from tests.contract.source_tree import ROOT

ENTRY = re.compile(
    r"^- \*\*(?:.+?)\*\*\{ #([\w-]+) \}: (.+?)(?=\n- |\n\n|\Z)", re.MULTILINE | re.DOTALL
)
PAGE = {
    anchor: " ".join(text.replace("`", "").split())
    for anchor, text in ENTRY.findall((ROOT / "docs/reference/glossary.md").read_text())
}
WORDS = (ROOT / "web/src/words.ts").read_text().partition("export const GLOSSARY = {")[2]
REPORT = {
    name.strip('"'): "".join(re.findall(r'"([^"]*)"', text))
    for name, text in re.findall(
        r'^  ([\w"-]+):((?:\s+"[^"]*"(?: \+)?)+),$', WORDS.partition("\n};")[0], re.MULTILINE
    )
}


@pytest.mark.parametrize("term", sorted(REPORT))
def test_the_report_has_the_words_of_the_glossary(term: str) -> None:
    assert PAGE[term].startswith(REPORT[term])


def test_the_terms_of_both_are_read() -> None:
    assert len(PAGE) == (ROOT / "docs/reference/glossary.md").read_text().count("{ #")
    assert {"leaf", "sqnr", "delegate-map", "counted-runs"} <= REPORT.keys()
