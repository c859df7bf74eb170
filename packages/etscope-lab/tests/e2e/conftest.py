"""Fixtures of tests in a browser."""

from tests.support.browser.chromium import page, profile

__all__ = ["page", "profile"]
