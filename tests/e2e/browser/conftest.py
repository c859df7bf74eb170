"""Fixtures of all tests of pages."""

from tests.support.browser.chromium import page, page_of, profile, report

__all__ = ["page", "page_of", "profile", "report"]
