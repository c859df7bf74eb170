"""Fixtures of unit tests."""

from tests.support.cli.fixtures import run

__all__ = ["run"]
