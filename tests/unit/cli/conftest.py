"""Fixtures of this folder."""

from tests.support.cli.fixtures import plain_environment

__all__ = ["plain_environment"]
