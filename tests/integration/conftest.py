"""Fixtures of integration tests."""

from tests.support.warm.fixtures import _warm_runs, real_python

__all__ = ["_warm_runs", "real_python"]
