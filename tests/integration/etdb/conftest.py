"""Fixtures of this folder."""

from tests.support.etdb.fixtures import ctrl_c_is_heard

__all__ = ["ctrl_c_is_heard"]
