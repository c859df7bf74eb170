"""Fixtures of tests in the programs that people work in. `make test-editor` installs these."""

from tests.support.browser.chromium import page, profile

__all__ = ["page", "profile"]
