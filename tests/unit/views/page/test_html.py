"""The HTML file: the page with its data as text that cannot act."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from etscope.errors import MissingDependencyError
from etscope.views.page import html
from etscope.views.page.html import MARKER, built_page, with_data
from tests.unit.views.page.test_document import HOSTILE

PAGE = f"<!doctype html><html><body><div id=app></div>{MARKER}<script>go()</script></body></html>"


class Scripts(HTMLParser):
    """The scripts of a page, with their attributes and texts, and all other tags."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)


@pytest.mark.parametrize("name", HOSTILE)
def test_data_is_an_inert_script_whatever_it_says(name: str) -> None:
    text = with_data(PAGE, {"title": name, "runs": [name]})
    assert MARKER not in text
    found = Scripts(text)
    assert found.tags == ["html", "body", "div", "script", "script"]
    (data, code) = found.scripts
    assert data[0] == {"type": "application/json", "id": "etscope-data"}
    assert json.loads(data[1]) == {"title": name, "runs": [name]}
    assert code == ({}, "go()")


def test_a_page_that_was_not_built_says_how(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(html, "BUILT", tmp_path / "page.html")
    with pytest.raises(MissingDependencyError, match="does not have the page") as caught:
        built_page()
    assert "make web" in str(caught.value)


def test_the_built_page_is_one_file() -> None:
    page = built_page()
    assert page.count(MARKER) == 1
    found = Scripts(page)
    assert all("src" not in attributes for attributes, _ in found.scripts)
    assert "link" not in found.tags or not re.search(r"<link[^>]+href=.(?!data:)", page)
