"""Fixtures of this folder."""

from tests.support.cli.fixtures import run

__all__ = ["run"]
