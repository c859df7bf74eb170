"""Fixtures of tests in a browser."""

from tests.support.browser.chromium import chromium, page, profile

__all__ = ["chromium", "page", "profile"]
