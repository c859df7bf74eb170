"""Fixtures of all tests of pages."""

from tests.support.browser.chromium import chromium, page

__all__ = ["chromium", "page"]
