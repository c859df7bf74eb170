"""Fixtures of all tests of pages."""

from tests.browser.chromium import chromium, page

__all__ = ["chromium", "page"]
