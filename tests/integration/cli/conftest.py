"""Fixtures of this folder."""

from tests.support.cli.fixtures import plain_environment, run

__all__ = ["plain_environment", "run"]
