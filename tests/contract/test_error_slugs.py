"""Every error has its section in docs/reference/errors.md, with its exit code."""

from __future__ import annotations

import re

from etscope import errors
from tests.contract.source_tree import ROOT

PAGE = (ROOT / "docs/reference/errors.md").read_text()


def error_classes() -> list[type[errors.EtscopeError]]:
    """All subclasses of EtscopeError that errors.py defines."""
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    return [
        value
        for value in found
        if issubclass(value, errors.EtscopeError) and value is not errors.EtscopeError
    ]


def sections(page: str) -> dict[str, tuple[str, str]]:
    """Anchor -> (title, text) of every `## Title {#anchor}` of a page."""
    parts = re.split(r"^## (.*?) \{#([a-z-]+)\}$", page, flags=re.MULTILINE)
    return {parts[i + 1]: (parts[i], parts[i + 2]) for i in range(1, len(parts), 3)}


def test_the_page_is_in_the_documentation() -> None:
    site = errors.PAGE.removesuffix("reference/errors/")
    assert f'Documentation = "{site}"' in (ROOT / "pyproject.toml").read_text()


def test_every_error_has_a_section_and_every_section_is_an_error() -> None:
    found = sections(PAGE)
    assert list(found) == [error.slug for error in error_classes()]
    for error in error_classes():
        title, text = found[error.slug]
        assert title == f"`{error.__name__}`"
        assert f"Exit code {error.exit_code}." in text, title
