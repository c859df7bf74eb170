"""Fixtures of all tests of pages."""

from tests.support.browser.chromium import chromium, page, page_of, profile, report

__all__ = ["chromium", "page", "page_of", "profile", "report"]
