"""Fixtures of all attacks."""

from tests.attacks.hostile import witness

__all__ = ["witness"]
