"""Fixtures of this folder."""

from tests.support.etdb.fixtures import ctrl_c_is_heard, sessions_are_closed

__all__ = ["ctrl_c_is_heard", "sessions_are_closed"]
